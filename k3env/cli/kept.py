"""Runs that were begun elsewhere: the nodes of --hosts are asked, by the road that the options say."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from k3env.cli.options import Options
from k3env.cli.play import limits, owner
from k3env.cli.secrets import ask_become_pass, ask_passphrase
from k3env.cli.who import Who
from k3env.connections.road import Road
from k3env.documents.templates import Scope
from k3env.errors import Unreachable
from k3env.inventory import Host
from k3env.inventory.variables import extra, special
from k3env.playbook import profile
from k3env.protocol.folding import fold as folded
from k3env.protocol.kept import KeptRun
from k3env.protocol.plan import CHECK, Plan, Task
from k3env.reports.document import timestamp
from k3env.runner.become import Become, Password
from k3env.runner.kept import Answers, ask, oldest
from k3env.runner.record import Header, Stage, pick
from k3env.runner.targets import Targets, become


@dataclass(frozen=True)
class Place:
    """Where a host keeps its runs, and as whom it is asked."""

    state_dir: str | None
    become: Become | None


@dataclass(frozen=True)
class Asked:
    """What the nodes said."""

    answers: Answers
    places: Mapping[str, Place]


def ask_nodes(options: Options, reached: Who, wanted: str = "") -> Asked:
    """Ask all hosts for their runs; `wanted`: the beginning of one run's name, which is then told with its tasks."""
    password = ask_become_pass(options)
    places = {host.name: _place(host, options, password) for host in reached.hosts}
    road = Road(ask=ask_passphrase, accept_new=options.accept_new_host_keys)
    asking = Targets(f"list-{secrets.token_hex(4)}", owner(), road)
    plan = Plan(())
    targets = [
        asking.make(
            host,
            plan,
            0,
            1,
            places[host.name].state_dir,
            become=places[host.name].become,
            action="list",
            what=wanted,
        )
        for host in reached.hosts
    ]
    try:
        return Asked(ask(targets, options.forks, limits(options, reached)), places)
    finally:
        road.close()


def _place(host: Host, options: Options, password: Password | None) -> Place:
    """Read where a host's runs are from the variables that it has in every play."""
    nodes = {**profile.defaults(), **host.variables, **extra(options.extra_vars), **special(host)}
    variables = profile.resolve(Scope(profile.given(nodes)), "preflight").variables
    plan = Plan((Task("1.1", "", ""),), user=variables.k3_user)
    return Place(variables.k3env_state_dir, become(host, plan, options, password))


def choose(run: str, asked: Asked) -> str:
    """Return the name of the run that is meant.

    Raises UsageError where no node knows one, Unreachable where the others could not be asked.
    """
    names, problems = asked.answers.names(), asked.answers.problems
    if problems and not any(name.startswith(run) for name in names):
        first = next(iter(problems.values()))
        raise Unreachable(
            f"no run {run} on the hosts that answered, and {folded(sorted(problems))} did not",
            expected="an answer from every host of --hosts",
            found=first.message,
            remedy=first.remedy,
        )
    return pick(run, names, "which runs are there: invoke runs --hosts …; with --become if it was begun so")


def header(run: str, asked: Asked, options: Options, command: tuple[str, ...]) -> Header:
    """Return what the nodes know of what a run was asked for."""
    plays = asked.answers.of(run)
    first = oldest([kept for hosts in plays.values() for kept in hosts.values()])
    stages = [_stage(plays.get(number, {})) for number in range(1, max(plays) + 1)]
    kept = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(options).items()}
    return Header(run, timestamp(first.since), command, kept, first.mode == CHECK, tuple(stages))


def _stage(hosts: Mapping[str, KeptRun]) -> Stage:
    plans = {
        host: Plan(
            tuple(
                Task(task.id, task.name, task.module, task.parameters, ignore_errors=task.ignore_errors, skip=task.skip)
                for task in kept.tasks
            ),
            kept.profile,
            mode=kept.mode,
        )
        for host, kept in hosts.items()
    }
    what = next((kept.what for kept in hosts.values()), "")
    return Stage(what.partition(": ")[2] or what, plans)
