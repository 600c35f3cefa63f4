"""Xids: what the NVIDIA driver writes into the kernel's log when a GPU errs, and what to do about each.

Source: NVIDIA's Xid catalog (meanings, and the action "immediate" of its table); which of them speak of the node and
which of the application: the catalog's actions too, an application's are those that it answers with a restart of the
application or with nothing. Codes that it calls reserved are left out, and so are those of video and display engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

NODE, APPLICATION, NOTE = "node", "application", "note"
"""Whose fault it is. A note is about another Xid, or says what another value says better."""

_RESET = "drain the node and reset the GPU: nvidia-smi --gpu-reset -i BUS_ID; reboot if that fails"
_REBOOT = "reboot the node; if it comes back, have the GPU replaced"
_REPLACE = "drain the node, and have the GPU replaced"
_LINK = "see the links: nvidia-smi nvlink -s; reset the GPU, and have tray and switches looked at if it comes back"
_APPLICATION = "look into the application that ran"
_WATCH = "keep an eye on it; nothing to do now"


@dataclass(frozen=True)
class Xid:
    """One code."""

    code: int
    meaning: str
    whose: str
    action: str
    fatal_only: bool = False
    """Whether only lines that say Fatal are a fault of the node: NVLink 5 writes of both kinds."""


XIDS = {
    item.code: item
    for item in (
        Xid(11, "invalid or corrupted push buffer stream", APPLICATION, _APPLICATION),
        Xid(13, "graphics engine exception", APPLICATION, _APPLICATION),
        Xid(25, "invalid or illegal push buffer stream", APPLICATION, _APPLICATION),
        Xid(31, "GPU memory page fault", APPLICATION, _APPLICATION),
        Xid(32, "invalid or corrupted push buffer stream", APPLICATION, _APPLICATION),
        Xid(43, "the GPU stopped processing for one application", APPLICATION, _APPLICATION),
        Xid(45, "preemptive cleanup after another error", NOTE, "look at the Xid before it"),
        Xid(46, "the GPU stopped processing", NODE, _RESET),
        Xid(48, "double-bit ECC error", NODE, _RESET),
        Xid(61, "internal micro-controller breakpoint", NODE, _RESET),
        Xid(62, "internal micro-controller halt", NODE, _RESET),
        Xid(63, "a memory row was remapped", NOTE, "see gpu.rowremap: it is in effect after a reset"),
        Xid(64, "a memory row could not be remapped", NODE, _REPLACE),
        Xid(74, "NVLink error", NODE, _LINK),
        Xid(
            79, "the GPU has fallen off the bus", NODE, "power-cycle the node; if it comes back, have the GPU replaced"
        ),
        Xid(92, "high rate of single-bit ECC errors", APPLICATION, _WATCH),
        Xid(94, "contained memory error", APPLICATION, "start the application again"),
        Xid(95, "uncontained memory error", NODE, _RESET),
        Xid(109, "context switch timeout", NODE, _RESET),
        Xid(110, "security fault", NODE, _RESET),
        Xid(119, "the GPU's system processor did not answer", NODE, _RESET),
        Xid(120, "error of the GPU's system processor", NODE, _RESET),
        Xid(121, "corrected error of the C2C link", APPLICATION, _WATCH),
        Xid(136, "link training failed", NODE, _RESET),
        Xid(137, "illegal access to a peer over NVLink", APPLICATION, _APPLICATION),
        Xid(140, "unrecovered ECC error", NODE, _RESET),
        Xid(141, "error of CUDA's fast path", APPLICATION, _WATCH),
        Xid(143, "the GPU could not be initialised", NODE, _RESET),
        Xid(144, "NVLink 5, SAW", NODE, _LINK, fatal_only=True),
        Xid(145, "NVLink 5, RLW", NODE, _LINK, fatal_only=True),
        Xid(146, "NVLink 5, TLW", NODE, _LINK, fatal_only=True),
        Xid(147, "NVLink 5, TREX", NODE, _LINK, fatal_only=True),
        Xid(148, "NVLink 5, NVLPW_CTRL", NODE, _LINK, fatal_only=True),
        Xid(149, "NVLink 5, NETIR", NODE, _LINK, fatal_only=True),
        Xid(150, "NVLink 5, MSE", NODE, _LINK, fatal_only=True),
        Xid(151, "key rotation error", NODE, _REBOOT),
        Xid(154, "the recommended recovery has changed", NOTE, "see gpu.recovery"),
        Xid(155, "NVLink went down on purpose", APPLICATION, "see the links: nvidia-smi nvlink -s"),
        Xid(156, "a resource was retired", APPLICATION, "reset the GPU when the node is free"),
        Xid(157, "a resource could not be retired", NODE, _REPLACE),
        Xid(158, "fatal timeout of the GPU", NODE, _RESET),
        Xid(159, "error on the C2C link, no data lost", APPLICATION, _WATCH),
        Xid(160, "a memory channel was retired", APPLICATION, "see gpu.repair"),
        Xid(161, "a memory channel could not be retired", APPLICATION, "see gpu.repair"),
        Xid(162, "power smoothing is in effect again", NOTE, _WATCH),
        Xid(163, "power smoothing is out of effect", APPLICATION, "see to the GPU's temperature"),
        Xid(164, "power smoothing nears its end of life", APPLICATION, _WATCH),
        Xid(165, "power smoothing has reached its end of life", APPLICATION, _WATCH),
        Xid(167, "fatal timeout on PCIe", NODE, _REBOOT),
        Xid(168, "memory errors in the write-protected region", NODE, "enable ECC, then reboot the node"),
        Xid(169, "internal micro-controller halt", NODE, _RESET),
        Xid(171, "more on Xid 48: it was in DRAM", NOTE, "see Xid 48"),
        Xid(172, "more on Xid 48: it was in SRAM", NOTE, "see Xid 48"),
    )
}


def whose(code: int, text: str) -> str:
    """Return whose fault a line of the kernel's log tells; a code that is not in the table is nobody's for sure.

    `text` is what follows the code. Lines of NVLink 5 say Fatal or Nonfatal behind the part that erred.
    """
    known = XIDS.get(code)
    if known is None:
        return APPLICATION
    if known.fatal_only and not is_fatal(text):
        return APPLICATION
    return known.whose


def switch(text: str) -> str:
    """Return whose fault a line of an NVSwitch tells (SXid), which says it in words: "22013, Non-fatal, Link 62 …"."""
    return NODE if is_fatal(text) else APPLICATION


def told(code: int) -> tuple[str, Optional[str]]:
    """Return what a code means, and what to do about it; None where the table does not know."""
    known = XIDS.get(code)
    return (known.meaning, known.action) if known else ("not in the table", None)


def is_fatal(text: str) -> bool:
    """Return whether a line says Fatal, and not Nonfatal."""
    words = text.lower().replace("non-fatal", "nonfatal").replace(",", " ").split()
    return "fatal" in words
