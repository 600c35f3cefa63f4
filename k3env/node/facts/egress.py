"""Egress: whether hosts can be reached from here, directly or through the proxy that programs would use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional
from urllib.parse import urlsplit

CONNECT_S = 3.0


def unreached(hosts: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return those hosts, as "HOST:PORT", to which no connection can be made; asked side by side.

    Where a proxy is set, it is what programs connect to; it is told once, for all hosts.
    """
    import concurrent.futures

    proxy = proxy_of(environment)
    asked = [proxy] if proxy is not None else list(hosts)
    with concurrent.futures.ThreadPoolExecutor(max(1, len(asked))) as pool:
        reached = list(pool.map(_reached, asked))
    missing = [host for host, ok in zip(asked, reached) if not ok]
    return tuple(f"{host} (the proxy)" for host in missing) if proxy is not None else tuple(missing)


def proxy_of(environment: Mapping[str, str]) -> Optional[str]:
    """Return the proxy for HTTPS, as "HOST:PORT"; None where none is set."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        text = environment.get(name)
        if text:
            try:
                parts = urlsplit(text if "://" in text else f"http://{text}")
                port = parts.port or (443 if parts.scheme == "https" else 3128)
            except ValueError:
                return None  # Programs that use it say what is wrong.
            if parts.hostname:
                return f"{parts.hostname}:{port}"
    return None


def _reached(host: str) -> bool:
    import socket

    name, _, port = host.rpartition(":")
    try:
        with socket.create_connection((name, int(port)), timeout=CONNECT_S):
            return True
    except OSError:
        return False
