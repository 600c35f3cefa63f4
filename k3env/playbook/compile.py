"""Compile: a play and a host's variables become a plan. Equal input gives equal bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Optional

from k3env.documents import schema
from k3env.documents.coercion import coerced
from k3env.documents.nodes import Node, Position, problem, spelt
from k3env.documents.templates import MISSING, Scope, UndefinedVariable, is_template
from k3env.errors import DocumentError, UsageError
from k3env.inventory import variables as sources
from k3env.inventory.hosts import Host
from k3env.k3 import variables as shipped
from k3env.playbook import contents, keywords, loops, profile
from k3env.playbook.loops import Loop, Turn
from k3env.playbook.plays import Play, Playbook
from k3env.playbook.profile import Settings
from k3env.playbook.selection import Left, left_out
from k3env.playbook.site import NO_SITE, Site
from k3env.playbook.tasks import Task
from k3env.protocol import codec, egress, plan
from k3env.protocol.plan import Plan
from k3env.protocol.secret import Secret, placeholder

READ_ONLY = "verify"
"""The module that changes nothing, whatever its parameters."""
_STAYS_HERE = (READ_ONLY, "facts", "lease")
"""Modules that reach for no index and no git server."""

MAX_BYTES = 1 << 20
"""Of a host's plan."""

_REMEDIES = {**keywords.NAME_INSTEAD, **shipped.remedies()}


@dataclass(frozen=True)
class Options:
    """What the command line says about the plans."""

    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    start_at_task: Optional[str] = None
    check: bool = False
    force_in_use: bool = False
    explain: bool = False
    context: str = "job"
    probe_dir: Optional[str] = None
    extra: Mapping[str, Node] = field(default_factory=dict)
    """The values of --extra-vars."""
    site: Site = NO_SITE
    """What the site file says."""


@dataclass(frozen=True)
class Compiled:
    """A plan, and the settings it was made with."""

    plan: Plan
    settings: Settings


def compile_playbook(
    playbook: Playbook, hosts: Sequence[Sequence[Host]], options: Options
) -> list[dict[str, Compiled]]:
    """Return, for each play, the plans of its hosts by name; `hosts` holds those of each play.

    Hosts with equal values share one plan object.

    Raises UsageError for options that fit no task, DocumentError where a value stands that can't be used.
    """
    left = left_out(playbook.plays, options.tags, options.skip_tags, options.start_at_task)
    _refuse_misspelt(playbook.plays, hosts, options)
    return [_compile_play(at, play, hosts[at], options, left) for at, play in enumerate(playbook.plays)]


def compile_alone(playbook: Playbook, options: Options, connecting_user: str) -> list[Plan]:
    """Return the plans of all plays for no host: variables are the tables', the plays' and --extra-vars.

    `connecting_user` stands for whoever will run them.

    Raises UsageError for options that fit no task, DocumentError where a value stands that can't be used.
    """
    left = left_out(playbook.plays, options.tags, options.skip_tags, options.start_at_task)
    _refuse_misspelt(playbook.plays, [], options)
    user = {"connecting_user": Node.of(connecting_user, Position("who runs it"))}
    each = [profile.given({**profile.defaults(), **play.variables, **options.extra, **user}) for play in playbook.plays]
    return [
        _compile_host(at, play, variables, options, left)[1].plan
        for at, (play, variables) in enumerate(zip(playbook.plays, each, strict=True))
    ]


def variables_alone(options: Options, connecting_user: str) -> shipped.Variables:
    """Return the shipped variables for no host: the tables' and those of --extra-vars.

    Raises DocumentError where a value stands that can't be used.
    """
    user = {"connecting_user": Node.of(connecting_user, Position("who runs it"))}
    scope = Scope(profile.given({**profile.defaults(), **options.extra, **user}), _REMEDIES)
    return profile.resolve(scope, options.context, options.site).variables


def layers(play: Play, host: Host, options: Options) -> dict[str, Node]:
    """Return a host's variables in a play, each with its origin."""
    return profile.given(
        {
            **profile.defaults(),
            **host.variables,
            **play.variables,
            **options.extra,
            **sources.special(host),
        }
    )


