"""What may go wrong with a URL, and how it is told; without what opens one, which takes long to import."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    from email.message import Message

PORTS = {"http": 80, "https": 443}
_WAIT = (408, 425, 429)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class WebError(Exception):
    """A server could not be asked, or gave no answer that can be used."""


class Cut(WebError):
    """The connection could not be made, was cut, or stood still: it may go better next time."""


class Distrusted(WebError):
    """The server's certificate is not one of ours to believe, or it leads to where nothing of ours may go."""

    def __init__(self, said: str, remedy: str = "") -> None:
        """`remedy` is what to do where that is known."""
        super().__init__(said)
        self.remedy = remedy


class Answered(WebError):
    """The server answered with an error."""

    def __init__(self, url: str, status: int, headers: Message, said: str, elsewhere: bool) -> None:
        """`elsewhere`: it was another server than the one that was asked first."""
        super().__init__(f"{shown(url)} answered {status}")
        self.status = status
        self.headers = headers
        self.said = said
        self.elsewhere = elsewhere


def is_passing(status: int) -> bool:
    """Return whether an error that a server answers is one of now: it is busy, not done yet, or broken itself."""
    return status >= 500 or status in _WAIT


def origin(url: str) -> tuple[str, str, int]:
    """Return what makes a server: scheme, host, port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


def joined(url: str, place: str) -> str:
    """Return where an answer leads to.

    Raises Distrusted for what is no URL.
    """
    try:
        found = urljoin(url, place)
        origin(found)
    except ValueError as error:
        raise Distrusted(f"{shown(url)} leads to no URL of the web: {error}") from None
    return found


def is_loopback(url: str) -> bool:
    """Return whether a URL leads to this machine."""
    return urlsplit(url).hostname in _LOOPBACK


def shown(url: str) -> str:
    """Return a URL as it may be shown: a signature stands behind the `?`, a password before the `@`."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a URL that can't be read"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
