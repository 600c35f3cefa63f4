"""Validation: every kind of wrong parameter, at its own place, with the nearest right name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Optional, Union

import jsonschema
import pytest

from k3env.documents import schema, yaml
from k3env.documents.nodes import Node, Position, Text
from k3env.errors import DocumentError, UsageError
from k3env.protocol.container import Container
from k3env.protocol.secret import Secret


@dataclass(frozen=True)
class Demo:
    """Something with parameters of every type."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "use_attribute_docstrings": True}
    SECRETS: ClassVar[tuple[str, ...]] = ("environment",)

    packages: tuple[str, ...]
    """Requirements."""
    venv: Optional[str] = None
    no_deps: bool = False
    jobs: Optional[int] = None
    gib: float = 2
    either: Union[int, str] = 3
    size: Union[int, Literal["auto"]] = "auto"
    install: Literal["no_deps", "resolve"] = "no_deps"
    environment: dict[str, str] = field(default_factory=dict)
    container: Container = Container()

    def __post_init__(self) -> None:
        if self.venv == "bad":
            raise ValueError("venv must not be bad")
        if "torch" in self.packages:
            raise ValueError("no one installs 'torch'")
        if self.venv == "refused":
            raise UsageError("refused altogether", remedy="give up")


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("packages: [a, b]", {"packages": ("a", "b")}),
    ("packages: []\nvenv: null\njobs: ~", {"packages": ()}),
    ("packages: [a]\ngib: 3", {"packages": ("a",), "gib": 3}),
    ("packages: [a]\nsize: 4\neither: x", {"packages": ("a",), "size": 4, "either": "x"}),
    (
        "packages: [a]\ncontainer: {engine: docker, image: i}",
        {"packages": ("a",), "container": Container("docker", "i")},
    ),
]


@pytest.mark.parametrize("text, fields", GOOD, ids=[text for text, _ in GOOD])
def test_is_accepted(text: str, fields: dict[str, Any]) -> None:
    node = yaml.loads(text, "p.yml").root
    assert schema.validate(Demo, node.plain, node, "demo") == Demo(**fields)
    assert schema.problems(Demo, node, "demo") == []


# text, place, message, part of expected, found or remedy
BAD = [
    ("{}", "1:1", "demo needs the parameter packages", "packages"),
    ("pakages: [a]", "1:1", "demo has no parameter pakages", "did you mean packages?"),
    ("packages: [a]\nfoo: 1", "2:1", "demo has no parameter foo", "one of container, either"),
    ("packages: a", "1:11", "packages of demo must be a list", 'the text "a"'),
    ("packages: {a: b}", "1:11", "packages of demo must be a list", "a mapping"),
    ("packages: [a, 2]", "1:15", "packages.1 of demo must be text", '"2"'),
    ("packages: [a, true]", "1:15", "packages.1 of demo must be text", '"true"'),
    ("packages: [a, null]", "1:15", "packages.1 of demo must be text", "null"),
    ("packages: [a]\nvenv: 3.12", "2:7", "venv of demo must be text", '"3.12"'),
    ("packages: [a]\nno_deps: 'true'", "2:10", "no_deps of demo must be true or false", 'the text "true"'),
    ("packages: [a]\nno_deps: 1", "2:10", "no_deps of demo must be true or false", "the number 1"),
    ("packages: [a]\njobs: 2.0", "2:7", "jobs of demo must be a whole number", "the number 2.0"),
    ("packages: [a]\njobs: true", "2:7", "jobs of demo must be a whole number", "true"),
    ("packages: [a]\njobs: many", "2:7", "jobs of demo must be a whole number", 'the text "many"'),
    ("packages: [a]\ngib: x", "2:6", "gib of demo must be a number", 'the text "x"'),
    ("packages: [a]\neither: [1]", "2:9", "either of demo must be a whole number or text", "a list"),
    ("packages: [a]\nsize: atuo", "2:7", "size of demo must be a whole number or auto", "did you mean auto?"),
    (
        "packages: [a]\ninstall: resolv",
        "2:10",
        "install of demo must be one of no_deps, resolve",
        "did you mean resolve?",
    ),
    ("packages: [a]\nenvironment: {A: 1}", "2:18", "environment.A of demo must be text", '"1"'),
    ("packages: [a]\ncontainer: docker", "2:12", "container of demo must be a mapping", 'the text "docker"'),
    ("packages: [a]\ncontainer: {enigne: docker}", "2:13", "container of demo has no parameter enigne", "engine?"),
    (
        "packages: [a]\ncontainer: {engine: dokcer, image: i}",
        "2:21",
        "container.engine of demo",
        "did you mean docker?",
    ),
    ("packages: [a]\ncontainer: {engine: docker}", "2:12", "needs an image", ""),
    (
        "packages: [a]\ncontainer: {engine: docker, image: i, mounts: [/a, 3]}",
        "2:52",
        "container.mounts.1 of demo",
        '"3"',
    ),
    ("packages: [a]\nvenv: bad", "2:7", "venv must not be bad", ""),
    ("packages: [a, torch]", "1:15", "no one installs 'torch'", ""),
    ("packages: [a]\nvenv: refused", "1:1", "refused altogether", "give up"),
]


