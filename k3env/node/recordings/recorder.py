"""The recorder: a machine that writes down what it answers, so that a report becomes a test.

Facts are read in children of their own, so each answer goes to disk at once, as a line of its own; `finish` makes the
recording of them, with everything replaced that tells whose node this is.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from k3env.node.machine import READ_BYTES, Machine, Space
from k3env.node.process import Completed
from k3env.node.recordings.anonymous import Anonymous
from k3env.node.recordings.recorded import COMMANDS, FILES, FORMAT, MACHINE
from k3env.protocol import codec
from k3env.protocol.profile import Profile

SEEN = "seen.jsonl"
FILE_BYTES = 256 << 10
"""What a file adds to a recording at most: indexes of checkpoints have tens of MB."""
_KEPT = ("PATH", "HOME", "USER", "TMPDIR")
_KEPT_PREFIXES: tuple[str, ...] = (
    "SLURM_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "TRITON_",
    "FLASHINFER_",
    "HF_",
    "TORCH",
    "TLLM_",
    "TRTLLM_",
)
_KEPT_PREFIXES += ("KIMI_K3_", "CUTE_DSL_", "DG_", "TILELANG_", "TVM_FFI_", "ENROOT_", "PYXIS_", "PMIX_", "OMPI_")


class Recorder(Machine):
    """This node, each answer of which is written down."""

    def __init__(self, directory: str, machine: Machine) -> None:
        """Record what `machine` answers in an empty directory."""
        super().__init__(overlay=machine.overlay, name=machine.name, cancel=machine.cancel, number=machine.number)
        self.mask, self.environment = machine.mask, machine.environment
        self._directory = directory
        self._seen = os.path.join(directory, SEEN)

    def read(self, path: str, limit: int = READ_BYTES) -> bytes:
        """Read, and keep the beginning."""
        try:
            data = super().read(path, limit)
        except OSError as error:
            self._tell("error", path, error.errno)
            raise
        self._tell("file", path, base64.b64encode(data[:FILE_BYTES]).decode())
        return data

    def list(self, path: str) -> tuple[str, ...]:
        """List, and keep the names."""
        names = super().list(path)
        self._tell("list", path, list(names)[:10_000])
        return names

    def stat(self, path: str, follow: bool = True) -> Optional[os.stat_result]:
        """Look at a path, and keep what is there."""
        found = super().stat(path, follow)
        kept = found and [found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime_ns, found.st_ino]
        self._tell("stat", path if follow else f"{path} (link)", kept)
        return found

    def realpath(self, path: str) -> str:
        """Resolve links, and keep where they led."""
        found = super().realpath(path)
        self._tell("real", path, found)
        return found

    def readlink(self, path: str) -> Optional[str]:
        """Read a link, and keep where it led."""
        found = super().readlink(path)
        self._tell("links", path, found)
        return found

    def try_open(self, path: str) -> None:
        """Open a device, and keep whether that was possible."""
        try:
            super().try_open(path)
        except OSError as error:
            self._tell("opened", path, error.errno)
            raise
        self._tell("opened", path, 0)

    def space(self, path: str) -> Space:
        """Look at what is free, and keep it."""
        found = super().space(path)
        self._tell("space", path, [found.free_bytes, found.free_inodes])
        return found

    def which(self, program: str) -> Optional[str]:
        """Look for a program, and keep where it was."""
        found = super().which(program)
        self._tell("programs", program, found)
        return found

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        cwd: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        stdin: bytes = b"",
        guarded: bool = False,
    ) -> Completed:
        """Run a command, and keep what it said and how long it took."""
        begun = time.monotonic()
        done = super().run(argv, timeout_s=timeout_s, cwd=cwd, environment=environment, stdin=stdin, guarded=guarded)
        kept = {
            "argv": list(done.argv),
            "stdout": done.stdout[-FILE_BYTES:].decode("utf-8", "surrogateescape"),
            "stderr": done.stderr[-FILE_BYTES:].decode("utf-8", "surrogateescape"),
            "exit_code": done.exit_code,
            "delay_s": round(time.monotonic() - begun, 3),
            **({"timed_out": True} if done.timed_out else {}),
        }
        self._tell("command", json.dumps(list(done.argv)), kept)
        return done

    def finish(self, salt: str, profile: Profile, hosts: Sequence[str] = ()) -> dict[str, bytes]:
        """Return the files of the recording by their path in it, all that tells of somebody replaced.

        `hosts` are other names of this node; `salt` is common to those that are recorded together.
        """
        tables, commands, files = self._gathered()
        hidden = Anonymous(salt, [os.uname().nodename, *hosts])
        environment = {key: value for key, value in self.environment.items() if _is_kept(key)}
        about = {
            "format": FORMAT,
            "profile": codec.encode(profile),
            "uid": self.uid(),
            "cpus": self.cpus(),
            "architecture": self.architecture(),
            "page_size": self.page_size(),
            "environment": environment,
            **tables,
        }
        made = {MACHINE: _dumped(hidden.value(about)), COMMANDS: _dumped(hidden.value([*commands]))}
        for path, data in files.items():
            made[FILES + hidden.text(os.path.normpath(path))] = hidden.data(data)
        return made

    def _tell(self, kind: str, key: str, value: Any) -> None:
        line = json.dumps([kind, key, value]).encode() + b"\n"
        descriptor = os.open(self._seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # One write a line: children that read side by side don't mix theirs.
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _gathered(self) -> tuple[dict[str, dict[str, Any]], tuple[Any, ...], dict[str, bytes]]:
        tables: dict[str, dict[str, Any]] = {}
        commands: dict[str, Any] = {}
        files: dict[str, bytes] = {}
        with open(self._seen, "rb") as file:
            for line in file:
                try:
                    kind, key, value = json.loads(line)
                except ValueError:
                    continue  # of a child that was ended in the middle of its line
                if kind == "file":
                    files[key] = base64.b64decode(value)
                elif kind == "command":
                    commands[key] = value
                else:
                    tables.setdefault("errors" if kind == "error" else kind, {})[key] = value
        return tables, tuple(commands.values()), files


def _is_kept(name: str) -> bool:
    return name in _KEPT or name.startswith(_KEPT_PREFIXES)


def _dumped(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
