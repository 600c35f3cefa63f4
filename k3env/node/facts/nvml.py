"""NVML by ctypes, for nodes and containers without nvidia-smi.

Source: nvml.h. The functions used here are the same in every driver since 418; a struct is laid out as nvml.h has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ctypes import CDLL

LIBRARY = "libnvidia-ml.so.1"

# nvmlReturn_t, as far as a message is better than a number.
_MEANINGS = {
    3: "not supported",
    4: "no permission",
    9: "the NVIDIA driver is not loaded, or its device nodes are missing",
    12: "a library is missing",
    15: "the GPU is lost; reboot the node",
    16: "the GPU needs a reset",
    17: "the operating system or a cgroup blocks the GPU",
    18: "driver and library differ in version; reboot, or reload the module",
    999: "unknown error",
}
_NAME_BYTES = 96


@dataclass(frozen=True)
class Device:
    """One GPU; None where NVML has no such value for it."""

    bus_id: str
    name: Optional[str]
    capability: Optional[tuple[int, int]]
    memory_mib: Optional[int]


class Failed(Exception):
    """NVML refused a call."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}: {_MEANINGS.get(code, 'see nvmlReturn_t in nvml.h')}")


def devices() -> tuple[Device, ...]:
    """Return the GPUs that this process may use.

    Raises OSError if the library can't be loaded, and Failed if NVML can't be asked.
    """
    import ctypes

    library = ctypes.CDLL(LIBRARY)
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return tuple(_device(library, index) for index in range(count.value))
    finally:
        library.nvmlShutdown()


def _call(library: CDLL, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise Failed(name, code)


def _device(library: CDLL, index: int) -> Device:
    import ctypes

    class Pci(ctypes.Structure):  # nvmlPciInfo_t
        _fields_ = [
            ("busIdLegacy", ctypes.c_char * 16),
            *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")),
            ("busId", ctypes.c_char * 32),
        ]

    class Memory(ctypes.Structure):  # nvmlMemory_t
        _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

    handle, pci, memory = ctypes.c_void_p(), Pci(), Memory()
    name, major, minor = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int(), ctypes.c_int()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    _call(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))

    def has(call: str, *arguments: Any) -> bool:
        return not getattr(library, call)(handle, *arguments)

    named = has("nvmlDeviceGetName", name, ctypes.c_uint(_NAME_BYTES))
    capable = has("nvmlDeviceGetCudaComputeCapability", ctypes.byref(major), ctypes.byref(minor))
    sized = has("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
    return Device(
        pci.busId.decode("ascii", "replace"),
        name.value.decode("utf-8", "replace") if named else None,
        (major.value, minor.value) if capable else None,
        memory.total >> 20 if sized else None,
    )
