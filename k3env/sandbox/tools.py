"""A tray's bin: python3, and stand-ins for the tools of a GPU node. Each says that it is a stand-in."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

_PYTHON = re.compile(r'#!/bin/sh\n# The real one\.\nexec (.+) "\$@"\n')
NOTE = "a stand-in of k3env's sandbox"

# What each prints for --version, in the words of the real ones; the CUDA release is that of driver 580 (13.0).
_NVCC = f"""nvcc: NVIDIA (R) Cuda compiler driver ({NOTE})
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/{NOTE}"""
_CMAKE = f"cmake version 3.31.6 ({NOTE})"
_PATCHELF = f"patchelf 0.18.0 ({NOTE})"
# The fields of `chronyc -c tracking`, in the order of chrony's documentation: reference, its name, stratum, time,
# offset now, last and RMS, frequency, residual, skew, root delay and dispersion, interval, leap status.
_TRACKING = f"7F000001,{NOTE},3,0.0,0.000001,0.000001,0.000002,-1.0,0.0,0.01,0.0002,0.0001,64.0,Normal"

# Each prints a file of the tray's overlay, in the way of the real one; see overlay.py.
_IMEX_CTL = f"""case "$*" in
-q) exec cat "$tools/imex/state";;
"-N -j") exec cat "$tools/imex/domain.json";;
--version) echo "IMEX version ({NOTE})";;
*) echo "nvidia-imex-ctl: {NOTE}: it knows -q and -N -j" >&2; exit 1;;
esac"""
_SYSTEMCTL = f"""[ "$1" = is-active ] || {{ echo "systemctl: {NOTE}: it knows is-active" >&2; exit 1; }}
cat "$tools/units/${{2%.service}}" 2>/dev/null || {{ echo inactive; exit 3; }}"""
_JOURNALCTL = """for argument; do case "$argument" in --grep=*) pattern="${argument#--grep=}";; esac; done
grep -E -e "${pattern:-.}" "$tools/kernel.log" || { echo "-- No entries --"; exit 1; }"""


def base_python() -> Path:
    """Return the interpreter behind this one, never a virtual environment's: a node has one of its own."""
    # The private name is the only one that a venv's interpreter tells its base by.
    base = getattr(sys, "_base_executable", None) or sys.executable
    return Path(os.path.realpath(base))


def write(tray: Path) -> None:
    """Write a tray's `bin` and the code behind it in `lib`."""
    library = tray / "lib"
    library.mkdir(parents=True)
    shutil.copyfile(Path(__file__).parent / "standins" / "nvidia_smi.py", library / "nvidia_smi.py")
    # By its own place, whatever the PATH is.
    smi = 'exec "$tray/bin/python3" -I -S "$tray/lib/nvidia_smi.py" "$tray/overlay" "$@"'
    told = 'tools="${0%/*}/../overlay/tools"\n'
    scripts = {
        "python3": _python(base_python()),
        "nvidia-smi": f'tray="${{0%/*}}/.."\n{smi}',
        "chronyc": f'case "$*" in\n"-n -c tracking") printf "%s\\n" {shlex.quote(_TRACKING)};;\n'
        f'*) printf "%s\\n" {shlex.quote("chronyc: " + NOTE + ": it only tracks")} >&2; exit 1;;\nesac',
        "nvidia-imex-ctl": told + _IMEX_CTL,
        "systemctl": told + _SYSTEMCTL,
        "journalctl": told + _JOURNALCTL,
        "dmesg": f'{told}exec cat "$tools/kernel.log"',
        "nvcc": _says_version("nvcc", _NVCC),
        "cmake": _says_version("cmake", _CMAKE),
        # A build asks it to set run paths; the libraries here have none to set.
        "patchelf": f'case "$1" in --set-rpath|--remove-rpath) exit 0;; esac\n{_says_version("patchelf", _PATCHELF)}',
    }
    (tray / "bin").mkdir(parents=True)
    for name, body in scripts.items():
        _script(tray / "bin" / name, body)


def mend_python(tray: Path) -> None:
    """Point a tray's python3 at this run's base interpreter where the one it named is gone."""
    path = tray / "bin" / "python3"
    if not path.is_file():
        return  # somebody took it away: that is an edit
    ours = _PYTHON.fullmatch(path.read_bytes().decode("utf-8", "replace"))
    with contextlib.suppress(ValueError):  # an edit that isn't shell
        if ours and not Path(*shlex.split(ours[1])).exists():
            _script(path, _python(base_python()))


def _python(interpreter: Path) -> str:
    # A shell script and not a link: Python takes the link's place for its own, and the environment in the shared
    # checkout would hang on this one tray.
    return f'# The real one.\nexec {_quoted(interpreter)} "$@"'


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def _says_version(name: str, text: str) -> str:
    refusal = f"{name}: {NOTE}: it only says its version"
    return f"""case "$1" in
--version|-V) printf '%s\\n' {shlex.quote(text)};;
*) printf '%s\\n' {shlex.quote(refusal)} >&2; exit 1;;
esac"""


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
