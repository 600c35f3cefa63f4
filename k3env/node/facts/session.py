"""The session that this process is part of: whether a Slurm job has it, and whether logind ends it at logout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Optional

from k3env.node.machine import Machine

CGROUP = "/proc/self/cgroup"
LINGER = "/var/lib/systemd/linger"
_CONFIG = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
"""Where logind.conf and logind.conf.d are looked for; of two files of one name, the one found first counts."""

# v2: /system.slice/NODE_slurmstepd.scope/job_812/step_extern/user/task_special; v1: /slurm/uid_1000/job_812/step_0.
_JOB = re.compile(r"/job_(?P<job>\d+)(?:/step_(?P<step>\w+))?(?:/|$)")
_SCOPE = re.compile(r"/user-(?P<uid>\d+)\.slice/session-[^/]+\.scope(?:/|$)")
_MANAGER = re.compile(r"/user@(?P<uid>\d+)\.service(?:/|$)")
_YES, _NO = ("1", "yes", "y", "true", "t", "on"), ("0", "no", "n", "false", "f", "off")
_LOGIN = re.compile(r"\s*(?P<key>Kill(?:UserProcesses|OnlyUsers|ExcludeUsers))\s*=(?P<value>.*)")
_DEFAULT = re.compile(r"\s*[#;]\s*KillUserProcesses\s*=\s*(\w+)\s*")


@dataclass(frozen=True)
class Place:
    """Where a process stands in the node's cgroups."""

    job: Optional[str] = None
    """The Slurm job that has it."""
    step: Optional[str] = None
    """extern: a session that pam_slurm_adopt gave to the job; else a step of srun or sbatch."""
    scope_of: Optional[int] = None
    """The uid whose login session's scope it is in."""
    manager_of: Optional[int] = None
    """The uid whose service manager it runs under."""


@dataclass(frozen=True)
class Logind:
    """What logind does with processes that a session leaves behind."""

    kill: bool = False
    only: tuple[str, ...] = ()
    exclude: Optional[tuple[str, ...]] = None
    """None: nothing says; then root is excluded."""
    said_by: str = ""
    """The file that says last whose processes end, with what it says."""

    def kills(self, user: str) -> bool:
        """Return whether a user's session takes its processes with it. Lingering changes nothing about that.

        Source: manager_shall_kill in systemd's logind-core.c; session_stop_scope asks nothing else.
        """
        if user in (("root",) if self.exclude is None else self.exclude):
            return False
        return user in self.only if self.only else self.kill


@dataclass(frozen=True)
class Session:
    """The session that this process is part of."""

    place: Place
    cgroup: str
    """The line that says so."""
    user: str = ""
    """Whose session it is, where it is one."""
    logind: Logind = Logind()
    lingers: bool = False
    """Whether that user's service manager outlives its sessions."""


def session(machine: Machine) -> Session:
    """Read the session of this process.

    Source: /proc/self/cgroup, the environment that Slurm gives to a step, logind.conf(5), loginctl(1).
    """
    text = ""
    with suppress(OSError):
        text = machine.text(CGROUP)
    found = place(text, machine.environment)
    shown = next((line for line in text.splitlines() if _JOB.search(line) or _SCOPE.search(line)), text.strip())
    uid = found.scope_of if found.scope_of is not None else found.manager_of
    if uid is None:
        return Session(found, shown)
    user = _name(uid)
    return Session(found, shown, user, logind(_files(machine)), machine.exists(f"{LINGER}/{user}"))


def place(cgroup: str, environment: Mapping[str, str]) -> Place:
    """Return where a process stands, from the text of its cgroup file and its environment."""
    job = _JOB.search(cgroup)
    scope, manager = _SCOPE.search(cgroup), _MANAGER.search(cgroup)
    return Place(
        job["job"] if job else environment.get("SLURM_JOB_ID") or None,
        job["step"] if job else environment.get("SLURM_STEP_ID") or None,
        int(scope["uid"]) if scope else None,
        int(manager["uid"]) if manager else None,
    )


def logind(files: Iterable[tuple[str, str]]) -> Logind:
    """Return what files say, path and text, in the order in which logind reads them: the first one is logind.conf.

    A line that is commented out in it shows the default that this build of systemd has.
    """
    kill: Optional[bool] = None
    default, said_by = False, ""
    only: tuple[str, ...] = ()
    exclude: Optional[tuple[str, ...]] = None
    for number, (path, text) in enumerate(files):
        for key, value in _settings(text):
            if key == "KillUserProcesses" and value.lower() in (*_YES, *_NO):
                kill = value.lower() in _YES
            elif key == "KillOnlyUsers":
                only = (*only, *value.split()) if value else ()
            elif key == "KillExcludeUsers":
                exclude = (*(exclude or ()), *value.split()) if value else ()
                continue
            else:
                continue
            said_by = f"{path}: {key}={value}"
        shown = _DEFAULT.search(text) if number == 0 and kill is None else None
        if shown and shown[1].lower() in _YES:
            default, said_by = True, f"{path}: the default, {shown[0].strip()}"
    return Logind(default if kill is None else kill, only, exclude, said_by)


def _settings(text: str) -> Iterable[tuple[str, str]]:
    section = ""
    for line in text.splitlines():
        if line.strip().startswith("["):
            section = line.strip()
        found = _LOGIN.fullmatch(line)
        if found and section == "[Login]":
            yield found["key"], found["value"].strip()


def _files(machine: Machine) -> Iterable[tuple[str, str]]:
    main = next((f"{place}/logind.conf" for place in _CONFIG if machine.is_file(f"{place}/logind.conf")), None)
    yield main or "logind.conf", _text(machine, main) if main else ""
    dropped: dict[str, str] = {}
    for directory in (f"{place}/logind.conf.d" for place in _CONFIG):
        if machine.is_dir(directory):
            for name in machine.list(directory):
                if name.endswith(".conf"):
                    dropped.setdefault(name, f"{directory}/{name}")
    for name in sorted(dropped):
        yield dropped[name], _text(machine, dropped[name])


def _text(machine: Machine, path: str) -> str:
    try:
        return machine.text(path)
    except OSError:
        return ""


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
