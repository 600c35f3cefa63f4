"""The checkpoint: what it says it is, whether all of it is there, and whether this node can read it."""

from __future__ import annotations

import errno
import json
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

from k3env.k3 import recipes
from k3env.node.facts import deadline
from k3env.node.facts.mounts import containing, mounts
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
INDEX_BYTES = 128 << 20
"""That of Kimi K3, with 497,220 tensors, takes tens of MB."""
HEADER_BYTES = 64 << 20
SAMPLE_BYTES = 1 << 20
NAMED = 5
GLANCES = 8
"""Shards, and links, that the other nodes of a job look at: a shared tree gets at most 50 stats from each of them."""
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOENT)
"""What reading a shard that is there ends with where it can't be read; ENOENT: a link that leads nowhere."""
_SPARE_S = 0.5
"""What looking into shards leaves of its time, to tell how far it came."""


@dataclass(frozen=True)
class Config:
    """What config.json says."""

    path: str
    """Of the checkpoint's directory."""
    there: bool
    values: dict[str, Any] = field(default_factory=dict)
    """Only what tells models apart."""
    auto_map: tuple[str, ...] = ()
    """The files of Python code that it names."""
    quantization: Optional[str] = None
    """The format of its weights: "mxfp4-pack-quantized"."""
    staged: str = ""
    """What was staged there, where something lacks."""
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Shards:
    """The files that the index names, and what is there of them."""

    path: str
    indexed: int
    """Files that the index names; 0: there is no index."""
    total_bytes: Optional[int] = None
    """Of all tensors, as the index has it."""
    bytes_there: int = 0
    """Of all these files together."""
    missing: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    """Files whose size is not what their own header says, with both."""
    read: int = 0
    """Headers that were read: not all, where time ran out."""
    looked: bool = True
    """False: another node looks at their sizes and headers; this one saw only whether they are there."""
    staged: str = ""
    """What was staged there, where something of the index lacks."""
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Files:
    """The small files beside the weights, and where links lead."""

    path: str
    missing: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    """Files whose links lead out of the mount that the checkpoint lies on: a container that mounts it lacks them."""
    beside: tuple[str, ...] = ()
    """Files whose links lead out of the directory, on the same mount, as Hugging Face's cache has them."""
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Sample:
    """How fast some of the weights could be read."""

    path: str
    mib_per_s: Optional[float]
    """Of the beginnings of the first and last shard; None: there is none. What was read before may come from memory."""
    refused: Optional[str] = None
    """Which shard this user may not read, and what the filesystem said."""
    staged: str = ""
    """What was staged there, where there are no weights."""
    source: Evidence = Evidence("")


