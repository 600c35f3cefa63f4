"""Egress: which way each program of a build takes out, by variables and by its own files, and whether that leads on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union
from urllib.parse import urlsplit

CONNECT_S = 3.0
SCHEMES = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
CURL_PORTS = {"https": 443}
"""Of a proxy whose URL names no port, for git, CMake and curl; all others: 1080. Source: curl(1), --proxy."""
URLLIB3_PORTS = {"https": 443, "socks4": 1080, "socks5": 1080, "socks5h": 1080}
"""The same for pip, and for all that is built on urllib3; all others: 80. Source: urllib3, port_by_scheme."""


@dataclass(frozen=True)
class Configured:
    """What git's and pip's own files say, where the build would run; names and passwords of URLs are left out."""

    git: dict[str, str] = field(default_factory=dict)
    """URL to what `url.*.insteadOf` makes of it."""
    git_proxies: dict[str, str] = field(default_factory=dict)
    """That URL to its `http.proxy`; "" turns a proxy of the environment off."""
    pip: dict[str, str] = field(default_factory=dict)
    """`index-url`, `proxy`, `no-index`, by the files that count."""


@dataclass(frozen=True)
class Way:
    """What a program connects to."""

    tool: str
    """git, CMake or pip."""
    target: str
    """HOST:PORT: the server itself, or the proxy."""
    origin: str = ""
    """Where the proxy stands; "" for none."""
    usual_port: bool = False
    """The proxy's URL names no port."""


def for_git(urls: Iterable[str], environment: Mapping[str, str], configured: Configured) -> tuple[Way, ...]:
    """Return what git connects to for these repositories.

    Source: git-config(1): url.<base>.insteadOf, http.proxy, which beats the environment's; http.c for its order.
    """
    found = []
    for url in urls:
        after = configured.git.get(url, url)
        where = target(after)
        if where is None:
            continue
        own = configured.git_proxies.get(after)
        if own is not None:
            proxy = (own, "git's http.proxy") if own else None
        else:
            proxy = of_environment(urlsplit(after).scheme, environment)
        found.append(_way("git", where, after, proxy, CURL_PORTS, 1080, environment))
    return tuple(dict.fromkeys(found))


def for_cmake(host: str, environment: Mapping[str, str]) -> Way:
    """Return what CMake connects to for an archive: it is curl, and knows the environment alone."""
    url = f"https://{host}"
    return _way("CMake", f"{host}:443", url, of_environment("https", environment), CURL_PORTS, 1080, environment)


def for_pip(indexes: Iterable[str], environment: Mapping[str, str], configured: Configured) -> tuple[Way, ...]:
    """Return what pip connects to for its indexes; where the site has one of its own, that one alone.

    pip passes over a second index that it can't reach. Source: pip's documentation, "Configuration".
    """
    said = {**configured.pip, **_pip_variables(environment)}
    if said.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return ()
    own = said.get("index-url")
    found = []
    for url in (own,) if own else indexes:
        where = target(url)
        if where is None:
            continue
        proxy = said.get("proxy")
        given = (proxy, "pip's proxy") if proxy else of_environment(urlsplit(url).scheme, environment)
        found.append(_way("pip", where, url, given, URLLIB3_PORTS, 80, environment))
    return tuple(dict.fromkeys(found))


def unreached(ways: Iterable[Way]) -> tuple[str, ...]:
    """Return those to which no connection can be made, each told once; asked side by side."""
    import concurrent.futures

    by_target: dict[str, list[Way]] = {}
    for way in ways:
        by_target.setdefault(way.target, []).append(way)
    with concurrent.futures.ThreadPoolExecutor(max(1, len(by_target))) as pool:
        reached = list(pool.map(_reached, by_target))
    return tuple(_shown(group) for group, ok in zip(by_target.values(), reached) if not ok)


def target(url: str) -> Optional[str]:
    """Return the HOST:PORT that a URL leads to, as git writes them too; None where that is no host."""
    if "://" not in url:
        host, colon, _ = url.partition(":")
        return f"{host.rpartition('@')[2]}:22" if colon and "/" not in host and host else None
    return _address(url, SCHEMES, 0)


