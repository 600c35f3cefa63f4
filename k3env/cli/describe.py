"""invoke describe: the plans of hosts, and every variable with its value and its origin; nothing is contacted."""

from __future__ import annotations

import getpass
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import (
    DEFAULT_PLAYBOOK,
    PLAYING,
    REACHING,
    SHOWING,
    TARGETING,
    Option,
    Options,
    parse,
    parse_choice,
)
from k3env.cli.words import HIDDEN
from k3env.protocol.finding import printable

if TYPE_CHECKING:
    from k3env.documents.nodes import Node
    from k3env.inventory import Host
    from k3env.playbook import Builders, Compiled, Play
    from k3env.playbook import Options as Asked
    from k3env.protocol.plan import Task

_UNUSED = ("diff", "detailed_exitcode", "list_hosts")
_TAKEN = tuple(
    option
    for option in (*TARGETING, *PLAYING, *REACHING, *SHOWING)
    if option.name not in _UNUSED and (option not in REACHING or option.name in ("user", "connection"))
)
_CREDENTIALS = re.compile(r"://[^/@\s]+@")


@dataclass(frozen=True)
class Variable:
    """A variable as some hosts have it."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Described:
    """Hosts that share a plan in a play."""

    play: str
    hosts: tuple[str, ...]
    made: Compiled
    variables: dict[str, Variable]
    """Those that are the same on all of these hosts."""
    differing: dict[str, dict[str, Variable]]
    """The others: name to host to value."""
    builders: dict[str, str]
    """Host to the builder that goes before it."""


@command(Option("repo", "instead: what a TensorRT LLM checkout on this machine is, and the commands for it"), *_TAKEN)
def describe(**raw: Any) -> int:
    """Print what hosts would be told: each distinct plan, and every variable with its value and its origin."""
    parse_choice("output", str(raw["output"]), ("text", "json"))
    repo = raw.pop("repo", None)
    options = parse(raw)
    if repo is not None:
        if not str(repo).strip():
            from k3env.errors import UsageError

            raise UsageError(
                "--repo names no checkout", expected="--repo PATH", found="an empty text",
                remedy="see whether the shell's variable that stands there is set; or say --hosts instead",
            )  # fmt: skip
        return _describe_checkout(str(repo), options)
    found = list(_described(options))
    if options.output == "json":
        print(json.dumps({"schema": "k3env.describe/1", "plans": [_as_json(item) for item in found]}, indent=2))
    else:
        print(printable("\n\n".join(_as_text(item) for item in found)))
    return 0


def _describe_checkout(path: str, options: Options) -> int:
    """Print what a checkout is recognised as; variables are the shipped ones, and those of --extra-vars."""
    from k3env.cli import checkout
    from k3env.cli.asked import asked
    from k3env.playbook import variables_alone

    found, variables = checkout.recognise(path), variables_alone(asked(options), getpass.getuser())
    if options.output == "json":
        print(json.dumps(checkout.as_json(found, variables), indent=2))
    else:
        print(printable(checkout.as_text(found, variables)))
    return 0


def _described(options: Options) -> Iterator[Described]:
    from k3env.cli.asked import asked
    from k3env.cli.who import trays, warn, who, with_builders
    from k3env.playbook import load, make_ready, named_builders

    playbook = load(options.playbook or DEFAULT_PLAYBOOK)
    chosen = who(options)
    warn(chosen.inventory, sys.stderr)
    wanted = asked(options)
    chosen = with_builders(chosen, named_builders(playbook, chosen.hosts, wanted), options)
    with trays(chosen) as reached:
        hosts = playbook.targets(reached.inventory, reached.hosts)
        ready = make_ready(playbook, hosts, {host.name: host for host in reached.builders}, wanted)
    for play, members, made, builders in zip(playbook.plays, ready.hosts, ready.plans, ready.builders, strict=True):
        yield from _of_play(play, members, made, builders, wanted)


def _of_play(
    play: Play, hosts: Sequence[Host], plans: Mapping[str, Compiled], builders: Builders, wanted: Asked
) -> Iterator[Described]:
    from k3env.playbook import layers
    from k3env.protocol import codec

    by_plan: dict[str, list[Host]] = {}
    for host in hosts:
        by_plan.setdefault(codec.dumps(plans[host.name].plan), []).append(host)
    for members in by_plan.values():
        known = {host.name: _variables(layers(play, host, wanted)) for host in members}
        names = sorted(set().union(*known.values()))
        same, differing = {}, {}
        for name in names:
            values = {host: found[name] for host, found in known.items() if name in found}
            first = next(iter(values.values()))
            if len(values) == len(members) and all(value == first for value in values.values()):
                same[name] = first
            else:
                differing[name] = values
        waiting = {host: builders.of[host] for host in known if host in builders.of}
        yield Described(play.name, tuple(known), plans[members[0].name], same, differing, waiting)


def _variables(nodes: Mapping[str, Node]) -> dict[str, Variable]:
    from k3env.documents.templates import Scope
    from k3env.errors import DocumentError

    scope = Scope(nodes)
    found = {}
    for name, node in nodes.items():
        try:
            value = _safe(name, scope.get(name))
        except DocumentError as error:
            value = f"(can't be told: {error})"
        found[name] = Variable(value, str(node.position))
    return found


def _safe(name: str, value: Any) -> Any:
    """Return a value with what may be shown of its secrets: where they are kept."""
    from k3env.protocol.secret import MASK, Secret

    if isinstance(value, Secret):
        return f"(secret {value.reference})"
    if isinstance(value, Mapping):
        return {key: _safe(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(name, item) for item in value]
    if value is not None and any(word in name.lower() for word in HIDDEN) and not isinstance(value, bool):
        return MASK
    return _CREDENTIALS.sub(f"://{MASK}@", value) if isinstance(value, str) else value


def _as_json(item: Described) -> dict[str, Any]:
    from k3env.protocol import codec

    def variable(found: Variable) -> dict[str, Any]:
        return {"value": found.value, "origin": found.origin}

    return {
        "play": item.play,
        "hosts": list(item.hosts),
        "builders": item.builders,
        "plan": _shown(codec.encode(item.made.plan)),
        "variables": {name: variable(found) for name, found in item.variables.items()},
        "differing": {
            name: {host: variable(found) for host, found in by_host.items()} for name, by_host in item.differing.items()
        },
        "wanted": {name: origin for name, origin in item.made.settings.origins.items() if "." in name},
    }


def _shown(value: Any) -> Any:
    """Return the JSON of a plan; sensitive content is left out."""
    if isinstance(value, dict):
        hidden = {"content": "(not shown)"} if value.get("sensitive") is True and "content" in value else {}
        return {key: _shown(item) for key, item in {**value, **hidden}.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    return _CREDENTIALS.sub("://********@", value) if isinstance(value, str) else value


def _as_text(item: Described) -> str:
    from k3env.protocol.folding import fold

    plan, settings = item.made.plan, item.made.settings
    rows = [
        f"PLAY [{item.play}] on {fold(item.hosts)}",
        f"  mode {plan.mode}, when nobody follows: {plan.when_unfollowed}, as {plan.user or 'the connecting user'}",
        *(f"  {line}" for line in _waiting(item.builders)),
        "",
        "  TASKS",
    ]
    for task in plan.tasks:
        rows += _task_rows(task)
    rows += ["", "  VARIABLES"]
    names = [*item.variables, *item.differing]
    width = max(map(len, names), default=0)
    for name, found in item.variables.items():
        rows.append(f"    {name:<{width}}  {_value(found.value)}    {found.origin}")
    for name, by_host in item.differing.items():
        rows.append(f"    {name:<{width}}  differs between hosts:")
        groups: dict[tuple[str, str], list[str]] = {}
        for host, found in by_host.items():
            groups.setdefault((_value(found.value), found.origin), []).append(host)
        rows += [f"      {fold(hosts)}: {value}    {origin}" for (value, origin), hosts in groups.items()]
    wanted = {name: origin for name, origin in settings.origins.items() if "." in name}
    if wanted:
        rows += ["", "  FROM THE SITE FILE"]
        rows += [f"    {name}: {_site_value(name, item)}    {origin}" for name, origin in wanted.items()]
    return "\n".join(rows)


def _waiting(builders: Mapping[str, str]) -> Iterator[str]:
    """Yield who is contacted only when a builder has finished well."""
    from k3env.protocol.folding import fold

    for name in sorted(set(builders.values())):
        hosts = fold([host for host, builder in builders.items() if builder == name])
        yield f"after builder {name} has finished well: {hosts}"


def _site_value(name: str, item: Described) -> str:
    section, _, key = name.partition(".")
    profile = item.made.settings.profile
    found = profile.severities if section == "severities" else vars(getattr(profile, section))
    return _value(found.get(key))


def _task_rows(task: Task) -> Iterator[str]:
    yield f"    {task.id}  {task.name}  ({task.module}, {task.position})"
    if task.skip is not None:
        yield f"         left out: {task.skip}"
        return
    around = {
        "as": task.become_user,
        "timeout": task.timeout_s,
        "retries": task.retries or None,
        "ignore_errors": task.ignore_errors or None,
        "environment": task.environment or None,
    }
    # A module may have a parameter of the same name as one of the task's own words: both are told.
    for name, value in [*_shown(task.parameters).items(), *((name, _shown(value)) for name, value in around.items())]:
        if value is not None:
            yield f"         {name}: {_value(value)}"


def _value(value: Any) -> str:
    from k3env.protocol.finding import printable

    return printable(json.dumps(_named(value), ensure_ascii=False))


def _named(value: Any) -> Any:
    """Return a plan's value with its placeholders as a person reads them."""
    if isinstance(value, dict):
        if set(value) == {"$secret"}:
            return f"(secret {value['$secret']})"
        return {key: _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, (list, tuple)) else value


TASKS = (describe,)
