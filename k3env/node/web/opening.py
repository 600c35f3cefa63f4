"""The web, as a node reaches it: proxies and authorities of its environment, and a token that one server alone gets."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import Any, Optional, Union, cast
from urllib.parse import urlsplit

from k3env.node.web.weberrors import PORTS, Answered, Cut, Distrusted, joined, origin, shown

STALL_S = 60.0
"""How long a server may send nothing."""
REDIRECTS = 8
EXPLAINED_BYTES = 2048
_AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_OTHER_NAME, _OTHER_TIME = (62, 64), (9, 10)
_REDIRECTIONS = (301, 302, 303, 307, 308)


class Web:
    """Opens URLs. The token goes to the server that it is for, and stays behind on a redirect to another one."""

    def __init__(
        self, home: str, environment: Mapping[str, str], token: Optional[str] = None, stall_s: float = STALL_S
    ) -> None:
        """`home` is the URL of the server that the token is for."""
        self._home = origin(home)
        self._token = token
        self._stall_s = stall_s
        lower = {key.lower(): value for key, value in sorted(environment.items())}
        self._proxies = {key[:-6]: value for key, value in lower.items() if key.endswith("_proxy") and value}
        authority = next((environment[name] for name in _AUTHORITIES if environment.get(name)), None)
        self._authority = authority
        self._context: Optional[ssl.SSLContext] = None

    def open(self, url: str, headers: Optional[Mapping[str, str]] = None) -> http.client.HTTPResponse:
        """Return the answer to a GET, redirects followed; the caller closes it.

        Raises Answered, Cut, Distrusted.
        """
        at = url
        for _ in range(REDIRECTS):
            answer = self._ask(at, dict(headers or {}))
            if not isinstance(answer, str):
                return answer
            if urlsplit(at).scheme == "https" and urlsplit(answer).scheme != "https":
                raise Distrusted(f"{shown(at)} leads from https to {shown(answer)}")
            at = answer
        raise Distrusted(f"{shown(url)} leads through more than {REDIRECTS} redirects")

    def read(self, url: str, limit: int) -> tuple[bytes, Message]:
        """Return a whole answer of at most `limit` bytes, and its headers.

        Raises as `open`; Distrusted for a longer one.
        """
        with self.open(url) as answer:
            try:
                data = answer.read(limit + 1)
            except (OSError, http.client.HTTPException) as error:
                raise Cut(f"{shown(url)}: {_said(error)}") from None
            wanted = answer.headers.get("Content-Length", "")
            if wanted.isdecimal() and len(data) < min(int(wanted), limit):
                raise Cut(f"{shown(url)}: the connection was cut after {len(data)} of {wanted} bytes")
            if len(data) > limit:
                raise Distrusted(f"{shown(url)} answers more than {limit} bytes")
            return data, answer.headers

    def _ask(self, url: str, headers: dict[str, str]) -> Union[http.client.HTTPResponse, str]:
        """Return an answer, or the URL that it leads to."""
        try:
            known = origin(url)[0] in PORTS
        except ValueError as error:
            raise Distrusted(f"a redirect leads to no URL of the web: {error}") from None
        if not known:
            raise Distrusted(f"{shown(url)} is no URL of the web")
        headers.setdefault("User-Agent", "k3env")
        headers.setdefault("Accept-Encoding", "identity")
        if self._token and origin(url) == self._home:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the scheme was looked at
        try:
            return cast(http.client.HTTPResponse, self._opener(url).open(request, timeout=self._stall_s))
        except urllib.error.HTTPError as error:
            with error:
                place = error.headers.get("Location")
                if error.code in _REDIRECTIONS and place:
                    return joined(url, place)
                raise Answered(url, error.code, error.headers, _body(error), origin(url) != self._home) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise Distrusted(f"{shown(url)}: {reason.verify_message}", self._advice(reason.verify_code)) from None
            if isinstance(error, (ValueError, http.client.InvalidURL)) and not isinstance(error, OSError):
                raise Distrusted(f"{shown(url)} is, or leads to, no URL of the web: {_said(reason)}") from None
            raise Cut(f"{shown(url)}: {_said(reason)}") from None

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        host = urlsplit(url).hostname or ""
        bypass = urllib.request.proxy_bypass_environment(host, self._proxies)  # type: ignore[attr-defined]
        proxies = {} if bypass else {name: place for name, place in self._proxies.items() if name != "no"}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler(proxies), _Still()]
        if url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=self._authorities()))
        return urllib.request.build_opener(*handlers)

    def _authorities(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._authority)
            except (OSError, ssl.SSLError) as error:
                raise Distrusted(
                    f"{self._authority} holds no certificates: {_said(error)}",
                    "see the file that ca of the variable egress, or SSL_CERT_FILE, names: it must be here, and PEM",
                ) from None
        return self._context

    def _advice(self, code: int) -> str:
        """Return what to do about a certificate. Source: the codes of X509_verify_cert_error_string(3)."""
        if code in _OTHER_NAME:
            return "name the server as its certificate does, or see who answers there: no ca makes it another's"
        if code in _OTHER_TIME:
            return "see this node's clock, then have the server's certificate renewed"
        if self._authority is None:
            return "let ca of the variable egress, or SSL_CERT_FILE, name a PEM file with its authority and all others"
        return f"add its authority's certificate to {self._authority}"


class _Still(urllib.request.HTTPRedirectHandler):
    """Leaves redirects alone: urllib would take the token along, and never close an answer that leads nowhere."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(EXPLAINED_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""


def _said(error: Any) -> str:
    if isinstance(error, TimeoutError) or "timed out" in str(error):
        return "no answer in time"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
