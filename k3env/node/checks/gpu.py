"""What driver and GPUs must be for Kimi K3: its checks, which other files hold."""

from __future__ import annotations

from k3env.node.checks._driver import (
    driver_loaded,
    driver_mismatch,
    driver_pin,
    driver_version,
    number,
    open_module,
    responsive,
)
from k3env.node.checks._gpu_fit import built_for, compute_capability, count, known_platform
from k3env.node.checks._gpu_health import ecc, power_cap, recovery, repair, row_remap, throttle
from k3env.node.checks._gpu_settings import (
    compute_mode,
    exclusive,
    memory_used,
    mig,
    no_processes,
    persistence,
)
from k3env.node.checks._gpu_xid import application_errors, hardware_errors

__all__ = [
    "application_errors",
    "built_for",
    "compute_capability",
    "compute_mode",
    "count",
    "driver_loaded",
    "driver_mismatch",
    "driver_pin",
    "driver_version",
    "ecc",
    "exclusive",
    "hardware_errors",
    "known_platform",
    "memory_used",
    "mig",
    "no_processes",
    "number",
    "open_module",
    "persistence",
    "power_cap",
    "recovery",
    "repair",
    "responsive",
    "row_remap",
    "throttle",
]
