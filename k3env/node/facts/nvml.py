"""NVML by ctypes, for nodes and containers without nvidia-smi. Its answers are put into nvidia-smi's words.

Source: nvml.h. The functions used here are the same in every driver since 418, or are looked for before they are
called; a struct is laid out as nvml.h has it, its version word is its size with its version in the highest byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

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
_CELLS = {3: "[N/A]", 4: "[Insufficient Permissions]", 15: "[GPU is lost]", 16: "[GPU requires reset]"}
_NO_FUNCTION, _UNKNOWN = 13, "[Unknown Error]"
_NO_SUCH_FIELD = "this driver has no such field"
_NAME_BYTES = 96
_RECOVERY_FIELD = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_LINKS = 36  # NVML_NVLINK_MAX_LINKS of R615, more than any GPU has
_PROCESSES = 256

_SWITCH = {0: "Disabled", 1: "Enabled"}
_ANSWER = {0: "No", 1: "Yes"}
_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_RECOVERY = {
    0: "None",
    1: "GPU Reset",
    2: "Node Reboot",
    3: "Drain P2P",
    4: "Drain and Reset",
    5: "Recover IMEX Domain",
    6: "Bus Reset",
    7: "System Reboot",
}
_STATES = {0: "Not Supported", 1: "Not Started", 2: "In Progress", 3: "Completed"}
_SUMMARIES = {0: "N/A", 1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"}
# The fields of a health mask: two bits each, 1 is the bad answer and 2 the good one, so 0xAA is healthy.
_TRUTHS = {0: "N/A", 1: "True", 2: "False"}
_BANDWIDTHS = {0: "N/A", 1: "Degraded", 2: "Full"}
_CONFIGURATIONS = {
    0: "N/A",
    1: "None",
    2: "Incorrect SysGUID",
    3: "Incorrect Chassis Serial Number",
    4: "No Partition",
    5: "Insufficient NVLinks",
    6: "Incompatible GPU Firmware",
    7: "Invalid Location",
    8: "Invalid GPU State",
}


class Failed(Exception):
    """NVML refused a call."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}: {_MEANINGS.get(code, 'see nvmlReturn_t in nvml.h')}")
        self.code = code


class Device:
    """One GPU of an open library."""

    def __init__(self, library: CDLL, handle: Any) -> None:
        self._library = library
        self._handle = handle

    def ask(self, call: str, *arguments: Any) -> int:
        """Call a function with this GPU's handle, and return its code."""
        function = getattr(self._library, call, None)
        return _NO_FUNCTION if function is None else int(function(self._handle, *arguments))

    def cell(self, call: str, out: Any, shown: Callable[[Any], str], *before: Any) -> str:
        """Return what a call put into `out`, or how nvidia-smi would say that there is nothing."""
        import ctypes

        code = self.ask(call, *before, ctypes.byref(out))
        return shown(out) if code == 0 else refusal(code)


def refusal(code: int) -> str:
    """Return the cell that nvidia-smi prints for a code."""
    return _NO_SUCH_FIELD if code == _NO_FUNCTION else _CELLS.get(code, _UNKNOWN)


