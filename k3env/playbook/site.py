"""The site file: how much each check matters here, and wanted values that are no variable."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Optional

from k3env.documents import schema, yaml
from k3env.documents.complaints import collected, unknown_key
from k3env.documents.nodes import Node, problem
from k3env.documents.templates import is_template
from k3env.errors import DocumentError, nearest

NAME = "k3env-site.yml"

# What a person may look for here that a variable sets.
_VARIABLES = {
    "driver_min": "driver_min",
    "gpus_per_node": "gpus_per_node",
    "trtllm_arch": "trtllm_arch",
    "paths": "trtllm_repo, trtllm_venv, cache_base, checkpoint and serve_config",
    "pins": "trtllm_commit, flashinfer_commit, fla_core_version and einops_version",
    "container": "container",
    "user": "k3_user",
    "vars": "its name",
}


@dataclass(frozen=True)
class GpuKeys:
    """What GPUs and driver must be, beside the variables driver_min, gpus_per_node and trtllm_arch."""

    __pydantic_config__: ClassVar[dict[str, object]] = schema.CONFIG

    driver: Optional[str] = None
    """The driver that all nodes are meant to have, exactly: `580.105.08`."""
    memory_used_mib: Optional[int] = None
    """MiB that may be in use on a GPU before a job."""
    xid_hours: Optional[float] = None
    """How many hours an error in the kernel's log counts."""

    def __post_init__(self) -> None:
        _not_negative(self, "memory_used_mib", "xid_hours")
        if self.driver is not None and not re.fullmatch(r"[0-9]+(\.[0-9]+)+", self.driver):
            raise ValueError(f"driver must be a version such as 580.105.08, found {self.driver!r}")


@dataclass(frozen=True)
class CacheKeys:
    """What the node-local cache base must offer."""

    __pydantic_config__: ClassVar[dict[str, object]] = schema.CONFIG

    free_gib: Optional[float] = None
    """GiB that must be free on its filesystem."""
    free_inodes: Optional[int] = None
    """Inodes that must be free on its filesystem."""

    def __post_init__(self) -> None:
        _not_negative(self, "free_gib", "free_inodes")


@dataclass(frozen=True)
class ModelKeys:
    """What the checkpoint must offer."""

    __pydantic_config__: ClassVar[dict[str, object]] = schema.CONFIG

    read_mib_per_s: Optional[float] = None
    """MiB/s at which a node must be able to read the weights."""

    def __post_init__(self) -> None:
        _not_negative(self, "read_mib_per_s")


@dataclass(frozen=True)
class SystemKeys:
    """What the node's network, limits and container tools must be."""

    __pydantic_config__: ClassVar[dict[str, object]] = schema.CONFIG

    ib_ports: Optional[list[str]] = None
    """InfiniBand or RoCE ports that must be up: `mlx5_0`, or `mlx5_0/1` with the port."""
    ib_rate_gbps: Optional[float] = None
    """Lowest rate of each of them, Gb/s."""
    serve_port: Optional[int] = None
    """TCP port that trtllm-serve listens on, on the first rank's node."""
    egress_hosts: Optional[list[str]] = None
    """HOST:PORT that ranks connect to where nothing is filled beforehand; [] asks none."""
    nofile: Optional[int] = None
    """Open files that a rank's hard limit must allow."""
    shm_free_gib: Optional[float] = None
    """GiB that must be free in /dev/shm."""
    tmp_free_gib: Optional[float] = None
    """GiB that must be free in a rank's /tmp."""
    enroot_free_gib: Optional[float] = None
    """GiB that must be free where enroot unpacks an image."""
    toolkit_min: Optional[str] = None
    """Lowest version of NVIDIA's container toolkit."""
    image_arch: Optional[str] = None
    """CPU architecture of the nodes, for a login node of another one: aarch64 or x86_64."""

    def __post_init__(self) -> None:
        _not_negative(self, "ib_rate_gbps", "serve_port", "nofile", "shm_free_gib", "tmp_free_gib", "enroot_free_gib")
        for host in self.egress_hosts or ():
            name, colon, port = host.rpartition(":")
            if not (name and colon and port.isascii() and port.isdigit()):
                raise ValueError(f"egress_hosts must be HOST:PORT, found {host!r}")


