"""The rack: the files of all trays and what they share, and one SSH server per tray in this process.

ROOT/HOST/overlay/proc/driver/nvidia/version    what the agent on the tray reads first
ROOT/HOST/bin/nvidia-smi                        stand-ins, and python3
ROOT/HOST/home, tmp, state                      what the tray itself writes; its caches are in its home
ROOT/shared/TensorRT-LLM                        the checkout that all trays see; provisioning makes it
ROOT/upstream/TensorRT-LLM, flashinfer          the git repositories it comes from
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3env.sandbox import overlay, processes, tools, upstream
from k3env.sandbox.spec import DIED, RESERVED, Spec, parse

if TYPE_CHECKING:
    import paramiko

    from k3env.sandbox.tray import Tray

_FORMAT = 2
"""Of a tray's composed files: a k3env that composes others says so here."""
_RECORD = "tray.json"
_COMPOSED = ("overlay", "bin", "lib")
_OWN = ("home", "tmp", "state")
_HOST_KEY = "ssh_host_ed25519_key"
_PRIVATE = 0o700


@dataclass(frozen=True)
class Endpoint:
    """How to reach a tray, and what it sets below every other source."""

    hostname: str
    port: int
    user: str
    private_key: str
    """Path of the one key that is accepted, made for this run."""
    host_key: str
    """The tray's public key: "ssh-ed25519 AAAA..."."""
    overlay: str
    """Directory that the agent's Machine looks in first."""
    variables: dict[str, str]


class Rack:
    """Simulated trays on loopback. Use as a context manager, or call `stop`."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = (root or default_root()).expanduser().resolve()
        self._trays: dict[str, Tray] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._keys: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The root of the rack's files; it need not exist yet."""
        return self._root

    def start(self, trays: Mapping[str, Any]) -> dict[str, Endpoint]:
        """Start trays, each a host with its `k3env_sandbox`; those that run already are left as they are.

        A tray's files are composed once, and again when its mapping differs; an edit of them stays.
        Raises InventoryError for a wrong mapping, before anything is made, and UsageError where git is missing.
        """
        specs = {host: parse(host, wanted) for host, wanted in trays.items()}
        with self._locked():
            commits = upstream.make(self._root / "upstream")
            (self._root / "shared").mkdir(exist_ok=True)
            for host, spec in specs.items():
                self._compose(host, spec)
                _key(self._root / host / _HOST_KEY)  # made here, where no other process makes one
        for host, spec in specs.items():
            if host not in self._trays:
                self._start(host, spec, commits)
        return {host: self._endpoints[host] for host in specs}

    def stop(self) -> None:
        """Close the servers and forget the key. What runs on the trays runs on, as on real nodes."""
        for tray in self._trays.values():
            tray.stop()
        self._trays.clear()
        self._endpoints.clear()
        if self._keys is not None:
            self._keys.cleanup()
            self._keys = None

    def reset(self) -> None:
        """Stop, end what runs on the trays, and remove all files of the rack."""
        self.stop()
        if not self._root.is_dir():
            return
        with self._locked():
            for entry in sorted(self._root.iterdir()):
                if entry.is_symlink() or not entry.is_dir():
                    continue
                if (entry / "overlay").is_dir():
                    processes.kill(entry)
                if entry.name in RESERVED or (entry / "overlay").is_dir():
                    _remove(entry)

    def __enter__(self) -> Rack:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _compose(self, host: str, spec: Spec) -> None:
        tray = self._root / host
        record = tray / _RECORD
        wanted = json.loads(json.dumps({"format": _FORMAT, "k3env_sandbox": asdict(spec)}))
        if _read(record) == wanted:
            tools.mend_python(tray)
            return
        tray.mkdir(mode=_PRIVATE, exist_ok=True)
        processes.kill(tray)  # another machine stands there from now on
        with tempfile.TemporaryDirectory(dir=tray, prefix=".new-") as made:
            fresh = Path(made)
            overlay.write(fresh / "overlay", overlay.compose(host, spec))
            tools.write(fresh)
            record.unlink(missing_ok=True)  # what is cut off from here on is composed again
            for name in _COMPOSED:
                if (tray / name).exists():
                    _remove(tray / name)
                (fresh / name).rename(tray / name)
        for name in _OWN:
            (tray / name).mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        (tray / DIED).unlink(missing_ok=True)
        partial = record.with_suffix(".new")
        partial.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
        partial.replace(record)

    def _start(self, host: str, spec: Spec, commits: Mapping[str, tuple[str, ...]]) -> None:
        from k3env.sandbox.tray import Tray

        directory = self._root / host
        host_key = _key(directory / _HOST_KEY)
        if self._keys is None:
            self._keys = tempfile.TemporaryDirectory(prefix="k3env-sandbox-")
        private_key = Path(self._keys.name) / "id_ed25519"
        user = _user()
        tray = Tray(directory, spec.fault, host_key, user, _key(private_key))
        tray.start()
        self._trays[host] = tray
        self._endpoints[host] = Endpoint(
            hostname="127.0.0.1",
            port=tray.port,
            user=user,
            private_key=str(private_key),
            host_key=f"{host_key.get_name()} {host_key.get_base64()}",
            overlay=str(directory / "overlay"),
            variables=self._variables(directory, commits),
        )

    def _variables(self, tray: Path, commits: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        def pinned(name: str) -> str:
            return commits[name][upstream.PINNED[name]]

        return {
            "trtllm_repo": str(self._root / "shared" / upstream.TRTLLM),
            "trtllm_url": (self._root / "upstream" / upstream.TRTLLM).as_uri(),
            "trtllm_commit": pinned(upstream.TRTLLM),
            "flashinfer_url": (self._root / "upstream" / upstream.FLASHINFER).as_uri(),
            "flashinfer_commit": pinned(upstream.FLASHINFER),
            # One path on all nodes, as a site has it, that is each tray's own: all trays share one filesystem here.
            "cache_base": "~/cache",
            "k3env_state_dir": str(tray / "state"),
        }

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes that start or reset this rack waiting."""
        self._root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        with (self._root / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def default_root() -> Path:
    """Return `k3env/sandbox` under the user's state directory, as the XDG base directory document has it."""
    given = os.environ.get("XDG_STATE_HOME", "")
    state = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    return state / "k3env" / "sandbox"


def _key(path: Path) -> paramiko.Ed25519Key:
    """Return the ed25519 key in a file, made where there is none, readable by its owner alone."""
    import paramiko
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not path.exists():
        text = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        partial = path.with_suffix(f".{os.getpid()}")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        partial.rename(path)
    return paramiko.Ed25519Key.from_private_key_file(str(path))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid{os.getuid()}"


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _remove(path: Path) -> None:
    """Remove a directory, also where its owner took rights on it away."""
    for parent, directories, _ in os.walk(path):
        for name in directories:
            directory = Path(parent, name)
            if not directory.is_symlink():
                directory.chmod(directory.stat().st_mode | _PRIVATE)
    shutil.rmtree(path)
