"""What NVLink and IMEX must be for Kimi K3: its checks, which other files hold."""

from __future__ import annotations

from k3env.node.checks._fabric import health, links_up, manager, one_domain, state
from k3env.node.checks._imex import imex_channel, imex_daemon, imex_domain, imex_peers, imex_version

__all__ = [
    "health",
    "imex_channel",
    "imex_daemon",
    "imex_domain",
    "imex_peers",
    "imex_version",
    "links_up",
    "manager",
    "one_domain",
    "state",
]