@dataclass(frozen=True)
class SiteKeys:
    """How much each check matters here, and wanted values that are no variable."""

    __pydantic_config__: ClassVar[dict[str, object]] = schema.CONFIG

    severities: Optional[dict[str, Literal["fail", "warn", "info"]]] = None
    """Ids of checks, or globs such as `cache.*`; an exact id wins over a glob, a longer glob over a shorter."""
    gpu: Optional[GpuKeys] = None
    """What GPUs and driver must be, beside the variables driver_min, gpus_per_node and trtllm_arch."""
    cache: Optional[CacheKeys] = None
    """What the node-local cache base must offer."""
    system: Optional[SystemKeys] = None
    """What the node's network, limits and container tools must be."""
    model: Optional[ModelKeys] = None
    """What the checkpoint must offer."""


SECTIONS = tuple(item.name for item in dataclasses.fields(SiteKeys) if item.name != "severities")
"""Sections of the profile that a site file may set values of."""


def sections() -> dict[str, type[Any]]:
    """Return the keys of each section, as a dataclass."""
    hints = typing.get_type_hints(SiteKeys)
    return {name: typing.get_args(hints[name])[0] for name in SECTIONS}


@dataclass(frozen=True)
class Site:
    """A site file, read."""

    severities: Mapping[str, str] = field(default_factory=dict)
    wanted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What it sets, by section of the profile."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each of these was set: "cache.free_gib" to "k3env-site.yml:3:13"."""


NO_SITE = Site()


def load(path: Path, shown: Optional[str] = None) -> Site:
    """Read a site file.

    Raises DocumentError with all that is wrong, the first one in front.
    """
    return read(yaml.load(path, shown=shown).root)


def read(root: Node) -> Site:
    """Read a site file's values.

    Raises DocumentError.
    """
    what = "a site file"
    problems = [_foreign(root, key, SiteKeys) for key, _ in root.items(what) if key in _VARIABLES]
    gpu = root.child("gpu")
    if gpu is not None and isinstance(gpu.content, dict):
        problems += [_foreign(gpu, key, GpuKeys) for key in gpu.content if key in _VARIABLES]
    problems += [_no_template(root, key) for key, node in root.items(what) if is_template(node)]
    problems += _severities(root)
    if problems:
        raise collected(problems)
    found = schema.validate(SiteKeys, root.plain, root, what)
    wanted = {name: values for name in SECTIONS if (values := _given(getattr(found, name)))}
    severities: dict[str, str] = {**(found.severities or {})}
    return Site(severities, wanted, _origins(root, {"severities": severities, **wanted}))


def _given(keys: Any) -> dict[str, Any]:
    """Return what a section sets; lists as the profile has them."""
    if keys is None:
        return {}
    given = {name: value for name, value in vars(keys).items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _not_negative(keys: Any, *names: str) -> None:
    for name in names:
        if (getattr(keys, name) or 0) < 0:
            raise ValueError(f"{name} must not be negative, found {getattr(keys, name):g}")


def _origins(root: Node, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {f"{section}.{name}": str(root.at((section, name))) for section, found in sections.items() for name in found}


def _severities(root: Node) -> list[DocumentError]:
    """Return an error for each pattern that no check has."""
    node = root.child("severities")
    if node is None or not isinstance(node.content, dict):
        return []
    from k3env.node.checks import select

    errors = []
    for pattern in node.content:
        try:
            select((pattern,))
        except KeyError:
            known = sorted(rule.id for rule in select(("*",)))
            close = nearest(pattern, known)
            errors.append(
                problem(
                    node.keys.get(pattern, node.position),
                    f"no check is called {pattern}",
                    expected="the id of a check, or a glob that some have",
                    found=pattern,
                    remedy=f"did you mean {close}?" if close else "see: invoke explain '*'",
                )
            )
    return errors


def _foreign(root: Node, key: str, keys: type[SiteKeys | GpuKeys]) -> DocumentError:
    names = tuple(item.name for item in dataclasses.fields(keys))
    error = unknown_key(key, names, root, f"a site file has no key {key}")
    found = error.finding
    remedy = f"set {_VARIABLES[key]} as a variable, in the inventory"
    return DocumentError(
        found.message, subject=found.subject, expected=found.expected, found=found.found, remedy=remedy
    )


def _no_template(root: Node, key: str) -> DocumentError:
    return problem(root.child(key) or root, f"{key} of a site file can't be a template", expected="plain values")
