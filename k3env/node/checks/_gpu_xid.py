"""What the kernel's log may tell of the GPUs. The checks are gpu.py's."""

from __future__ import annotations

from typing import Optional

from k3env.k3 import xid
from k3env.node.checks import check, fail, passed
from k3env.node.facts.kernel_log import KernelLog, Line, kernel_log
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile


@check("gpu.xid", kernel_log, scope="node", severity="fail")
def hardware_errors(kernel_log: KernelLog, profile: Profile) -> Finding:
    """The kernel's log tells of no fault of a GPU or NVSwitch since boot, or within a day."""
    return _errors(kernel_log, xid.NODE, "no hardware error in the kernel's log")


@check("gpu.xid_app", kernel_log, scope="node", severity="warn")
def application_errors(kernel_log: KernelLog, profile: Profile) -> Finding:
    """The kernel's log tells of no application that erred on a GPU, and of no error that is not known."""
    return _errors(kernel_log, xid.APPLICATION, "no Xid in the kernel's log")


def _errors(log: KernelLog, whose: str, expected: str) -> Finding:
    found = [line for line in log.lines if _whose(line) == whose]
    if not found:
        return passed("none", f"since boot, or within {log.hours:g} h")
    remedies = dict.fromkeys(action for line in found if (action := _action(line)))
    return fail(
        expected=expected,
        found="; ".join(map(_line, found)),
        remedy=f"{'; '.join(remedies) or 'look it up in the catalog of Xids'};"
        f" it is told until the node reboots, or for {log.hours:g} h",
    )


def _whose(line: Line) -> str:
    return xid.switch(line.text) if line.kind == "SXid" else xid.whose(line.code, line.text)


def _action(line: Line) -> Optional[str]:
    if line.kind == "SXid":
        return "see the Fabric Manager's log; restart it, or reboot the node, if the error is fatal"
    return xid.told(line.code)[1]


def _line(line: Line) -> str:
    """Return "Xid 79 (the GPU has fallen off the bus): 0000:17:00, 3 times"."""
    meaning = line.text if line.kind == "SXid" else xid.told(line.code)[0]
    times = "" if line.count == 1 else f", {line.count} times"
    return f"{line.kind} {line.code} ({meaning}): {line.bus_id}{times}"
