"""Egress: how the commands of a site's nodes reach package indexes and git servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

_NAMES: dict[str, tuple[str, ...]] = {
    "http_proxy": ("http_proxy", "HTTP_PROXY"),
    "https_proxy": ("https_proxy", "HTTPS_PROXY"),
    "no_proxy": ("no_proxy", "NO_PROXY"),
    "ca": ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"),
    "index_url": ("PIP_INDEX_URL",),
    "extra_index_url": ("PIP_EXTRA_INDEX_URL",),
    "netrc": ("NETRC",),
}
"""What each is called by the programs that read it. Of proxies curl and git read small letters, some programs only
capital ones. Source: the manuals of curl, git-config(1) (http.sslCAInfo), pip, Requests, OpenSSL."""

_PROXIES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
_INDEXES = ("http", "https", "file")

NAMES = tuple(name for names in _NAMES.values() for name in names)
"""All these variables."""
FILES = (*_NAMES["ca"], *_NAMES["netrc"])
"""Those whose value is the path of a file, which a container must see too."""


@dataclass(frozen=True)
class Egress:
    """Proxies, certificates and indexes that the nodes use; a URL may be a secret.

    They are given to every command of every task in its environment, never in its words, also as another user and in
    containers. A task's own `environment` beats them.
    """

    __pydantic_config__ = {"extra": "forbid", "use_attribute_docstrings": True}  # noqa: RUF012
    SECRETS: ClassVar[tuple[str, ...]] = ("http_proxy", "https_proxy", "index_url", "extra_index_url")

    http_proxy: Optional[str] = None
    """Proxy for http, a URL; one that holds a password should be a secret."""
    https_proxy: Optional[str] = None
    """Proxy for https, a URL: that of git, pip, Git LFS and curl."""
    no_proxy: Optional[str] = None
    """Hosts that are reached without a proxy, comma-separated."""
    ca: Optional[str] = None
    """Absolute path on the nodes of a PEM file with all certificates to trust, the public ones too."""
    index_url: Optional[str] = None
    """pip's package index. It holds no name and password: those stand in `netrc`."""
    extra_index_url: Optional[str] = None
    """More indexes, separated by blanks."""
    netrc: Optional[str] = None
    """Absolute path on the nodes of a netrc file with the names and passwords of indexes."""

    def __post_init__(self) -> None:
        for name in ("ca", "netrc"):
            path = getattr(self, name)
            if path is not None and not path.startswith("/"):
                raise ValueError(f"{name} must be an absolute path, found {path!r}")
        for name in ("http_proxy", "https_proxy", "index_url", "extra_index_url"):
            if re.search(r"://[^/@\s]*:[^/@\s]*@", getattr(self, name) or ""):
                raise ValueError(
                    f"{name} holds a password: say where it is kept, {name}: {{secret: env:NAME}}, or netrc"
                )
        for name in ("http_proxy", "https_proxy"):
            url = getattr(self, name)
            if url is not None and re.fullmatch(r"([^/@]*@)?[\w.-]+(:\d+)?/?", url) and ("." in url or ":" in url):
                raise ValueError(f"{name} must be a URL such as http://proxy:3128, found one without a scheme")
            _check_urls(name, [url or ""], _PROXIES, "http://proxy:3128")
        for name in ("index_url", "extra_index_url"):
            _check_urls(name, (getattr(self, name) or "").split(), _INDEXES, "https://index/simple")


def _check_urls(name: str, urls: list[str], schemes: tuple[str, ...], example: str) -> None:
    """Raise ValueError for what no program takes for a URL; a word is let pass, as is what stands for a secret."""
    from urllib.parse import urlsplit

    for url in urls:
        if not re.search(r"[.:/]", url):
            continue
        try:
            parts = urlsplit(url)
            whole = parts.scheme in schemes and bool(parts.hostname or parts.scheme == "file") and parts.port != 0
        except ValueError:
            whole = False
        if not whole or not re.fullmatch(r"[!-~]+", url):
            # The URL is not repeated: it may hold a password.
            raise ValueError(f"{name} must be a URL such as {example}, found one that is none of {', '.join(schemes)}")


def environment(egress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment variables that an Egress stands for, given by its fields; unset ones are left out."""
    return {
        name: value
        for field, names in _NAMES.items()
        if (value := egress.get(field)) is not None
        for name in names
    }  # fmt: skip


def present(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of an environment's variables that say how to reach indexes and git servers."""
    return {name: variables[name] for name in NAMES if name in variables}
