"""A machine of files in an overlay and programs in a bin of its own: what it says is written down in a test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from k3env.node.machine import Machine

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


class Node:
    """A node below a directory."""

    def __init__(self, directory: Path, **files: str) -> None:
        self.directory = directory
        self.overlay = directory / "overlay"
        self.bin = directory / "bin"
        for path in (self.overlay, self.bin):
            path.mkdir()
        self.environment: dict[str, str] = {}

    def machine(self, path: str = SYSTEM) -> Machine:
        """Return the machine, with these programs behind its own in PATH."""
        machine = Machine(overlay=str(self.overlay), environment={"PATH": f"{self.bin}:{path}", **self.environment})
        for name in [
            name
            for name in machine.environment
            if name.startswith(("SLURM_", "ENROOT_", "HF_", "XDG_")) or name.lower().endswith("_proxy")
        ]:
            if name not in self.environment:
                del machine.environment[name]
        return machine

    def file(self, path: str, content: str | bytes = "") -> str:
        """Write a file of the overlay, and return its path as the node has it."""
        place = self.overlay / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def program(self, name: str, body: str) -> None:
        """Write a program in shell."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def says(self, name: str, stdout: str = "", stderr: str = "", exit_code: int = 0) -> None:
        """Write a program that says this, whatever it is asked."""
        texts = {"out": stdout, "err": stderr}
        for stream, text in texts.items():
            (self.directory / f"{name}.{stream}").write_text(text, encoding="utf-8")
        out, err = (self.directory / f"{name}.{stream}" for stream in texts)
        self.program(name, f"cat '{out}'; cat '{err}' >&2; exit {exit_code}")


def known(value: Any) -> Any:
    """Return a value that could be read; show why if it could not."""
    assert type(value).__name__ != "Unreadable", value
    return value


def is_root() -> bool:
    """Return whether the tests run as root."""
    return os.geteuid() == 0
