"""invoke modules and invoke explain: what dataclasses and docstrings say, for people."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from k3env.cli.command import command
from k3env.cli.options import ALL, SHOWING, Option, parse_choice
from k3env.errors import UsageError, nearest

_OUTPUT = tuple(option for option in SHOWING if option.name == "output")
_WIDTH = 100


@dataclass(frozen=True)
class Entry:
    """Something that has a name."""

    kind: str
    """module, check, variable, option, key of a play, …"""
    name: str
    summary: str
    """The first line of what is to be said."""
    text: str = ""
    """The rest."""
    facts: dict[str, Any] | None = None
    """Short statements: type, default, source, severity."""
    parameters: tuple[Entry, ...] = ()


@command(*_OUTPUT)
def modules(**raw: Any) -> int:
    """List the modules that tasks may name."""
    found = list(_modules())
    if _json(raw):
        print(json.dumps([{"name": item.name, "summary": item.summary} for item in found], indent=2))
        return 0
    width = max(len(item.name) for item in found)
    for item in found:
        print(f"{item.name:<{width}}  {item.summary}")
    return 0


@command(
    Option("name", "a module, check id or glob, variable, option, or key of a playbook"), *_OUTPUT, positional=["name"]
)
def explain(**raw: Any) -> int:
    """Say what a module, a check, a variable, an option or a key of a playbook means."""
    found = entries(str(raw["name"] or ""))
    if _json(raw):
        print(json.dumps([asdict(item) for item in found], indent=2, ensure_ascii=False, default=str))
    else:
        print("\n\n".join(_shown(item) for item in found))
    return 0


def entries(name: str) -> list[Entry]:
    """Return all that has this name, or a dotted name that fits it as a glob.

    Raises UsageError with the nearest name.
    """
    from fnmatch import fnmatchcase

    wanted = name.removeprefix("--").replace("-", "_") if name.startswith("--") else name
    known = list(_all())
    found = [item for item in known if item.name == wanted or ("." in item.name and fnmatchcase(item.name, wanted))]
    if found:
        return found
    names = sorted({item.name for item in known})
    close = nearest(wanted, names)
    raise UsageError(
        f"nothing is called {name or repr(name)}",
        expected="a module, check id, variable, option or key of a playbook",
        found=name,
        remedy=f"did you mean {close}?" if close else "see: invoke modules, invoke explain '*', invoke schema",
    )


def _all() -> Iterator[Entry]:
    yield from _modules()
    yield from _checks()
    yield from _variables()
    yield from _keys()
    for option in ALL:
        yield Entry("option", option.name, option.help, facts={"given as": f"--{option.name.replace('_', '-')}"})


def _modules() -> Iterator[Entry]:
    from k3env.node import modules as found

    for name in found.names():
        kind = found.find(name)
        yield _described("module", name, kind, tuple(_fields("parameter", kind)))


def _checks() -> Iterator[Entry]:
    from k3env.node.checks import select

    for rule in sorted(select(("*",)), key=lambda rule: rule.id):
        summary, _, text = rule.doc.partition("\n")
        reads = ", ".join(fact.__name__ for fact in rule.facts)
        yield Entry(
            "check", rule.id, summary, _dedented(text), {"severity": rule.severity, "scope": rule.scope, "reads": reads}
        )


def _variables() -> Iterator[Entry]:
    from k3env.k3 import variables

    sources, gives = variables.sources(), variables.remedies()
    for item in _fields("variable", variables.Variables):
        facts = {**(item.facts or {}), "source": sources[item.name]}
        if item.name in gives:
            facts["default"] = f"none: {gives[item.name]}"
        yield Entry(item.kind, item.name, item.summary, item.text, facts)


def _keys() -> Iterator[Entry]:
    from k3env.playbook import keys, site
    from k3env.protocol.profile import Profile

    keys.as_dataclasses()
    kinds = {
        "play": keys.PlayKeys,
        "imported playbook": keys.ImportKeys,
        "task": keys.TaskKeys,
        "block": keys.BlockKeys,
        "import of tasks": keys.ImportTasksKeys,
        "loop_control": keys.LoopControl,
        "site file": site.SiteKeys,
    }
    for where, kind in kinds.items():
        yield from _fields(
            f"key of a {where}".replace("a import", "an import").replace("a imported", "an imported"), kind
        )
    for section, kind in site.sections().items():
        for entry in _fields("key of a site file", kind):
            default = json.dumps(getattr(getattr(Profile(), section), entry.name))
            yield replace(entry, name=f"{section}.{entry.name}", facts={**(entry.facts or {}), "default": default})


def _described(kind: str, name: str, thing: type[Any], parameters: tuple[Entry, ...]) -> Entry:
    summary, _, text = inspect.cleandoc(thing.__doc__ or "").partition("\n")
    return Entry(kind, name, summary, text.strip("\n"), parameters=parameters)


def _fields(kind: str, thing: type[Any]) -> Iterator[Entry]:
    """Yield the fields of a dataclass as its schema describes them."""
    from k3env.documents.schema import json_schema

    found = json_schema(thing)
    for name, told in found.get("properties", {}).items():
        summary, _, text = str(told.get("description", "")).partition("\n")
        facts = {"type": _type(told, found.get("$defs", {}))}
        if name in found.get("required", ()):
            facts["required"] = "yes"
        elif told.get("default") not in (None, [], {}):
            facts["default"] = json.dumps(told["default"], ensure_ascii=False)
        yield Entry(kind, name, summary, _dedented(text), facts)


def _type(told: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return a schema as people say it."""
    if "$ref" in told:
        name = told["$ref"].rsplit("/", 1)[-1]
        return "mapping with " + ", ".join(definitions.get(name, {}).get("properties", {}))
    if "anyOf" in told:
        return " or ".join(_type(arm, definitions) for arm in told["anyOf"] if arm != {"type": "null"})
    if "enum" in told or "const" in told:
        return " | ".join(map(str, told.get("enum", [told.get("const")])))
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    if told.get("type") == "array":
        inner = told.get("items")
        return f"list of {_type(inner, definitions)}" if inner else "list"
    if told.get("type") == "object":
        return "mapping"
    return words.get(str(told.get("type")), "any value")


def _shown(item: Entry, indent: str = "") -> str:
    told = ", ".join(f"{key}: {value}" for key, value in (item.facts or {}).items() if value)
    head = f"{indent}{item.name}" + (f" ({item.kind})" if not indent else "")
    rows = [head + (f"  [{told}]" if told else ""), *_wrapped(item.summary, indent)]
    for paragraph in item.text.strip().split("\n\n"):
        rows += _wrapped(paragraph, indent)
    if item.parameters:
        rows.append("")
        rows += [_shown(parameter, "  ") for parameter in item.parameters]
    return "\n".join(rows)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=f"{indent}  ", subsequent_indent=f"{indent}  ")


def _dedented(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def _json(raw: dict[str, Any]) -> bool:
    return parse_choice("output", str(raw["output"]), ("text", "json")) == "json"


TASKS = (modules, explain)