def _compile_play(at: int, play: Play, hosts: Sequence[Host], options: Options, left: Left) -> dict[str, Compiled]:
    made: dict[tuple[str, ...], dict[tuple[Hashable, ...], Compiled]] = {}
    """By the names of the variables that a plan was made from, then by their values."""
    plans: dict[str, Compiled] = {}
    spellings = _Spellings()
    for host in hosts:
        variables = layers(play, host, options)
        keys = ((known, spellings.of(names, variables)) for names, known in made.items())
        same = next((known[key] for known, key in keys if key in known), None)
        if same is None:
            used, same = _compile_host(at, play, variables, options, left)
            names = tuple(sorted(used))
            made.setdefault(names, {})[spellings.of(names, variables)] = same
        plans[host.name] = same
    return plans


class _Spellings:
    """What tells values apart, kept for each node: most hosts share most of their nodes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, Hashable]] = {}  # with the node, so that its id stays its own

    def of(self, names: Iterable[str], variables: Mapping[str, Node]) -> tuple[Hashable, ...]:
        """Return what differs where the value of any of these variables does."""
        return tuple(self._one(variables.get(name)) for name in names)

    def _one(self, node: Optional[Node]) -> Hashable:
        if node is None:
            return MISSING
        if id(node) not in self._known:
            self._known[id(node)] = (node, node.spelling())
        return self._known[id(node)][1]


def _compile_host(
    at: int, play: Play, variables: Mapping[str, Node], options: Options, left: Left
) -> tuple[dict[str, object], Compiled]:
    scope = Scope(variables, _REMEDIES)
    settings = profile.resolve(scope, options.context, options.site)
    if options.probe_dir is not None:
        paths = replace(settings.profile.paths, probe_dir=options.probe_dir)
        settings = replace(settings, profile=replace(settings.profile, paths=paths))
    tasks: list[plan.Task] = []
    used = scope.used
    for number, task in enumerate(play.tasks):
        why = left.get((at, number))
        made, own = _tasks(task, variables, options, scope, settings, f"{at + 1}.{number + 1}", why)
        tasks += made
        used.update(own)
    _refuse_large(tasks)
    compiled = Plan(
        tasks=tuple(tasks),
        profile=codec.encode(settings.profile),
        mode=plan.CHECK if options.check else plan.APPLY,
        when_unfollowed=plan.STOP if options.check or not _changes(tasks) else plan.FINISH,
        user=settings.variables.k3_user,
        force_in_use=options.force_in_use,
        explain=options.explain,
    )
    return used, Compiled(compiled, settings)


def _refuse_large(tasks: Iterable[plan.Task]) -> None:
    """Refuse a plan that is too large to be sent to each host."""
    size, largest, where = 0, 0, ""
    for task in tasks:
        size += len(codec.dumps(codec.encode(task)))
        for name, value in task.parameters.items():
            length = len(codec.dumps(value))
            if length > largest:
                largest, where = length, f"{name} of {task.module} at {task.position}"
        if size > MAX_BYTES:
            raise UsageError(
                "the plan of a host is too large",
                expected=f"at most {MAX_BYTES >> 20} MiB for all tasks together",
                found=f"{-(-largest >> 10)} KiB in {where}, the largest parameter up to there",
                remedy="put large files on a shared filesystem, and copy them with command and creates:",
            )


def _own(task: Task, options: Options) -> dict[str, Node]:
    """Return a task's variables, which only --extra-vars beats."""
    return {name: node for name, node in task.variables.items() if name not in options.extra}


def _changes(tasks: Iterable[plan.Task]) -> bool:
    return any(task.skip is None and task.module != READ_ONLY for task in tasks)


def _tasks(
    task: Task,
    variables: Mapping[str, Node],
    options: Options,
    shared: Scope,
    settings: Settings,
    id: str,
    left: Optional[str],
) -> tuple[list[plan.Task], dict[str, object]]:
    """Return what a task becomes, one for each turn of its loop, and the variables of the play that it used."""
    if left is not None:
        return [_skipped(task, id, left)], {}
    own = _own(task, options)
    layers = profile.given({**variables, **own})
    scope = Scope(layers, _REMEDIES) if own else shared
    scopes = [scope]
    if task.loop is None:
        skip = _skipped_by(task, scope)
        made = [_skipped(task, id, skip) if skip else _task(task, scope, settings, id, _title(task, scope))]
    else:
        skip = _skipped_by(task, scope, before_loop=True)
        turns = () if skip else loops.turns(task.loop, scope, layers)
        made = [] if turns else [_skipped(task, id, skip or "loop: no items")]
        for number, turn in enumerate(turns, 1):
            inner = Scope(layers, _REMEDIES, turn.values)
            scopes.append(inner)
            made.append(_turn(task, task.loop, inner, settings, f"{id}.{number}", turn))
    used = {name: node for each in scopes for name, node in each.used.items() if name not in own}
    return made, {} if scopes == [shared] else used


