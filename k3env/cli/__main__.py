"""The `k3env` command: the same tasks without a checkout."""

from __future__ import annotations

from invoke.program import Program

from k3env import __version__
from k3env.cli import namespace


def main() -> None:
    """Run a task."""
    Program(name="k3env", namespace=namespace(), version=__version__).run()


if __name__ == "__main__":
    main()
