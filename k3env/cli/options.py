"""The options that tasks share: one table, one value, one place where text is checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from k3env.errors import UsageError, nearest
from k3env.protocol.context import CONTEXTS
from k3env.protocol.context import DEFAULT as DEFAULT_CONTEXT

OUTPUTS = ("text", "json", "jsonl")
DEFAULT_PLAYBOOK = "trtllm"


@dataclass(frozen=True)
class Option:
    """One option as Invoke takes it: text, a flag, or a list of texts."""

    name: str
    help: str
    default: Any = None

    @property
    def flag(self) -> str:
        """Its name on the command line; one that is a word of Python has a `_` behind it, which is left out."""
        return self.name.rstrip("_").replace("_", "-")


TARGETING = (
    Option("hosts", "who: hostlist, group, glob, ~regex, @file; :& and :! combine"),
    Option("limit", "narrow --hosts and the play's hosts by another pattern; run:RUN, run:last: what failed there"),
    Option("inventory", "inventory file; repeatable; default $K3ENV_INVENTORY", []),
    Option("list_hosts", "print the hosts that would be targeted, contact none", False),
)
PLAYING = (
    Option("playbook", "a path, playbooks/NAME.yml, or a shipped NAME"),
    Option("site_file", "severities and wanted values of checks; default: k3env-site.yml beside the inventory"),
    Option("extra_vars", "k=v or @file; repeatable; beats every other source", []),
    Option("tags", "only tasks with one of these tags, comma-separated"),
    Option("skip_tags", "no task with one of these tags"),
    Option("start_at_task", "leave out the tasks before the one of this name"),
    Option("check", "report what would change, change nothing", False),
    Option("diff", "print each change's before and after", False),
    Option("detailed_exitcode", "exit 5 when there are changes to make, or were", False),
)
WHEN = (
    Option("allow_busy", "change a node also while it runs a Slurm job that is not ours", False),
    Option("drain", "drain each node in Slurm, wait for its jobs, and resume it when it was found fit", False),
    Option("drain_timeout", "seconds to wait for a node's jobs (default 86400)"),
    Option("force_in_use", "change a checkout and its environment also while somebody serves from it", False),
)
EXPLAINING = (Option("explain_skip", "say of each task with nothing to do what was looked at and found right", False),)
DETACHING = (Option("detach", "begin the work on each host, and leave it to itself: see invoke runs, attach", False),)
REACHING = (
    Option("forks", "hosts at a time (default 16)"),
    Option("timeout", "seconds to reach a host, retries included (default 30)"),
    Option("reconnect_timeout", "seconds to find a lost host again (default 300; sandbox 20)"),
    Option(
        "connection", "ssh, openssh, local, chroot, podman, docker, enroot or slurm; default: the inventory's, else ssh"
    ),
    Option("user", "log in as this user"),
    Option("private_key", "log in with this key, and no other"),
    Option("accept_new_host_keys", "keep the key of a host that was never seen before, and say so", False),
    Option("become", "become root on the node by sudo, or --become-user", False),
    Option("become_user", "become this user instead"),
    Option("ask_become_pass", "ask once for sudo's password", False),
)
SHOWING = (
    Option("output", "text, json or jsonl; of preflight also junit, nagios or prometheus", "text"),
    Option("v", "more: every task of every host", False),
)
REPORTS = (*OUTPUTS, "junit", "nagios", "prometheus")
CHECKING = (
    Option("context", f"what is checked, in what time: {', '.join(CONTEXTS)} (default {DEFAULT_CONTEXT})"),
    Option("fail_on", "warn: count warnings as failures"),
    Option("output", ", ".join(REPORTS), "text"),
    Option("output_file", "write what --output says there, at once, instead of to stdout"),
    Option("probe_dir", "a directory that all hosts should share: each leaves a file there, and looks for the others'"),
)
ALL = (
    *TARGETING,
    *PLAYING,
    *WHEN,
    *EXPLAINING,
    *DETACHING,
    *REACHING,
    *SHOWING,
    *(o for o in CHECKING if o.name != "output"),
)


@dataclass(frozen=True)
class Options:
    """Checked options."""

    hosts: str | None = None
    limit: str | None = None
    inventory: tuple[str, ...] = ()
    list_hosts: bool = False
    playbook: str | None = None
    site_file: str | None = None
    extra_vars: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    start_at_task: str | None = None
    check: bool = False
    diff: bool = False
    detailed_exitcode: bool = False
    allow_busy: bool = False
    force_in_use: bool = False
    explain_skip: bool = False
    detach: bool = False
    drain: bool = False
    drain_timeout: float = 86400.0
    forks: int = 16
    timeout: float = 30.0
    reconnect_timeout: float | None = None
    connection: str | None = None
    user: str | None = None
    private_key: str | None = None
    accept_new_host_keys: bool = False
    become: bool = False
    become_user: str | None = None
    ask_become_pass: bool = False
    output: str = "text"
    v: bool = False
    context: str = DEFAULT_CONTEXT
    probe_dir: str | None = None
    fail_on: str = "fail"
    output_file: str | None = None


def parse(raw: dict[str, Any], outputs: tuple[str, ...] = OUTPUTS) -> Options:
    """Check the texts that Invoke hands over; `outputs` are what this task can print.

    Raises UsageError naming the option, what was expected, and the nearest right value.
    """
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if value in (None, [], ()):
            continue
        if value == "":
            raise UsageError(
                f"--{_dashed(name)} is empty", expected="a value", found="''", remedy="give it, or leave it out"
            )
        values[name] = (_one_of(*outputs) if name == "output" else _READERS.get(name, _text))(name, value)
    return Options(**values)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _text(name: str, value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _words(name: str, value: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in value.split(","))
    if not all(words):
        raise UsageError(
            f"--{_dashed(name)} has an empty name", expected="NAME[,NAME…]", found=value, remedy="remove a comma"
        )
    return words


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e7:
        raise UsageError(
            f"--{_dashed(name)} is no number of seconds",
            expected="a number above 0",
            found=value,
            remedy=f"for example --{_dashed(name)} 30",
        )
    return number


def _forks(name: str, value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", value):
        raise UsageError(
            "--forks is no number of hosts", expected="1 to 9999", found=value, remedy="for example --forks 16"
        )
    return int(value)


def _user(name: str, value: str) -> str:
    from k3env.inventory.hosts import valid_user

    if valid_user(value):
        return value
    raise UsageError(
        f"--{_dashed(name)} {value} is no user name",
        expected="a name without a dash in front, and without blanks, `:`, `/`, quotes and what else a shell reads",
        found=value,
        remedy=f"for example --{_dashed(name)} root",
    )


def parse_choice(name: str, value: str, known: tuple[str, ...]) -> str:
    """Return an option's value that is one of some words.

    Raises UsageError with the nearest of them.
    """
    if value in known:
        return value
    close = nearest(value, list(known))
    raise UsageError(
        f"--{_dashed(name)} {value} is unknown",
        expected=", ".join(known),
        found=value,
        remedy=f"did you mean {close}?" if close else f"use one of {', '.join(known)}",
    )


def _one_of(*known: str) -> Any:
    return lambda name, value: parse_choice(name, value, known)


_READERS: dict[str, Any] = {
    "user": _user,
    "become_user": _user,
    "tags": _words,
    "skip_tags": _words,
    "timeout": _number,
    "drain_timeout": _number,
    "reconnect_timeout": _number,
    "forks": _forks,
    "context": _one_of(*CONTEXTS),
    "fail_on": _one_of("fail", "warn"),
    "connection": _one_of("ssh", "openssh", "local", "chroot", "podman", "docker", "enroot", "slurm"),
}