def _turn(task: Task, loop: Loop, scope: Scope, settings: Settings, id: str, turn: Turn) -> plan.Task:
    skip = _skipped_by(task, scope)
    if skip is not None:
        return _skipped(task, id, skip, f"{task.title} ({turn.label})")
    title, label = _title(task, scope), loops.label(loop, turn, scope)
    told = task.name is not None and is_template(task.name) and label in title
    return _task(task, scope, settings, id, title if told else f"{title} ({label})")


def _skipped(task: Task, id: str, why: str, title: Optional[str] = None) -> plan.Task:
    return plan.Task(id, title or task.title, task.module, skip=why, position=str(task.position))


def _task(task: Task, scope: Scope, settings: Settings, id: str, title: str) -> plan.Task:
    values = {key: scope.render(node) for key, node in task.parameters.items(task.module)}
    values = contents.filled(task, values, scope)
    try:
        schema.validate(task.kind, values, task.parameters, task.module)
    except DocumentError as error:
        from k3env.playbook.blame import blamed

        raise blamed(error, task.parameters, scope, profile.DEFAULT) from None
    # k3_user owns what a play makes, unless a task says otherwise for itself.
    plays_word = task.by_play and settings.variables.k3_user is not None
    return plan.Task(
        id,
        title,
        task.module,
        parameters=_without_secrets(coerced(task.kind, values)),
        become_user=None if plays_word else task.become_user,
        environment=_around(task, scope),
        timeout_s=task.timeout_s,
        retries=task.retries,
        delay_s=task.delay_s,
        ignore_errors=task.ignore_errors,
        position=str(task.position),
    )


def _skipped_by(task: Task, scope: Scope, before_loop: bool = False) -> Optional[str]:
    """Return the first condition that does not hold, or None; before a loop, those about its item are left alone."""
    for condition in task.when:
        try:
            if not scope.holds(condition):
                return f"when: {spelt(condition.content)}"
        except UndefinedVariable:
            if not before_loop:
                raise
    return None


def _title(task: Task, scope: Scope) -> str:
    return str(scope.render(task.name)) if task.name is not None else task.module


def _around(task: Task, scope: Scope) -> dict[str, Any]:
    """Return a task's environment: how the site reaches out, and what the task says, which beats it."""
    given = coerced(shipped.Variables, {"egress": scope.get("egress")}).get("egress")
    site = {} if given is None or task.module in _STAYS_HERE else egress.environment(given)
    own = {name: _environment(name, node, scope) for name, node in task.environment.items()}
    return dict(sorted({**{name: _without_secrets(value) for name, value in site.items()}, **own}.items()))


def _environment(name: str, node: Node, scope: Scope) -> Any:
    value = scope.render(node)
    if isinstance(value, (str, Secret)):
        return _without_secrets(value)
    raise problem(
        node,
        f"the environment variable {name} must be text",
        expected="text",
        found=Node.of(value, node.position).found,
    )


def _without_secrets(value: Any) -> Any:
    """Return a value with what stands in a plan for its secrets, and text without its type."""
    if isinstance(value, Secret):
        return placeholder(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return value


def _refuse_misspelt(plays: Sequence[Play], hosts: Sequence[Sequence[Host]], options: Options) -> None:
    """Refuse an extra variable that no source knows and that nearly is a shipped one: it would change nothing."""
    known = {*shipped.names()}.union(*(play.variables for play in plays))
    for name in options.extra:
        if name in known or any(name in host.variables for group in hosts for host in group):
            continue
        meant = get_close_matches(name, shipped.names(), n=1, cutoff=0.85)
        if meant:
            raise UsageError(
                f"{sources.EXTRA} {name}: no shipped play reads this variable",
                expected="a variable of the plays",
                found=name,
                remedy=f"did you mean {meant[0]}?",
            )
