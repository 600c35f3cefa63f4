"""The sandbox: a rack of simulated trays on loopback, reached over real SSH, in this process, without privilege.

Real: SSH, Python, git, venv, pip, the shared checkout, its build, the cache directories.
Composed from public facts, never recorded: /proc, /sys and /dev of a tray, and its nvidia-smi.
"""

from __future__ import annotations

from k3env.sandbox.rack import Endpoint, Rack, default_root

__all__ = ["Endpoint", "Rack", "default_root"]
