"""Profile: from variables to what a fit node is, each value with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from k3env.documents import schema
from k3env.documents.nodes import Node, Position, problem
from k3env.documents.templates import MISSING, Scope
from k3env.k3 import variables
from k3env.k3.variables import Variables
from k3env.playbook.site import NO_SITE, Site
from k3env.protocol.container import Container
from k3env.protocol.profile import Gpu, Paths, Pins, Profile

AUTO = "auto"


@dataclass(frozen=True)
class Settings:
    """The variables of the shipped plays, and what follows from them."""

    variables: Variables
    profile: Profile
    origins: dict[str, str]
    """Where each variable was set: "inventories/x.yml:3:5", "--extra-vars", "k3env's default"; also what a site file
    sets, as "cache.free_gib"."""


DEFAULT = Position("k3env's default")
_NAMES = frozenset(variables.names())


def defaults() -> dict[str, Node]:
    """Return the defaults of the shipped variables, below every other source."""
    return {name: Node.of(value, DEFAULT) for name, value in variables.defaults().items()}


def given(layers: Mapping[str, Node]) -> dict[str, Node]:
    """Return variables without the shipped ones that are null: such a one counts as not given, and has its default."""
    found = {name: node for name, node in layers.items() if node.content is not None or name not in _NAMES}
    return {**{name: node for name, node in defaults().items() if name in layers}, **found}


def resolve(scope: Scope, context: str, site: Site = NO_SITE) -> Settings:
    """Return the shipped variables and the profile.

    Raises DocumentError where a value stands that can't be used.
    """
    nodes = {name: node for name in variables.names() if isinstance(node := scope.raw(name), Node)}
    values = {name: scope.get(name) for name in variables.names()}
    _refuse_null(values, nodes)
    given = {name: value for name, value in values.items() if value is not MISSING}
    whole = Node(nodes, DEFAULT, {name: node.position for name, node in nodes.items()})
    checked = schema.validate(Variables, given, whole, "the shipped variables")
    origins = {name: str(node.position) for name, node in nodes.items()}
    return Settings(checked, _profile(checked, context, site), {**origins, **site.origins})


def _refuse_null(values: Mapping[str, Any], nodes: Mapping[str, Node]) -> None:
    """Refuse a template that comes to null where there is a default: tasks would see null, and checks the default."""
    for name, default in variables.defaults().items():
        if default is not None and values[name] is None:
            raise problem(
                nodes[name],
                f"{name} of the shipped variables comes to null",
                expected=f"a value, or no {name} at all, which is {default!r}",
                found=f"null, from {nodes[name].found}",
                remedy="let the template end with: | default('…', true)",
            )


def _profile(given: Variables, context: str, site: Site) -> Profile:
    made = Profile(
        context=context,
        paths=Paths(
            repo=given.trtllm_repo,
            venv=None if given.trtllm_venv == AUTO else given.trtllm_venv,
            cache_base=given.cache_base,
            checkpoint=given.checkpoint,
            serve_config=given.serve_config,
        ),
        gpu=Gpu(driver_min=str(given.driver_min), count=given.gpus_per_node, arch=given.trtllm_arch),
        pins=Pins(
            trtllm_commit=given.trtllm_commit,
            flashinfer_step=given.flashinfer_step,
            flashinfer_commit=given.flashinfer_commit,
            fla_core_version=given.fla_core_version,
            einops_version=given.einops_version,
        ),
        container=given.container or Container(),
        user=given.k3_user,
        severities=dict(site.severities),
    )
    sections = {name: replace(getattr(made, name), **values) for name, values in site.wanted.items()}
    return replace(made, **sections)
