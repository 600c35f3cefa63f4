"""nvidia-smi and its ways, as recorded from driver 580.159.04 and known from public reports.

Its errors stand on standard output, its exit code is NVML's, and 0 does not mean that every GPU was seen. The banner is
never read: driver 610 renamed what stands there.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Callable, Optional, Union

from k3env.node.facts import nvml
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

if TYPE_CHECKING:
    from k3env.node.process import Completed

NVIDIA_SMI = "nvidia-smi"
ANSWER_S = 5.0
"""A driver that has not answered after this many seconds is called unresponsive."""
_MARGIN_S = 0.3  # what a machine keeps of a fact's time
UNRESPONSIVE = "driver unresponsive after"
NO_SUCH_FIELD = "this driver has no such field"

Row = tuple[str, dict[str, str]]
"""A GPU's bus id, and its cells by field."""
Rows = Union[tuple[Row, ...], Unreadable]

NO_DEVICES, BAD_INFOROM = 6, 14
"""Exit codes: none is there; there are, and one has a damaged information ROM."""
_UNKNOWN_FIELD = 2
_CSV = "--format=csv,noheader"
_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_ROW = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7](?:,|\Z)")
_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NO_VALUE = re.compile(
    r"\[?(?:N/A|Not Supported|Unknown Error|GPU requires reset|GPU is lost|Insufficient Permissions|Not Found"
    r"|Requested functionality has been deprecated|ERR!)?\]?\Z",
    re.IGNORECASE,
)


def bus_id(text: str) -> str:
    """Return a PCI address as "00000008:06:00.0"; the kernel writes its domain shorter, nvidia-smi its letters large.

    Raises ValueError for anything else.
    """
    found = _BUS_ID.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no PCI address")
    return f"{int(found.group(1) or '0', 16):08x}:{found.group(2)}"


def table(
    machine: Machine, fields: tuple[str, ...], library: Callable[[nvml.Device], dict[str, str]]
) -> tuple[str, Rows, Evidence]:
    """Return who was asked, the cells of each GPU that this process may use, and where they were read.

    A field that the driver does not know costs only itself. `library` reads the same from NVML, where nvidia-smi is not
    installed.
    """
    if machine.which(NVIDIA_SMI) is not None:
        return (NVIDIA_SMI, *_queried(machine, fields))
    if machine.simulated:
        # The library here would be that of the machine which plays the node.
        return (NVIDIA_SMI, *unreadable(NVIDIA_SMI, "not found"))
    return (nvml.LIBRARY, *_asked(library))


def rows(done: Completed, limit_s: float) -> Union[list[tuple[str, list[str]]], Unreadable]:
    """Return the cells behind each bus id, or why there are none."""
    failed = failure(done, limit_s, (0, NO_DEVICES, BAD_INFOROM))
    if failed is not None:
        return failed
    if done.exit_code == NO_DEVICES:
        return []
    # What is empty at the end of a row is a cell too.
    lines = [line.lstrip() for line in done.text.splitlines() if line.strip()]
    found = [line.split(", ") for line in lines if _ROW.match(line)]
    if lines and not found:
        return Unreadable(f"{NVIDIA_SMI} ended with {done.exit_code}: {lines[0]}", done.evidence())
    return [(bus_id(first.rstrip(",")), cells) for first, *cells in found]


def failure(done: Completed, limit_s: float, fine: tuple[int, ...] = (0,)) -> Optional[Unreadable]:
    """Return why an answer is none, or None: it came in time, with an exit code that is fine, and whole."""
    if done.timed_out or done.exit_code is None:
        return Unreadable(f"{UNRESPONSIVE} {limit_s:.2g} s", done.evidence())
    if done.exit_code not in fine:
        said = next((line.strip() for line in done.text.splitlines() if line.strip()), "")
        said = said or excerpt(done.stderr).partition("\n")[0] or "it says nothing"
        return Unreadable(f"{done.argv[0]} ended with {done.exit_code}: {said}", done.evidence())
    if done.stdout and not done.stdout.endswith(b"\n"):
        return Unreadable(f"the answer of {done.argv[0]} is cut off", done.evidence())
    return None


def ask(machine: Machine, *arguments: str) -> Completed:
    """Run nvidia-smi."""
    return machine.run((NVIDIA_SMI, *arguments), timeout_s=ANSWER_S)


