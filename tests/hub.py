"""A hub like Hugging Face's on loopback: its shapes, its two hosts, and faults that are switched on by request."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REVISION = "9f62e4e9fffbd0a83ddd60e1c209d828994b3569"
SIGNATURE = "signed-for-you-alone"
PAGE = 3
"""Files on a page of a tree."""


@dataclass(frozen=True)
class Request:
    """What was asked."""

    host: str
    """hub or cdn."""
    path: str
    range: str | None
    authorization: str | None


@dataclass
class Fault:
    """What goes wrong with a request: once, or `times` times."""

    times: int = 1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_after: int | None = None
    """Bytes of the content that are still sent."""
    stall_after: int | None = None
    change: Callable[[bytes], bytes] | None = None
    location: str = ""
    ignore_range: bool = False


class Hub:
    """Serve repositories: "models/OWNER/NAME" to path to content. Use as a context manager."""

    def __init__(self, repositories: dict[str, dict[str, bytes]], tls: Path | None = None) -> None:
        """`tls` is a directory for an authority, whose certificate is then at `authority`."""
        self.repositories = repositories
        self.revisions: dict[str, str] = {}
        self.token: str | None = None
        """Who has none is answered 401."""
        self.requests: list[Request] = []
        self.faults: dict[str, Fault] = {}
        """By a part of the URL's path; "cdn:PART" for the second host."""
        self.tree: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda entries: entries
        self.released = threading.Event()
        self._lock = threading.Lock()
        self.authority = None if tls is None else _certificate(tls)
        self._servers = {name: _server(self, name, tls) for name in ("hub", "cdn")}
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            for server in self._servers.values()
        ]

    def url(self, name: str = "hub") -> str:
        """Where the hub, or its second host, is."""
        scheme = "http" if self.authority is None else "https"
        return f"{scheme}://127.0.0.1:{self._servers[name].server_address[1]}"

    def asked(self, part: str, host: str = "") -> list[Request]:
        """The requests whose path has a part."""
        return [item for item in self.requests if part in item.path and host in item.host]

    def fault(self, host: str, path: str) -> Fault | None:
        """What goes wrong with a request now."""
        with self._lock:
            for part, fault in self.faults.items():
                where, _, wanted = part.rpartition(":")
                if (where or "hub") == host and wanted in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def __enter__(self) -> Hub:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.released.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()