@deadline(5.0)
def config(machine: Machine, profile: Profile) -> Union[Config, Unreadable, None]:
    """Read what the checkpoint says it is; None where the profile names none."""
    root = profile.paths.checkpoint
    if root is None:
        return None
    path = os.path.join(root, CONFIG)
    source = Evidence(path)
    try:
        values = json.loads(machine.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return Config(root, False, staged=staged(machine, root), source=Evidence(path, excerpt="no such file"))
    except (ValueError, RecursionError) as error:
        return Unreadable(f"{path} is no JSON: {error}", source)
    if not isinstance(values, dict):
        return Unreadable(f"{path} holds no object", source)
    text = values.get("text_config")
    text = text if isinstance(text, dict) else {}
    told = {key: values.get(key) for key in ("model_type", "architectures")}
    told.update((key, text.get(key)) for key, _ in recipes.CHECKPOINT.text)
    quantized = text.get("quantization_config") or values.get("quantization_config")
    quantized = quantized if isinstance(quantized, dict) else {}
    return Config(root, True, told, _modules(values.get("auto_map")), _word(quantized), source=source)


@deadline(30.0)
def shards(machine: Machine, profile: Profile) -> Union[Shards, Unreadable, None]:
    """Look for every shard of the index; one node of a job also compares their sizes with their headers.

    A safetensors file is eight bytes, its header's length; the header, whose data_offsets count from its end; the data.
    Source: the format's README. 96 shards of Kimi K3 have headers of about 0.8 MB each.
    """
    root = profile.paths.checkpoint
    if root is None:
        return None
    path = os.path.join(root, INDEX)
    try:
        index = json.loads(machine.read(path, INDEX_BYTES))
        names = sorted({str(name) for name in index["weight_map"].values()})
    except (FileNotFoundError, NotADirectoryError):
        return Shards(root, 0, staged=staged(machine, root), source=Evidence(path, excerpt="no such file"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Unreadable(f"{path} is no index of shards: {type(error).__name__} {error}", Evidence(path))
    if any(os.path.isabs(name) or ".." in name.split("/") for name in names):
        return Unreadable(f"{path} names files outside of the checkpoint", Evidence(path))
    told = index.get("metadata")
    total = told.get("total_size") if isinstance(told, dict) else None
    total = total if isinstance(total, int) else None
    if machine.number:
        return _glance(machine, root, names, total)
    sizes = {name: _size(machine, os.path.join(root, name)) for name in names}
    missing = tuple(name for name, size in sizes.items() if size is None)
    there = sum(size or 0 for size in sizes.values())
    source = Evidence(path, excerpt=f"{len(names)} shards, {there} bytes")
    of = "" if total is not None else staged(machine, root)
    found = Shards(root, len(names), total, there, missing, staged=of, source=source)
    misfits, read = [], 0
    for name, size in sizes.items():
        if size is None:
            continue
        if machine.ends is not None and time.monotonic() > machine.ends - _SPARE_S:
            break
        wanted = _wanted_size(machine, os.path.join(root, name))
        read += 1
        if wanted != size:
            misfits.append(f"{name} has {size} bytes, its header says {wanted if wanted is not None else 'nothing'}")
    return replace(found, misfits=tuple(misfits), read=read)


@deadline(10.0)
def files(machine: Machine, profile: Profile) -> Optional[Files]:
    """Look for tokenizer and remote code, and where links lead."""
    root = profile.paths.checkpoint
    if root is None:
        return None
    told = config(machine, profile)
    code = told.auto_map if isinstance(told, Config) else ()
    wanted = dict.fromkeys((*recipes.TOKENIZER, *recipes.REMOTE_CODE, *code))
    missing = tuple(name for name in wanted if not machine.is_file(os.path.join(root, name)))
    outside, beside = _links(machine, root) if machine.is_dir(root) else ((), ())
    return Files(root, missing, outside, beside, Evidence(root))


@deadline(15.0)
def sample(machine: Machine, profile: Profile) -> Optional[Sample]:
    """Read 1 MiB of the first and of the last shard."""
    root = profile.paths.checkpoint
    if root is None:
        return None
    names = [name for name in machine.list(root) if name.endswith(".safetensors")] if machine.is_dir(root) else []
    begun, count = time.monotonic(), 0
    for name in dict.fromkeys((*names[:1], *names[-1:])):
        try:
            count += len(machine.read(os.path.join(root, name), SAMPLE_BYTES))
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            told = f"{name}: {error.strerror}"
            return Sample(root, None, told, source=Evidence(root, excerpt=told))
    took = max(time.monotonic() - begun, 1e-6)
    told = f"{count} bytes of {' and '.join(dict.fromkeys((*names[:1], *names[-1:])))} in {took:.3f} s"
    speed = count / took / (1 << 20) if names else None
    return Sample(root, speed, None, "" if names else staged(machine, root), Evidence(root, excerpt=told))


def staged(machine: Machine, root: str) -> str:
    """Return what hf_snapshot put there, by its record: "moonshotai/Kimi-K3 at 9f62e4e9fffb"; "" for nothing."""
    from k3env.node.web import snapshot

    try:
        found = snapshot.read(machine, root)
    except OSError:
        return ""
    return "" if found is None else f"{found.id} at {found.revision[:12]}"


def _glance(machine: Machine, root: str, names: list[str], total: Optional[int]) -> Shards:
    """Look for the shards in the directory's list: a stat of each from each node is what a file server feels."""
    listed: dict[str, set[str]] = {}
    for inner in {os.path.dirname(name) for name in names}:
        path = os.path.join(root, inner)
        listed[inner] = set(machine.list(path)) if machine.is_dir(path) else set()
    # A link that leads nowhere on this node is in the list too.
    empty = {name for name in _spread(names, GLANCES) if not machine.is_file(os.path.join(root, name))}
    missing = tuple(
        name for name in names if name in empty or os.path.basename(name) not in listed[os.path.dirname(name)]
    )
    told = f"{len(names)} shards, {len(missing)} missing"
    return Shards(root, len(names), total, 0, missing, looked=False, source=Evidence(root, excerpt=told))


def _links(machine: Machine, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names whose links lead off the mount, and those whose links lead out of the directory only."""
    table, real = mounts(machine), machine.realpath(root)
    home = containing(table, real)
    outside, beside = [], []
    names = machine.list(root)
    # Files come by the hundred, and alike: of what all nodes share, one node looks at each.
    for name in _spread(names, GLANCES) if machine.number else names:
        path = os.path.join(root, name)
        if machine.readlink(path) is None:
            continue
        target = machine.realpath(path)
        if containing(table, target) != home:
            outside.append(f"{name} -> {target}")
        elif not target.startswith(real + os.sep):
            beside.append(f"{name} -> {target}")
    return tuple(outside), tuple(beside)


def _spread(names: Sequence[str], most: int) -> Sequence[str]:
    """Return so many names at most, from all over the list."""
    step = max(1, -(-len(names) // most))
    return names[::step]


def _size(machine: Machine, path: str) -> Optional[int]:
    found = machine.stat(path)
    return None if found is None or not machine.is_file(path) else found.st_size


def _wanted_size(machine: Machine, path: str) -> Optional[int]:
    """Return the size that a shard's header gives it; None for what is no safetensors file."""
    head = machine.read(path, 8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    if length > HEADER_BYTES:
        return None
    data = machine.read(path, 8 + length)[8:]
    try:
        header = json.loads(data)
        ends = [int(item["data_offsets"][1]) for name, item in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
        return None
    return 8 + int(length) + max(ends, default=0)


def _modules(auto_map: Any) -> tuple[str, ...]:
    """Return the files that "configuration_kimi_k3.KimiK3Config" and its like are in."""
    told = auto_map.values() if isinstance(auto_map, dict) else ()
    words = [word for item in told for word in (item if isinstance(item, list) else [item]) if isinstance(word, str)]
    names = [word.rpartition("--")[2].partition(".")[0] for word in words]
    return tuple(dict.fromkeys(f"{name}.py" for name in names if name.isidentifier()))


def _word(quantized: dict[str, Any]) -> Optional[str]:
    word = quantized.get("format") or quantized.get("quant_algo") or quantized.get("quant_method")
    return str(word) if word else None
