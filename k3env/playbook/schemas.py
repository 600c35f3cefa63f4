"""Schemas: JSON Schemas of what people write, for editors; made of the dataclasses that read it.

They say what an editor can see: a value may also be a template, and what that gives is judged when a plan is made.
Draft 7 is what editors read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3env.documents import schema
from k3env.documents.coercion import dataclass_in
from k3env.k3.variables import Variables
from k3env.node import modules
from k3env.playbook import keys
from k3env.playbook.site import SiteKeys
from k3env.protocol.codec import hints

DRAFT = "http://json-schema.org/draft-07/schema#"
_REFERENCES = "#/definitions/{model}"
_TEMPLATE = {"type": "string", "pattern": "\\{\\{|\\{%|\\{#"}
_SECRET = {"$ref": "#/definitions/SecretReference"}
_NESTED = {"block": keys.BlockKeys, "import_tasks": keys.ImportTasksKeys}

Schema = dict[str, Any]


def playbook() -> Schema:
    """Return the schema of playbooks."""
    definitions: Schema = {}
    play = _keys(keys.PlayKeys, definitions)
    for name in ("pre_tasks", "tasks", "post_tasks"):
        play["properties"][name] = _tasks(play["properties"][name])
    play["anyOf"] = [{"required": [name]} for name in ("pre_tasks", "tasks", "post_tasks")]
    imported = _keys(keys.ImportKeys, definitions)
    definitions |= {"play": play, "import": imported}
    _task_definitions(definitions)
    either = {
        "if": {"type": "object", "required": ["import_playbook"]},
        "then": {"$ref": "#/definitions/import"},
        "else": {"$ref": "#/definitions/play"},
    }
    return _whole("A k3env playbook", {"type": "array", "minItems": 1, "items": either}, definitions)


def tasks() -> Schema:
    """Return the schema of files that import_tasks names."""
    definitions: Schema = {}
    _task_definitions(definitions)
    return _whole("Tasks that a k3env playbook imports", _tasks({}), definitions)


def site() -> Schema:
    """Return the schema of site files."""
    definitions: Schema = {}
    return _whole("A k3env site file", _keys(SiteKeys, definitions), definitions)


def variables() -> Schema:
    """Return the schema of files of variables: the shipped ones have their types, others have any."""
    definitions: Schema = {}
    found = _keys(Variables, definitions, templates=True)
    found.pop("required", None)
    found.pop("additionalProperties", None)
    found["propertyNames"] = {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
    return _whole("Variables of k3env's plays", found, definitions)


def run() -> Schema:
    """Return the schema of the document that --output json prints."""
    from k3env.reports.document import schema as shipped

    return shipped()


ALL = {"playbook": playbook, "tasks": tasks, "site": site, "variables": variables, "run": run}
"""Every schema by its name."""


def _whole(title: str, root: Schema, definitions: Schema) -> Schema:
    return {"$schema": DRAFT, "title": title, **root, "definitions": dict(sorted(definitions.items()))}


def _tasks(told: Mapping[str, Any]) -> Schema:
    described = {"description": told["description"]} if "description" in told else {}
    return {**described, "type": "array", "minItems": 1, "items": {"$ref": "#/definitions/task"}}


def _task_definitions(definitions: Schema) -> None:
    """Add what stands in lists of tasks."""
    task = _keys(keys.TaskKeys, definitions)
    for name in modules.names():
        found = _keys(modules.find(name), definitions, templates=True)
        definitions[f"module_{name}"] = found
        needed = bool(found.get("required"))
        task["properties"][name] = {"$ref": f"#/definitions/module_{name}"} if needed else _or_null(name)
    task["oneOf"] = [{"required": [name]} for name in modules.names()]
    definitions["module_task"] = task
    for name, kind in _NESTED.items():
        definitions[name] = _keys(kind, definitions)
    definitions["block"]["properties"]["block"] = _tasks(definitions["block"]["properties"]["block"])
    definitions["task"] = {
        "if": {"type": "object", "required": ["block"]},
        "then": {"$ref": "#/definitions/block"},
        "else": {
            "if": {"type": "object", "required": ["import_tasks"]},
            "then": {"$ref": "#/definitions/import_tasks"},
            "else": {"$ref": "#/definitions/module_task"},
        },
    }


def _or_null(name: str) -> Schema:
    return {"anyOf": [{"$ref": f"#/definitions/module_{name}"}, {"type": "null"}]}


def _keys(kind: type[Any], definitions: Schema, templates: bool = False) -> Schema:
    """Return the schema of a dataclass, those within it moved among the definitions."""
    keys.as_dataclasses()
    found = schema.json_schema(kind, _REFERENCES)
    within = {item.__name__: item for hint in hints(kind).values() if (item := dataclass_in(hint)) is not None}
    for name, inner in found.pop("$defs", {}).items():
        secrets = getattr(within.get(name), "SECRETS", ())
        definitions.setdefault(name, _cleaned(inner, templates and name != "SecretReference", secrets))
    if "SecretReference" in definitions:
        definitions["SecretReference"]["properties"]["secret"]["pattern"] = "^(prompt|env:.+|file:.+)$"
    elif templates:
        definitions["SecretReference"] = _cleaned(schema.json_schema(keys.SecretReference, _REFERENCES))
    return _cleaned(found, templates, getattr(kind, "SECRETS", ()))


def _cleaned(found: Schema, templates: bool = False, secrets: tuple[str, ...] = ()) -> Schema:
    """Return a schema of keys without what pydantic adds for nobody; each value may be null, or a template.

    Those named in `secrets` may be a secret, or a mapping that holds some.
    """
    found = {key: value for key, value in found.items() if key != "title"}
    needed = found.get("required", [])
    properties = {}
    for name, told in found.get("properties", {}).items():
        value = {key: item for key, item in told.items() if key not in ("title", "default")}
        described = {key: value.pop(key) for key in ("description",) if key in value}
        if "default" in told and told["default"] is not None:
            described["default"] = told["default"]
        if templates:
            arms = [_inner(arm, name in secrets) for arm in _arms(value, name in needed)]
            value = {"anyOf": [*arms, _TEMPLATE, *([_SECRET] if name in secrets else [])]}
        elif name not in needed:
            value = {"anyOf": _arms(value, False)}
        properties[name] = {**described, **(value["anyOf"][0] if len(value.get("anyOf", ())) == 1 else value)}
    return {**found, "properties": properties}


def _arms(value: Schema, needed: bool) -> list[Schema]:
    arms = list(value["anyOf"]) if set(value) == {"anyOf"} else [value]
    if not needed and {"type": "null"} not in arms:
        arms.append({"type": "null"})
    return arms


def _inner(arm: Schema, secret: bool) -> Schema:
    """Let the items of lists and mappings be templates too: text is text to a schema, anything else is not."""
    for key in ("items", "additionalProperties"):
        if isinstance(arm.get(key), dict) and arm[key]:
            more = ([] if arm[key] == {"type": "string"} else [_TEMPLATE]) + ([_SECRET] if secret else [])
            arm = {**arm, key: {"anyOf": [arm[key], *more]}} if more else arm
    return arm
