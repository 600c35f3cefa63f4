"""What containers need of a node: user namespaces, enroot, NVIDIA's toolkit."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Optional, Union

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt
from k3env.protocol.profile import Profile

SYSCTLS = "/proc/sys"
WATCHED = (
    "user.max_user_namespaces",
    "user.max_mnt_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)
PROFILES = "/sys/kernel/security/apparmor/profiles"
PROFILE_FILE = "/etc/apparmor.d/enroot"
CDI = ("/etc/cdi", "/var/run/cdi")
NOBODY = "65534"

_ANSWER_S = 3.0
_UNSHARE = ("unshare", "-Ur", "true")


@dataclass(frozen=True)
class Namespaces:
    """Whether a user without privileges can make a user namespace."""

    enroot: Optional[str]
    """Path of enroot; None: not installed."""
    sysctls: dict[str, int]
    """Those of the watched ones that this kernel has."""
    profiled: bool
    """Whether AppArmor has a profile for enroot, which then may do what others may not."""
    probe: Union[str, Unreadable, None]
    """What `unshare -Ur true` said against it, as that user; empty: it went well; None: there is no unshare."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Toolkit:
    """NVIDIA's container toolkit."""

    versions: dict[str, Union[str, Unreadable]] = field(default_factory=dict)
    """Program to version, "1.17.8"; those that are installed."""
    cdi: tuple[str, ...] = ()
    """Files that describe the GPUs to container engines."""
    source: tuple[Evidence, ...] = ()


@deadline(2 * _ANSWER_S)
def namespaces(machine: Machine, profile: Profile) -> Namespaces:
    """Read what allows user namespaces, and try one. Root could always make one, so it tries as somebody else.

    Nothing is tried where neither this node nor the play has to do with enroot. Source: enroot's doc/requirements.md;
    the AppArmor sysctl is Ubuntu's, since 24.04.
    """
    enroot = machine.which("enroot")
    if enroot is None and profile.container.engine != "enroot":
        return Namespaces(None, {}, False, None)
    sysctls, sources = {}, []
    for name in WATCHED:
        path = f"{SYSCTLS}/{name.replace('.', '/')}"
        try:
            word = machine.text(path, 64).strip()
        except (FileNotFoundError, NotADirectoryError):
            continue
        sysctls[name] = int(word)
        sources.append(Evidence(path, excerpt=word))
    user = profile.user or NOBODY
    drop = ("setpriv", "--reuid", user, "--regid", NOBODY, "--clear-groups") if os.geteuid() == 0 else ()
    probe: Union[str, Unreadable, None] = None
    if machine.which("unshare") is not None and (not drop or machine.which("setpriv") is not None):
        done = machine.run((*drop, *_UNSHARE), timeout_s=_ANSWER_S)
        sources.append(done.evidence())
        if done.timed_out or done.exit_code is None:
            probe = Unreadable(f"unshare: no answer after {_ANSWER_S:g} s", done.evidence())
        else:
            probe = "" if done.ok else excerpt(done.stderr).rpartition("\n")[2] or f"exit code {done.exit_code}"
    return Namespaces(enroot, sysctls, _profiled(machine), probe, tuple(sources))


@deadline(2 * _ANSWER_S)
def toolkit(machine: Machine) -> Toolkit:
    """Read the versions of NVIDIA's container tools, and what CDI has.

    Source: "NVIDIA Container Toolkit CLI version 1.17.8" of `nvidia-ctk --version`, "cli-version: 1.17.8" of
    `nvidia-container-cli --version`.
    """
    versions: dict[str, Union[str, Unreadable]] = {}
    sources = []
    for program in ("nvidia-ctk", "nvidia-container-cli"):
        if machine.which(program) is None:
            continue
        done = machine.run((program, "--version"), timeout_s=_ANSWER_S)
        found = re.search(r"version:?\s+v?(\d+\.\d+\.\d+\S*)", done.text)
        sources.append(done.evidence())
        if found is not None and done.ok:
            versions[program] = found.group(1)
        else:
            versions[program] = Unreadable(f"{program} --version tells no version", done.evidence())
    cdi = [os.path.join(place, name) for place in CDI if machine.is_dir(place) for name in machine.list(place)]
    specs = tuple(path for path in cdi if path.endswith((".yaml", ".yml", ".json")))
    return Toolkit(versions, specs, (*sources, Evidence(" ".join(CDI), excerpt="\n".join(specs) or "no files")))


def _profiled(machine: Machine) -> bool:
    """Return whether AppArmor knows enroot; the loaded profiles are for root's eyes, the file is for all."""
    try:
        if re.search(r"^enroot\b", machine.text(PROFILES), re.MULTILINE):
            return True
    except OSError:
        pass
    return machine.is_file(PROFILE_FILE)