@pytest.mark.parametrize("text, place, message, detail", BAD, ids=[case[0] for case in BAD])
def test_is_refused(text: str, place: str, message: str, detail: str) -> None:
    node = yaml.loads(text, "p.yml").root
    with pytest.raises(DocumentError) as caught:
        schema.validate(Demo, node.plain, node, "demo")
    finding = caught.value.finding
    assert finding.subject == f"p.yml:{place}"
    assert message in finding.message
    assert detail in f"{finding.expected} {finding.found} {finding.remedy}"
    assert [error.finding for error in schema.problems(Demo, node, "demo")][:1] == [finding]


def test_all_that_is_wrong_is_told_at_once() -> None:
    node = yaml.loads("packages: [1]\nvenv: 2\njobs: x\n", "p.yml").root
    with pytest.raises(DocumentError) as caught:
        schema.validate(Demo, node.plain, node, "demo")
    finding = caught.value.finding
    assert finding.subject == "p.yml:1:12"
    assert [item.source for item in finding.evidence] == ["p.yml:2:7", "p.yml:3:7"]
    assert "jobs of demo must be a whole number" in finding.evidence[1].excerpt


def test_what_is_no_template_is_checked_before_rendering() -> None:
    text = "packages: ['{{ x }}']\nvenv: '{{ y }}'\njobs: '{{ z }}'\nno_deps: maybe\nnodeps: '{{ q }}'\n"
    found = schema.problems(Demo, yaml.loads(text, "p.yml").root, "demo")
    assert {error.finding.subject for error in found} == {"p.yml:4:10", "p.yml:5:1"}
    assert schema.problems(Demo, yaml.loads("packages: ['{{ x }}']\n", "p.yml").root, "demo") == []
    (missing,) = schema.problems(Demo, yaml.loads("venv: '{{ x }}'\n", "p.yml").root, "demo")
    assert "needs the parameter packages" in missing.finding.message


def test_text_without_a_type_becomes_what_is_wanted() -> None:
    values = {
        "packages": Text('["a", "b"]'),
        "no_deps": Text("true"),
        "jobs": Text("3"),
        "gib": Text("0.5"),
        "size": Text("auto"),
        "install": Text("resolve"),
        "venv": Text("3"),
        "either": Text("4"),
        "environment": {"A": Text("1")},
        "container": Text('{"engine": "docker", "image": "i"}'),
    }
    made = schema.validate(Demo, values, Node.of({}, Position("--extra-vars")), "demo")
    assert made == Demo(("a", "b"), "3", True, 3, 0.5, "4", "auto", "resolve", {"A": "1"}, Container("docker", "i"))
    assert (
        schema.validate(Demo, {"packages": [Text("1")], "size": Text("4")}, Node.of({}, Position("x")), "demo").size
        == 4
    )


def test_text_that_is_not_what_is_wanted() -> None:
    for text, found in [("many", 'the text "many"'), ("2.5", "the number 2.5"), ("[1]", "a list")]:
        with pytest.raises(DocumentError, match="must be a whole number") as caught:
            schema.validate(
                Demo, {"packages": ["a"], "jobs": Text(text)}, Node.of({}, Position("--extra-vars")), "demo"
            )
        assert caught.value.finding.found == found
        assert caught.value.finding.subject == "--extra-vars"


def test_secrets_count_as_text() -> None:
    node = Node.of({}, Position("p.yml", 1, 1))
    secret = {"packages": ["a"], "environment": {"TOKEN": Secret("env:TOKEN")}}
    assert schema.validate(Demo, secret, node, "demo").packages == ("a",)
    with pytest.raises(DocumentError, match="jobs of demo can't be a secret"):
        schema.validate(Demo, {"packages": ["a"], "jobs": Secret("env:JOBS")}, node, "demo")


def test_numbers_that_json_cannot_hold() -> None:
    node = yaml.loads("packages: [a]\ngib: .inf\n", "p.yml", yaml.ANSIBLE).root
    with pytest.raises(DocumentError, match="no finite number") as caught:
        schema.validate(Demo, node.plain, node, "demo")
    assert caught.value.finding.subject == "p.yml:2:6"


def test_the_json_schema_has_the_docstrings_and_agrees() -> None:
    found = schema.json_schema(Demo)
    assert found["properties"]["packages"]["description"] == "Requirements."
    jsonschema.validate({"packages": ["a"], "jobs": 3}, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads('{"packages": ["a"], "nodeps": true}'), found)