def answer_s(machine: Machine) -> float:
    """Return how long the driver may take for an answer from now on, in seconds: 5, or what is left for this fact."""
    if machine.ends is None:
        return ANSWER_S
    return max(0.0, min(ANSWER_S, machine.ends - time.monotonic() - _MARGIN_S))


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the values of `nvidia-smi -q` by bus id and by path, such as "Fabric/Health/Summary"."""
    found: dict[str, dict[str, str]] = {}
    path: list[tuple[int, str]] = []
    values: Optional[dict[str, str]] = None
    for line in text.splitlines():
        key, colon, value = line.strip().partition(" :")
        indent = len(line) - len(line.lstrip())
        if not key.strip():
            continue
        if indent == 0:
            address = _BUS_ID.fullmatch(key.lower().partition("gpu ")[2].strip())
            values = found.setdefault(bus_id(address.group()), {}) if address else None
            path = []
            continue
        path = [item for item in path if item[0] < indent]
        if not colon:
            path.append((indent, key.strip()))
        elif values is not None:
            values["/".join((*(name for _, name in path), key.strip()))] = value.strip()
            path.append((indent, key.strip()))
    return found


def value(text: Optional[str]) -> Optional[str]:
    """Return what stands in a cell, or None where that is one of the many ways to say nothing."""
    text = (text or "").strip()
    return None if _NO_VALUE.match(text) or text == NO_SUCH_FIELD else text


def mebibytes(text: str) -> Optional[int]:
    """Return the number of "284208 MiB", or None."""
    found = re.fullmatch(r"(\d{1,12})\s*MiB", text.strip())
    return int(found.group(1)) if found else None


def is_not_there(text: Optional[str]) -> bool:
    """Return whether a cell says that the GPU has no such thing, rather than that it could not be read."""
    return (text or "").strip().strip("[]") in ("N/A", "Not Supported")


def unreadable(where: str, why: object, exit_code: Optional[int] = None) -> tuple[Unreadable, Evidence]:
    """Return the two halves of a source that can't be read."""
    source = Evidence(where, exit_code, excerpt(str(why).encode()))
    return Unreadable(f"{where}: {why}", source), source


def _queried(machine: Machine, fields: tuple[str, ...]) -> tuple[Rows, Evidence]:
    known = list(fields)
    while True:
        limit_s = answer_s(machine)
        done = ask(machine, f"--query-gpu={','.join(('pci.bus_id', *known))}", _CSV)
        refused = _FIELD.search(done.text) if done.exit_code == _UNKNOWN_FIELD and not done.timed_out else None
        if refused is None or refused.group(1) not in known:
            break
        known.remove(refused.group(1))
    found = rows(done, limit_s)
    if isinstance(found, Unreadable):
        return found, done.evidence()
    return tuple((address, _cells(fields, known, cells)) for address, cells in found), done.evidence()


def _cells(fields: tuple[str, ...], known: list[str], cells: list[str]) -> dict[str, str]:
    """Return the cells by field; should a name hold a comma one day, it still is one cell."""
    surplus = max(0, len(cells) - len(known)) if "name" in known else 0
    rest, there = list(cells), {}
    for field in known:
        width = 1 + (surplus if field == "name" else 0)
        there[field], rest = ", ".join(rest[:width]), rest[width:]
    return {field: there.get(field, NO_SUCH_FIELD) for field in fields}


def _asked(library: Callable[[nvml.Device], dict[str, str]]) -> tuple[Rows, Evidence]:
    """Ask NVML's library; this may never return, but a fact runs in a child that can be left behind."""
    try:
        found = tuple((bus_id(address), cells) for address, cells in nvml.rows(library))
    except OSError as error:
        return unreadable(nvml.LIBRARY, f"no {NVIDIA_SMI}, and {error}")
    except ImportError as error:
        return unreadable(nvml.LIBRARY, f"no {NVIDIA_SMI}, and this Python can't ask the library itself: {error}")
    except nvml.Failed as error:
        return unreadable(nvml.LIBRARY, error, error.code)
    except ValueError as error:
        return unreadable(nvml.LIBRARY, error)
    shown = "\n".join(f"{address}: {', '.join(cells.values())}" for address, cells in found)
    return found, Evidence(nvml.LIBRARY, None, excerpt(shown.encode()))
