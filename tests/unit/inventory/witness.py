"""Ansible as a witness: ansible-core from PyPI in an environment of its own, made once and kept in .tools."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[3]
VERSION = "2.19.14" if sys.version_info >= (3, 11) else "2.17.14"
_ORACLE = Path(__file__).with_name("oracle.py")


class Ansible:
    """A running ansible-core that answers questions about inventories."""

    def __init__(self, python: Path, home: Path) -> None:
        (home / "ansible.cfg").touch()
        environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(home / "ansible.cfg"),
            "ANSIBLE_HOME": str(home),
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
        }
        self._log = (home / "ansible.log").open("wb")
        self._process = subprocess.Popen(
            [str(python), str(_ORACLE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )

    def listing(self, sources: Sequence[Path], **options: Any) -> dict[str, str]:
        """Return what ansible-inventory prints for --list, and for --graph --vars."""
        return dict(self._ask("list", sources, **options))

    def values(self, sites: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the variables of each host of each site, a site being its sources and its playbook_dir."""
        return list(self._ask("values", [], sites=sites))

    def patterns(self, sources: Sequence[Path], patterns: Sequence[str]) -> dict[str, list[str] | None]:
        """Return the hosts that each pattern means, None where Ansible refuses it."""
        return dict(self._ask("patterns", sources, patterns=list(patterns)))

    def _ask(self, ask: str, sources: Sequence[Path], **options: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        question = {"ask": ask, "sources": [str(source) for source in sources], **options}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        assert "error" not in said, said["error"]
        return said["answer"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._log.close()


def environment() -> Path:
    """Return the Python of ansible-core's environment, made where it is not there yet."""
    place = TOP / ".tools" / f"ansible-core-{VERSION}-py{sys.version_info[0]}.{sys.version_info[1]}"
    place.parent.mkdir(exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, f"ansible-core=={VERSION}"], check=True)
            (place / "made").touch()
    return place / "bin" / "python"