def git_blob(content: bytes) -> str:
    """Return git's name of a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def is_lfs(path: str) -> bool:
    """Return whether a file is kept by Git LFS."""
    return path.endswith((".safetensors", ".model", ".parquet"))


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    name: str

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        said = Request(self.name, self.path, self.headers["Range"], self.headers["Authorization"])
        self.hub.requests.append(said)
        fault = self.hub.fault(self.name, at.path)
        if fault is not None and (fault.status or fault.location):
            headers = {**fault.headers, **({"Location": fault.location} if fault.location else {})}
            return self._answer(fault.status or 302, fault.body, headers)
        if self.name == "cdn":
            return self._content(at.path.lstrip("/"), at.query, fault)
        if self.hub.token is not None and said.authorization != f"Bearer {self.hub.token}":
            return self._answer(401, b"Invalid username or password.", {"X-Error-Code": "RepoNotFound"})
        for pattern, serve in ((r"/api/(\w+)/([^/]+/[^/]+)/(revision|tree)/(\w+)", self._api), (_FILE, self._file)):
            found = re.fullmatch(pattern, at.path)
            if found:
                return serve(at.query, fault, *found.groups())
        return self._answer(404, b"")

    def _api(self, query: str, fault: Fault | None, kind: str, id: str, what: str, revision: str) -> None:
        name = f"{kind}/{id}"
        if name not in self.hub.repositories:
            return self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        known = self.hub.revisions.get(name, REVISION)
        if revision != known:
            return self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if what == "revision":
            return self._json({"id": id, "sha": known}, fault)
        entries = self.hub.tree(_tree(self.hub.repositories[name]))
        begin = int(parse_qs(query).get("cursor", ["0"])[0])
        link = f'<{self.hub.url()}{urlsplit(self.path).path}?recursive=true&cursor={begin + PAGE}>; rel="next"'
        headers = {"Link": link} if begin + PAGE < len(entries) else {}
        return self._json(entries[begin : begin + PAGE], fault, headers)

    def _file(self, query: str, fault: Fault | None, dataset: str | None, id: str, revision: str, path: str) -> None:
        name = f"{'datasets' if dataset else 'models'}/{id}"
        content = self.hub.repositories[name].get(unquote(path))
        if content is None:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        if is_lfs(path):
            return self._answer(302, b"", {"Location": f"{self.hub.url('cdn')}/{name}/{path}?X-Sign={SIGNATURE}"})
        return self._part(content, fault)

    def _content(self, path: str, query: str, fault: Fault | None) -> None:
        if SIGNATURE not in query:
            return self._answer(403, b"no signature")
        kind, owner, name, file = path.split("/", 3)
        return self._part(self.hub.repositories[f"{kind}/{owner}/{name}"][unquote(file)], fault)

    def _part(self, content: bytes, fault: Fault | None) -> None:
        if fault is not None and fault.change is not None:
            content = fault.change(content)
        begin, status, headers = 0, 200, {}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        if asked and not (fault is not None and fault.ignore_range):
            begin = int(asked[1])
            if begin >= len(content):
                return self._answer(416, b"")
            status, headers = 206, {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
        return self._answer(status, content[begin:], headers, fault)

    def _json(self, value: Any, fault: Fault | None, headers: dict[str, str] | None = None) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}, fault)

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, fault: Fault | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if fault is not None and fault.stall_after is not None:
            self.wfile.write(body[: fault.stall_after])
            self.wfile.flush()
            self.hub.released.wait(30)
        elif fault is not None and fault.cut_after is not None:
            self.wfile.write(body[: fault.cut_after])
        else:
            self.wfile.write(body)


_FILE = r"/(datasets/)?([^/]+/[^/]+)/resolve/(\w+)/(.+)"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


def _server(hub: Hub, name: str, tls: Path | None) -> _Server:
    handler = type("Handler", (_Handler,), {"hub": hub, "name": name})
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "hub.pem", tls / "hub.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _tree(files: dict[str, bytes]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for directory in sorted({path.rpartition("/")[0] for path in files} - {""}):
        entries.append({"type": "directory", "path": directory, "size": 0, "oid": "0" * 40})
    for path, content in files.items():
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_blob(content)}
        if is_lfs(path):
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        entries.append(entry)
    return entries


def _certificate(directory: Path) -> Path:
    """Make an authority, and a certificate by it of 127.0.0.1 alone; return the authority's."""
    authority(directory / "ca")
    certified(directory, "hub", "IP:127.0.0.1")
    return directory / "ca.pem"


def authority(path: Path) -> None:
    """Make an authority: PATH.pem and PATH.key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={path.name} of tests",
         "-addext", "keyUsage=critical,keyCertSign", "-keyout", f"{path}.key", "-out", f"{path}.pem"],
        check=True, capture_output=True,
    )  # fmt: skip


def certified(directory: Path, name: str, alternative: str, days: int = 2) -> None:
    """Make NAME.pem and NAME.key for this alternative name, signed by `ca` of the same directory."""
    (directory / "extensions").write_text(f"subjectAltName={alternative}\n")
    ask = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key"]
    sign = ["openssl", "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
    for words in ([*ask, "-out", f"{name}.csr"],
                  [*sign, "-days", str(days), "-extfile", "extensions", "-out", f"{name}.pem"]):  # fmt: skip
        subprocess.run(words, check=True, capture_output=True, cwd=directory)


def wait_for(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait until something is so."""
    ends = time.monotonic() + seconds
    while not true() and time.monotonic() < ends:
        time.sleep(0.02)
    return true()
