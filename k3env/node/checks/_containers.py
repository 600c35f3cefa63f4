"""What containers need of the node, and what a rank needs in its container."""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts import mounts
from k3env.node.facts.containers import WATCHED, Namespaces, Toolkit, namespaces, toolkit
from k3env.node.facts.enroot import Enroot, Place, enroot
from k3env.node.facts.inside import Inside, inside
from k3env.node.facts.rank import Libraries, Library, Programs, Tmp, libraries, programs, tmp
from k3env.node.facts.slurm import NO_SLURM, PYXIS, Pyxis, pyxis
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

GIB = 1 << 30
IN_CONTAINER = "in a container the node's tools can't be seen: run it outside of it"
NO_ENROOT = "no enroot on this node, and no container of enroot's in this play"

DENIED = {
    "1.17.7": "it breaks enroot's hook: NVIDIA/nvidia-container-toolkit issues 1091 and 1093",
}
"""Versions of NVIDIA's container toolkit that do not work here, and why."""

_LEAST = {"user.max_user_namespaces": 2, "user.max_mnt_namespaces": 2, "kernel.unprivileged_userns_clone": 1}
_APPARMOR = WATCHED[3]


@check("system.enroot_userns", namespaces, inside, scope="node", severity="fail")
def enroot_userns(namespaces: Namespaces, inside: Inside, profile: Profile) -> Finding:
    """A user without privileges can make user namespaces, which enroot's containers are."""
    wanted = profile.container.engine == "enroot"
    if namespaces.enroot is None and not wanted:
        return skip(NO_ENROOT)
    if namespaces.enroot is None and inside.container is not None:
        return skip(IN_CONTAINER)
    expected = "enroot, and user namespaces for everybody"
    if namespaces.enroot is None:
        return fail(expected=expected, found="no enroot in PATH", remedy="install enroot and enroot+caps on the node")
    for name, least in _LEAST.items():
        value = namespaces.sysctls.get(name, least)
        if value < least:
            remedy = f"sysctl -w {name}={'1' if least == 1 else '65536'}, and the same in /etc/sysctl.d"
            return fail(expected=expected, found=f"{name} = {value}", remedy=remedy)
    if namespaces.probe == "":
        return passed("unshare -Ur works")
    restricted = namespaces.sysctls.get(_APPARMOR, 0) == 1
    if restricted and not namespaces.profiled:
        return fail(
            expected=expected,
            found=f"{_APPARMOR} = 1, and no profile for enroot",
            remedy="load enroot's AppArmor profile: apparmor_parser -r /etc/apparmor.d/enroot; or sysctl -w"
            f" {_APPARMOR}=0",
        )
    if restricted:
        return passed("AppArmor has a profile for enroot", "unshare has none, and is refused")
    if isinstance(namespaces.probe, Unreadable):
        return unknown(namespaces.probe.reason)
    if namespaces.probe is None:
        return unknown("no unshare or no setpriv to try it with: they are in the package util-linux")
    return fail(expected=expected, found=namespaces.probe, remedy="see what forbids it: dmesg, seccomp, SELinux")


@check("system.enroot_paths", enroot, scope="node", severity="fail", contexts=("hc", "job"))
def enroot_paths(enroot: Enroot, profile: Profile) -> Finding:
    """Enroot's directories can be written to, are on the node itself, and have room for an unpacked image."""
    if not enroot.installed:
        return skip(NO_ENROOT if profile.container.engine != "enroot" else "no enroot: see system.enroot_userns")
    need = profile.system.enroot_free_gib
    places = [place for place in enroot.places if isinstance(place, Place)]
    wrong = [problem for place in places if (problem := _misplaced(place, need)) is not None]
    if wrong:
        where = "in /etc/enroot/enroot.conf: through pyxis exported values have no effect"
        return fail(
            expected=f"writable local directories, {need:g} GiB free for images",
            found="; ".join(wrong),
            remedy=f"set them {where if enroot.by_pyxis else 'in /etc/enroot/enroot.conf, or export them'}",
        )
    silent = [place.reason for place in enroot.places if isinstance(place, Unreadable)]
    odd = [f"{place.path} is on {place.filesystem}" for place in places if place.kind == mounts.UNLISTED]
    if silent or odd:
        return unknown("; ".join((*silent, *odd)))
    return passed(", ".join(place.path for place in places))