def rows(read: Callable[[Device], dict[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """Return bus id and cells of the GPUs that this process may use; one that can't be opened is left out.

    Raises OSError if the library can't be loaded, and Failed if NVML can't be asked.
    """
    import ctypes

    library = ctypes.CDLL(LIBRARY)
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return _each(library, count.value, read)
    finally:
        library.nvmlShutdown()


def _each(library: CDLL, count: int, read: Callable[[Device], dict[str, str]]) -> list[tuple[str, dict[str, str]]]:
    import ctypes

    found, refused = [], None
    for index in range(count):
        handle = ctypes.c_void_p()
        try:
            _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            device = Device(library, handle)
            found.append((_bus_id(device), read(device)))
        except Failed as error:
            refused = error
    if refused is not None and not found:
        raise refused
    return found


def identity(device: Device) -> dict[str, str]:
    """Return what a GPU is."""
    import ctypes

    name, major, minor = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int(), ctypes.c_int()
    code = device.ask("nvmlDeviceGetCudaComputeCapability", ctypes.byref(major), ctypes.byref(minor))
    named = device.ask("nvmlDeviceGetName", name, ctypes.c_uint(_NAME_BYTES))
    return {
        "compute_cap": refusal(code) if code else f"{major.value}.{minor.value}",
        "memory.total": device.cell("nvmlDeviceGetMemoryInfo", _memory(1), lambda out: f"{out.total >> 20} MiB"),
        "name": refusal(named) if named else name.value.decode("utf-8", "replace"),
    }


def health(device: Device) -> dict[str, str]:
    """Return how a GPU is, and how it is set."""
    import ctypes

    def number(call: str, shown: Callable[[int], str], *before: Any, kind: Any = ctypes.c_uint) -> str:
        return device.cell(call, kind(), lambda out: shown(out.value), *before)

    throttle = number("nvmlDeviceGetCurrentClocksEventReasons", lambda bits: f"{bits:#018x}", kind=ctypes.c_ulonglong)
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    code = device.ask("nvmlDeviceGetMigMode", ctypes.byref(mode), ctypes.byref(pending))
    watts = "{:.2f} W".format
    return {
        "gpu_recovery_action": _recovery(device),
        **_remapped(device),
        "ecc.errors.uncorrected.volatile.total": number(
            "nvmlDeviceGetTotalEccErrors", str, ctypes.c_int(1), ctypes.c_int(0), kind=ctypes.c_ulonglong
        ),
        "mig.mode.current": refusal(code) if code else _SWITCH.get(mode.value, _UNKNOWN),
        "compute_mode": number("nvmlDeviceGetComputeMode", lambda found: _MODES.get(found, _UNKNOWN)),
        # The first version counts what the driver itself has reserved as used.
        "memory.used": device.cell("nvmlDeviceGetMemoryInfo_v2", _memory(2), lambda out: f"{out.used >> 20} MiB"),
        "persistence_mode": number("nvmlDeviceGetPersistenceMode", lambda found: _SWITCH.get(found, _UNKNOWN)),
        "clocks_event_reasons.active": throttle,
        "power.limit": number("nvmlDeviceGetPowerManagementLimit", lambda found: watts(found / 1000)),
        "power.default_limit": number("nvmlDeviceGetPowerManagementDefaultLimit", lambda found: watts(found / 1000)),
    }


def repairs(device: Device) -> dict[str, str]:
    """Return what of a GPU waits for a repair; this one call does not know of unrepairable memory."""
    import ctypes

    class Repair(ctypes.Structure):  # nvmlRepairStatus_v1_t
        _fields_ = [(name, ctypes.c_uint) for name in ("version", "channel", "tpc")]

    out = Repair(version=ctypes.sizeof(Repair) | 1 << 24)
    code = device.ask("nvmlDeviceGetRepairStatus", ctypes.byref(out))
    return {
        "Channel Repair Pending": refusal(code) if code else _ANSWER.get(out.channel, _UNKNOWN),
        "TPC Repair Pending": refusal(code) if code else _ANSWER.get(out.tpc, _UNKNOWN),
    }


def fabric(device: Device) -> dict[str, str]:
    """Return a GPU's place in the NVLink fabric: version 3 of its struct, else version 2, which has no summary."""
    import ctypes

    common: list[tuple[str, Any]] = [
        ("version", ctypes.c_uint),
        ("uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("mask", ctypes.c_uint),
    ]

    class Second(ctypes.Structure):  # nvmlGpuFabricInfo_v2_t
        _fields_ = common

    class Third(ctypes.Structure):  # nvmlGpuFabricInfo_v3_t
        _fields_ = [*common, ("summary", ctypes.c_ubyte)]

    code = _NO_FUNCTION
    for number, kind in ((3, Third), (2, Second)):
        out: Any = kind(version=ctypes.sizeof(kind) | number << 24)
        code = device.ask("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(out))
        if code == 0:
            return _fabric(out)
    said = refusal(code)
    return {f"fabric.{name}": said for name in ("state", "status", "cliqueId", "clusterUuid")}


def links(device: Device) -> dict[str, str]:
    """Return a GPU's NVLinks by number: "up" or "<inactive>"; those that it lacks are left out."""
    import ctypes

    found = {}
    for link in range(_LINKS):
        on = ctypes.c_uint()
        code = device.ask("nvmlDeviceGetNvLinkState", ctypes.c_uint(link), ctypes.byref(on))
        if code == 0:
            found[str(link)] = "up" if on.value else "<inactive>"
        elif code not in (2, 3):  # no such link, not supported
            found[str(link)] = refusal(code)
    return found


def processes(device: Device) -> dict[str, str]:
    """Return the compute processes on a GPU: their memory by pid."""
    import ctypes

    class Process(ctypes.Structure):  # nvmlProcessInfo_t
        _fields_ = [
            ("pid", ctypes.c_uint),
            ("memory", ctypes.c_ulonglong),
            ("gpu_instance", ctypes.c_uint),
            ("compute_instance", ctypes.c_uint),
        ]

    count, found = ctypes.c_uint(_PROCESSES), (Process * _PROCESSES)()
    code = device.ask("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), found)
    if code:
        raise Failed("nvmlDeviceGetComputeRunningProcesses_v3", code)
    return {str(item.pid): f"{item.memory >> 20} MiB" for item in found[: count.value]}


def _call(library: CDLL, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise Failed(name, code)


def _bus_id(device: Device) -> str:
    import ctypes

    class Pci(ctypes.Structure):  # nvmlPciInfo_t
        _fields_ = [
            ("busIdLegacy", ctypes.c_char * 16),
            *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")),
            ("busId", ctypes.c_char * 32),
        ]

    pci = Pci()
    code = device.ask("nvmlDeviceGetPciInfo_v3", ctypes.byref(pci))
    if code:
        raise Failed("nvmlDeviceGetPciInfo_v3", code)
    return bytes(pci.busId).decode("ascii", "replace")


def _memory(version: int) -> Any:
    import ctypes

    sizes = ("total", "free", "used") if version == 1 else ("total", "reserved", "free", "used")

    class Memory(ctypes.Structure):  # nvmlMemory_t, nvmlMemory_v2_t
        _fields_ = [
            *([("version", ctypes.c_uint)] if version > 1 else []),
            *((name, ctypes.c_ulonglong) for name in sizes),
        ]

    return Memory() if version == 1 else Memory(version=ctypes.sizeof(Memory) | version << 24)


def _recovery(device: Device) -> str:
    import ctypes

    class Field(ctypes.Structure):  # nvmlFieldValue_t
        _fields_ = [
            *((name, ctypes.c_uint) for name in ("id", "scope")),
            *((name, ctypes.c_longlong) for name in ("timestamp", "latency")),
            *((name, ctypes.c_uint) for name in ("type", "code")),
            ("value", ctypes.c_uint),
            ("rest", ctypes.c_uint),
        ]

    field = Field(id=_RECOVERY_FIELD)
    code = device.ask("nvmlDeviceGetFieldValues", ctypes.c_int(1), ctypes.byref(field)) or field.code
    return refusal(code) if code else _RECOVERY.get(field.value, f"action {field.value}")


def _remapped(device: Device) -> dict[str, str]:
    import ctypes

    numbers = [ctypes.c_uint() for _ in range(4)]  # correctable, uncorrectable, pending, failure
    code = device.ask("nvmlDeviceGetRemappedRows", *map(ctypes.byref, numbers))
    found = [refusal(code) if code else _ANSWER.get(number.value, _UNKNOWN) for number in numbers]
    return {"remapped_rows.pending": found[2], "remapped_rows.failure": found[3]}


def _fabric(out: Any) -> dict[str, str]:
    import uuid

    def part(shift: int, words: dict[int, str], bits: int = 2) -> str:
        return words.get(out.mask >> shift & (1 << bits) - 1, _UNKNOWN)

    summary: Optional[int] = getattr(out, "summary", None)
    return {
        "fabric.state": _STATES.get(out.state, _UNKNOWN),
        "fabric.status": "Success" if out.status == 0 else _MEANINGS.get(out.status, f"NVML code {out.status}"),
        "fabric.cliqueId": str(out.clique),
        "fabric.clusterUuid": str(uuid.UUID(bytes=bytes(out.uuid))),
        "fabric.health.summary": "N/A" if summary is None else _SUMMARIES.get(summary, _UNKNOWN),
        "fabric.health.bandwidth": part(0, _BANDWIDTHS),
        "fabric.health.route_recovery_in_progress": part(2, _TRUTHS),
        "fabric.health.route_unhealthy": part(4, _TRUTHS),
        "fabric.health.access_timeout_recovery": part(6, _TRUTHS),
        "fabric.health.incorrect_configuration": part(8, _CONFIGURATIONS, 4),
    }
