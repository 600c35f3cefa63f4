"""Type a command as a person does, in a process of its own, and read its document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from k3env.reports.document import schema


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Its JSON document, which is all that stands on stdout, and fits the schema."""
        value = json.loads(self.out)
        jsonschema.validate(value, schema())
        assert value["exit_code"] == self.code
        return value

    def changes(self) -> dict[str, list[str]]:
        """Host to the names of its changes, hosts without any left out."""
        found = {
            name: [change["what"] for task in host["tasks"] for change in task["changes"]]
            for name, host in self.document["hosts"].items()
        }
        return {name: names for name, names in found.items() if names}

    def statuses(self) -> dict[str, str]:
        """Host to status."""
        return {name: host["status"] for name, host in self.document["hosts"].items()}

    def findings(self, host: str, status: str = "fail") -> list[dict[str, Any]]:
        """The findings of a host that have a status."""
        tasks = self.document["hosts"][host]["tasks"]
        return [item for task in tasks for item in task["findings"] if item["status"] == status]


@dataclass(frozen=True)
class Site:
    """A user with a home of their own."""

    state: Path

    @property
    def rack(self) -> Path:
        """The sandbox's root."""
        return self.state / "k3env" / "sandbox"

    @property
    def checkout(self) -> Path:
        """The shared checkout."""
        return self.rack / "shared" / "TensorRT-LLM"

    @property
    def venv(self) -> Path:
        """The checkout's virtual environment."""
        (found,) = self.checkout.glob(".venv-*")
        return found

    def environment(self) -> dict[str, str]:
        """What the command's process inherits."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("K3ENV_", "SSH_"))}
        return {**kept, "XDG_STATE_HOME": str(self.state)}

    def argv(self, *arguments: str) -> list[str]:
        """Return a command line."""
        return [sys.executable, "-m", "k3env.cli", *arguments]

    def k3env(self, *arguments: str, timeout_s: float = 240) -> Said:
        """Run a command to its end."""
        done = subprocess.run(
            self.argv(*arguments), capture_output=True, text=True, timeout=timeout_s, env=self.environment()
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def provision(self, *arguments: str, hosts: str = "sandbox") -> Said:
        """Run the main job for its document."""
        return self.k3env("provision", "--hosts", hosts, "--output", "json", *arguments)


def tasks_with(said: Said, host: str, statuses: Iterable[str]) -> list[str]:
    """Return the modules of a host's tasks that have one of these statuses."""
    return [task["module"] for task in said.document["hosts"][host]["tasks"] if task["status"] in statuses]
