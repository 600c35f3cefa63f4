"""Builders: the one host that builds for others, before any of those is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from k3env.documents.templates import MISSING, Scope
from k3env.errors import UsageError
from k3env.inventory import Host
from k3env.k3.variables import HOST
from k3env.playbook.compile import Compiled, Options, compile_playbook, layers

if TYPE_CHECKING:
    from k3env.playbook.plays import Play, Playbook
    from k3env.protocol.plan import Plan, Task

VARIABLE = "builder"
BUILDING = ("git_checkout", "trtllm_build", "pip_packages")
"""The modules that change a checkout, which hosts share."""
WHAT = ("repo", "checkout", "venv", "commit", "arch", "packages", "container")
"""Their parameters that tell one build from another."""
ONLY = "{} is no host of this play, and only builds for it"


@dataclass(frozen=True)
class Builders:
    """Who builds for whom in a play."""

    of: Mapping[str, str] = field(default_factory=dict)
    """Host to its builder. Those that build for nobody else, and need nobody, are not in it."""
    only: frozenset[str] = frozenset()
    """Builders that the play is not for: they go through its building tasks alone."""

    @property
    def names(self) -> frozenset[str]:
        """All builders."""
        return frozenset(self.of.values())

    def batches(self, play: Play, hosts: Sequence[Host]) -> list[list[Host]]:
        """Return the hosts of a play as they are begun: its builders, then the others as `serial` says."""
        first = [host for host in hosts if host.name in self.names]
        others = [host for host in hosts if host.name not in self.names]
        return [*([first] if first else []), *play.batches(others)]


@dataclass(frozen=True)
class Ready:
    """A playbook's plays, ready to be run: each with its hosts, their plans, and who builds."""

    hosts: list[list[Host]]
    plans: list[dict[str, Compiled]]
    builders: list[Builders]

    @property
    def judged(self) -> list[dict[str, Compiled]]:
        """The plans of the plays' own hosts."""
        return [
            {host: each for host, each in made.items() if host not in builders.only}
            for made, builders in zip(self.plans, self.builders, strict=True)
        ]


def named(playbook: Playbook, hosts: Iterable[Host], options: Options) -> list[str]:
    """Return the builders that any play names for any of these hosts.

    Raises DocumentError where the variable can't be told.
    """
    found: dict[str, None] = {}
    for play in playbook.plays:
        for host in hosts:
            value = Scope(layers(play, host, options)).get(VARIABLE)
            # What is no name is told where the variables are checked.
            if value is not MISSING and isinstance(value, str) and HOST.fullmatch(value):
                found[value] = None
    return list(found)


def make_ready(
    playbook: Playbook, hosts: Sequence[Sequence[Host]], others: Mapping[str, Host], options: Options
) -> Ready:
    """Compile a playbook for the hosts of its plays, and for the builders among `others` that they need.

    Raises UsageError where a builder would build something else than its hosts want, and as compile_playbook does.
    """
    wanted = [_needed(play, members, others, options) for play, members in zip(playbook.plays, hosts, strict=True)]
    every = [[*more, *members] for more, members in zip(wanted, hosts, strict=True)]
    plans = compile_playbook(playbook, every, options)
    ready = Ready([], [], [])
    for play, members, more, made in zip(playbook.plays, hosts, wanted, plans, strict=True):
        builders = _builders(members, frozenset(host.name for host in more), made)
        _refuse_unlike(play, builders, made)
        kept = [host for host in more if host.name in builders.only]
        ready.hosts.append([*kept, *members])
        ready.plans.append(
            {
                **{host.name: _restricted(made[host.name], host.name) for host in kept},
                **{host.name: made[host.name] for host in members},
            }
        )
        ready.builders.append(builders)
    return ready


def _needed(play: Play, hosts: Sequence[Host], others: Mapping[str, Host], options: Options) -> list[Host]:
    """Return the builders of some hosts that the play is not for."""
    values = (Scope(layers(play, host, options)).get(VARIABLE) for host in hosts)
    names = dict.fromkeys(value for value in values if isinstance(value, str))
    here = {host.name for host in hosts}
    return [others[name] for name in names if name in others and name not in here]


def _builders(hosts: Sequence[Host], more: frozenset[str], made: Mapping[str, Compiled]) -> Builders:
    of = {}
    for host in hosts:
        name = made[host.name].settings.variables.builder
        if name is not None and name != host.name and name in made and any(map(builds, made[host.name].plan.tasks)):
            of[host.name] = name
    # Who builds waits for nobody.
    names = frozenset(of.values())
    of = {host: name for host, name in of.items() if host not in names}
    return Builders(of, more & frozenset(of.values()))


def builds(task: Task) -> bool:
    """Return whether a task changes a checkout."""
    writes = task.module == "command" and task.parameters.get("checkout") and not task.parameters.get("read_only")
    return task.skip is None and (task.module in BUILDING or bool(writes))


def _restricted(made: Compiled, name: str) -> Compiled:
    """Return a plan that builds, and does nothing else."""
    tasks = tuple(
        task if task.skip is not None or builds(task) else replace(task, skip=ONLY.format(name), parameters={})
        for task in made.plan.tasks
    )
    return replace(made, plan=replace(made.plan, tasks=tasks))


def _refuse_unlike(play: Play, builders: Builders, made: Mapping[str, Compiled]) -> None:
    """Make sure that a builder builds what its hosts want: else each would build anew, one after another."""
    seen: set[tuple[int, int]] = set()
    for host, name in builders.of.items():
        mine, its = made[host].plan, made[name].plan
        if (id(mine), id(its)) in seen:
            continue
        seen.add((id(mine), id(its)))
        for id_, values in _parameters(mine).items():
            other = _parameters(its).get(id_, {})
            unlike = [key for key in {**values, **other} if values.get(key) != other.get(key)]
            if unlike:
                key = sorted(unlike)[0]
                raise UsageError(
                    f"builder {name} would not build what {host} wants: {key} differs",
                    subject=str(play.position),
                    expected=f"{key} {values.get(key)} in task {id_}, as on {host}",
                    found=f"{other.get(key)} on {name}",
                    remedy="give both the same variables, for example in a group that both are in",
                )


def _parameters(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return what is built, by task: not how, such as the number of jobs."""
    return {task.id: {key: _what(task.parameters.get(key)) for key in WHAT} for task in plan.tasks if builds(task)}


def _what(value: Any) -> Any:
    return {key: item for key, item in value.items() if key != "mounts"} if isinstance(value, Mapping) else value