@check("system.pyxis", pyxis, inside, scope="static", severity="fail", contexts=("job", "login"))
def pyxis_plugin(pyxis: Pyxis, inside: Inside, profile: Profile) -> Finding:
    """Where images are enroot's, srun has pyxis' --container options."""
    if not pyxis.expected:
        return skip(NO_SLURM)
    expected = "srun --container-image, by pyxis"
    remedy = f"install pyxis, built for this version of Slurm, and put {PYXIS} into plugstack.conf"
    if pyxis.line is not None and pyxis.missing is not None:
        return fail(expected=expected, found=f"plugstack.conf names {pyxis.missing}, which is not there", remedy=remedy)
    if pyxis.offered is True:
        return passed(pyxis.line or "srun --container-image")
    if isinstance(pyxis.offered, Unreadable):
        return unknown(pyxis.offered.reason)
    if pyxis.line is not None:
        return fail(
            expected=expected,
            found=f"plugstack.conf has {pyxis.line}, and srun no --container-image",
            remedy="see srun --help for why it was not loaded; a plugin built for another Slurm is refused",
        )
    if profile.container.engine != "enroot":
        return skip("no container of enroot's in this play, and no pyxis")
    if inside.container is not None:
        return skip(IN_CONTAINER)
    return fail(expected=expected, found="neither in plugstack.conf nor in srun --help", remedy=remedy)


@check("system.toolkit", toolkit, inside, scope="node", severity="fail")
def toolkit_works(toolkit: Toolkit, inside: Inside, profile: Profile) -> Finding:
    """NVIDIA's container toolkit is one that gives containers their GPUs."""
    absent = _absent(toolkit, inside, profile)
    if absent is not None:
        return absent
    for program, version in toolkit.versions.items():
        why = None if isinstance(version, Unreadable) else DENIED.get(_plain(version))
        if why is not None:
            return fail(
                expected=f"a version of {program} other than {', '.join(DENIED)}",
                found=f"{version}: {why}",
                remedy="install nvidia-container-toolkit 1.17.8 or later, and hold it",
            )
    silent = [version.reason for version in toolkit.versions.values() if isinstance(version, Unreadable)]
    if silent:
        return unknown("; ".join(silent))
    cdi = f", CDI: {' '.join(toolkit.cdi)}" if toolkit.cdi else ", no CDI files"
    return passed(_versions(toolkit) + cdi)


@check("system.toolkit_age", toolkit, inside, scope="node", severity="warn", contexts=("hc", "job"))
def toolkit_age(toolkit: Toolkit, inside: Inside, profile: Profile) -> Finding:
    """NVIDIA's container toolkit is one without known ways out of the container."""
    absent = _absent(toolkit, inside, profile)
    if absent is not None:
        return absent if absent.status == "skip" else skip("no toolkit: see system.toolkit")
    least = profile.system.toolkit_min
    known = {name: version for name, version in toolkit.versions.items() if not isinstance(version, Unreadable)}
    old = [f"{name} {version}" for name, version in known.items() if _number(version) < _number(least)]
    if old:
        return fail(
            expected=f"{least} or later",
            found=", ".join(old),
            remedy=f"install nvidia-container-toolkit {least} or later",
        )
    if len(known) < len(toolkit.versions):
        return unknown("not every version could be read: see system.toolkit")
    return passed(_versions(toolkit))


@check("system.container_libs", libraries, scope="rank", severity="fail")
def container_libs(libraries: Libraries, profile: Profile) -> Finding:
    """The driver's libraries can be loaded, and are those of the loaded driver, not of the image."""
    if libraries.driver is None:
        return skip("no driver loaded: see gpu.driver.loaded")
    if isinstance(libraries.found, Unreadable):
        return unknown(libraries.found.reason)
    for library in libraries.found:
        problem = _misfit(library, libraries.driver)
        if problem is not None:
            return problem
    return passed(", ".join(f"{library.name} {library.version or library.path}" for library in libraries.found))