def proxy_address(text: str, ports: Mapping[str, int], otherwise: int) -> Optional[str]:
    """Return a proxy's HOST:PORT; None for what is no proxy, of which the programs that use it say what is wrong."""
    return _address(text if "://" in text else f"http://{text}", ports, otherwise)


def of_environment(scheme: str, environment: Mapping[str, str]) -> Optional[tuple[str, str]]:
    """Return the environment's proxy for a scheme, and the variable that it is from."""
    names = (f"{scheme}_proxy", "HTTPS_PROXY" if scheme == "https" else "", "all_proxy", "ALL_PROXY")
    return next(((environment[name], name) for name in names if environment.get(name)), None)


def bypasses(host: str, environment: Mapping[str, str]) -> bool:
    """Return whether `no_proxy` takes a host out: a name, a domain, an address, a network, or `*` for all."""
    for entry in (environment.get("no_proxy") or environment.get("NO_PROXY") or "").replace(",", " ").split():
        name = entry.lstrip(".").lower()
        if entry == "*" or (name and (host == name or host.endswith(f".{name}"))) or _within(host, entry):
            return True
    return False


def _within(host: str, network: str) -> bool:
    if not network[:1].isalnum() or not (network[0].isdigit() or ":" in network):
        return False
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _pip_variables(environment: Mapping[str, str]) -> dict[str, str]:
    names = {"PIP_INDEX_URL": "index-url", "PIP_PROXY": "proxy", "PIP_NO_INDEX": "no-index"}
    return {key: environment[name] for name, key in names.items() if environment.get(name)}


def _way(
    tool: str,
    where: str,
    url: str,
    proxy: Optional[tuple[str, str]],
    ports: Mapping[str, int],
    otherwise: int,
    environment: Mapping[str, str],
) -> Way:
    """Return the way to a server, through its proxy where it has one."""
    host = where.rpartition(":")[0]
    if proxy is None or not url.startswith(("http://", "https://")) or bypasses(host, environment):
        return Way(tool, where)
    address = proxy_address(proxy[0], ports, otherwise)
    if address is None:
        return Way(tool, where)
    parts = urlsplit(proxy[0] if "://" in proxy[0] else f"http://{proxy[0]}")
    return Way(tool, address, proxy[1], parts.port is None)


def _address(url: str, ports: Mapping[str, int], otherwise: int) -> Optional[str]:
    try:
        parts = urlsplit(url)
        port = parts.port or ports.get(parts.scheme, otherwise)
    except ValueError:
        return None  # Programs that use it say what is wrong.
    return f"{parts.hostname}:{port}" if parts.hostname and port else None


def _shown(group: list[Way]) -> str:
    """Say what was not reached, and for which programs, where that tells what to set."""
    first = group[0]
    if not first.origin:
        return first.target
    tools = " and ".join(dict.fromkeys(way.tool for way in group))
    origins = " and ".join(dict.fromkeys(way.origin for way in group))
    usual = f"; no port stands there, so {tools} would take this" if first.usual_port else ""
    return f"{first.target} (the proxy of {tools}, by {origins}{usual})"


def _reached(host: str) -> bool:
    import socket

    name, _, port = host.rpartition(":")
    try:
        with socket.create_connection((name, int(port)), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def read(told: Mapping[str, Any]) -> Configured:
    """Return what the program that looked has said.

    Raises KeyError, TypeError for what it does not say.
    """
    git, pip = told["git"], told["pip"]
    return Configured(
        {str(url): str(item[0]) for url, item in git.items()},
        {str(item[0]): str(item[1]) for item in git.values() if item[1] is not None},
        {str(key): str(value) for key, value in pip.items()},
    )


def source_urls(listed: Union[str, None], base: str) -> tuple[tuple[str, ...], bool]:
    """Return the repositories that a list of sources names, and whether some of it comes as an archive.

    Source: 3rdparty/fetch_content.json.
    """
    import json

    try:
        items = json.loads(listed or "{}").get("dependencies", [])
        rows = [(str(item["git_repository"]), bool(item.get("use_url"))) for item in items]
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        rows = []
    urls = [url.replace("${github_base_url}", base) for url, archive in rows if not archive]
    known = tuple(dict.fromkeys(url for url in urls if "$" not in url))
    return known, any(archive for _, archive in rows)