@check("system.container_tools", programs, scope="rank", severity="fail")
def container_tools(programs: Programs, profile: Profile) -> Finding:
    """The programs that trtllm-llmapi-launch calls by name are in PATH."""
    if programs.missing:
        return fail(
            expected="bash, ps, openssl, python3 and python in PATH",
            found=f"no {', no '.join(programs.missing)}",
            remedy="put the virtual environment's bin first into PATH, in the step: pyxis resets it; install procps"
            " and openssl in the image",
        )
    return passed("bash ps openssl python3 python")


@check("system.container_tmp", tmp, scope="rank", severity="warn")
def container_tmp(tmp: Tmp, profile: Profile) -> Finding:
    """A rank can write to /tmp, which is no small piece of memory."""
    need = profile.system.tmp_free_gib
    found = f"{tmp.fstype}, uid {tmp.uid}, mode {tmp.mode:04o}, {tmp.free_bytes / GIB:.1f} GiB free"
    mount = "mount a directory of the node: --container-mounts=/local/$USER:/tmp"
    if not (tmp.mode & 0o002 or tmp.ours in (0, tmp.uid)):
        return fail(expected=f"uid {tmp.ours} may write to /tmp", found=found, remedy=mount)
    if tmp.free_bytes < need * GIB:
        remedy = f"{mount}, or TMPDIR on one" if tmp.fstype == "tmpfs" else "make room in /tmp, or set TMPDIR"
        return fail(expected=f">= {need:g} GiB free in /tmp", found=found, remedy=remedy)
    return passed(found, "it is memory, and gone at the step's end" if tmp.fstype == "tmpfs" else "")


def _misplaced(place: Place, need_gib: float) -> Optional[str]:
    """Return what is wrong with one of enroot's directories. Layers may be cached on a shared filesystem."""
    if place.kind == mounts.NETWORK and place.name != "ENROOT_CACHE_PATH":
        return f"{place.name}={place.path} is on {place.filesystem}"
    if not place.writable:
        return f"{place.name}={place.path}: {place.existing} is not writable"
    if place.name == "ENROOT_DATA_PATH" and place.free_bytes < need_gib * GIB:
        return f"{place.name}={place.path} has {place.free_bytes / GIB:.1f} GiB free"
    return None


def _absent(toolkit: Toolkit, inside: Inside, profile: Profile) -> Optional[Finding]:
    if toolkit.versions:
        return None
    if profile.container.engine == "none":
        return skip("no container toolkit on this node, and no container in this play")
    if inside.container is not None:
        return skip(IN_CONTAINER)
    return fail(
        expected=f"NVIDIA's container toolkit {profile.system.toolkit_min} or later",
        found="neither nvidia-ctk nor nvidia-container-cli in PATH",
        remedy="install nvidia-container-toolkit",
    )


def _misfit(library: Library, driver: str) -> Optional[Finding]:
    expected = f"{library.name} of the loaded driver {driver}"
    if library.path is None:
        empty = f"; empty files: {' '.join(library.empty)}" if library.empty else ""
        return fail(
            expected=expected,
            found=f"{library.reason}{empty}",
            remedy="in a container, have the toolkit put it there: NVIDIA_VISIBLE_DEVICES=all and"
            " NVIDIA_DRIVER_CAPABILITIES=compute,utility; on the node, install the driver's libraries",
        )
    if "/compat/" in library.path:
        return fail(
            expected=expected,
            found=library.path,
            remedy="take the image's cuda/compat out of LD_LIBRARY_PATH and ld.so.conf: it hides the node's driver",
        )
    if library.version not in (None, driver):
        return fail(
            expected=expected,
            found=library.path,
            remedy="recreate the container; on the node, reload the driver's modules or reboot after its upgrade",
        )
    return None


def _versions(toolkit: Toolkit) -> str:
    return ", ".join(f"{program} {version}" for program, version in toolkit.versions.items())


def _plain(version: str) -> str:
    """Return "1.17.7" of "1.17.7-1"."""
    return ".".join(map(str, _number(version)))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].partition("~")[0].split(".")[:3])
