"""What a checkout is recognised as, and the commands that it would be brought into use with: describe --repo."""

from __future__ import annotations

import os
import shlex
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k3env.errors import UsageError

if TYPE_CHECKING:
    from k3env.k3.variables import Variables
    from k3env.node.facts.asked import Asked
    from k3env.node.facts.checkout import Checkout
    from k3env.node.facts.script import Script


@dataclass(frozen=True)
class Recognised:
    """A checkout on this machine."""

    checkout: Checkout
    script: Script
    asked: Asked
    environments: tuple[str, ...]
    """Those that are there."""


def recognise(path: str) -> Recognised:
    """Read a checkout; nothing of it is run.

    Raises UsageError for a directory that is none.
    """
    from k3env.node.facts import asked, checkout, script, venv
    from k3env.node.machine import Machine

    machine, root = Machine(), os.path.abspath(path)
    try:
        found = script.script(machine, root)
        read = checkout.recognise(machine, root)
        wants = asked.asked(machine, root)
        environments = venv.existing(machine, root)
    except ValueError as error:
        raise UsageError(
            f"{root}/scripts/build_wheel.py can't be read",
            expected="a program in Python 3",
            found=str(error),
            remedy="see git status there, or name another checkout: --repo PATH",
        ) from None
    except OSError as error:
        raise UsageError(
            f"{error.filename or root} can't be read: {error.strerror}",
            expected="a checkout that this user may read",
            found=str(error.strerror),
            remedy="see its owner and permissions, or name another one: --repo PATH",
            subject=root,
        ) from None
    if found is None:
        raise _no_checkout(root, "scripts/build_wheel.py in it", _what_is_there(root))
    if not found.has("--cuda_architectures"):
        told = f"one that takes {', '.join(found.flags[:6])}" if found.flags else "one that takes no options"
        raise _no_checkout(root, "scripts/build_wheel.py that takes --cuda_architectures", told)
    return Recognised(read, found, wants, environments)


def _no_checkout(root: str, expected: str, found: str) -> UsageError:
    from k3env.k3 import build

    above, around = root, None
    while around is None and above != os.path.dirname(above):
        above = os.path.dirname(above)
        around = above if os.path.isfile(os.path.join(above, build.SCRIPT)) else None
    remedy = f"name the checkout's root: --repo {around or 'PATH'}"
    return UsageError(f"{root} is no checkout of TensorRT LLM", expected=expected, found=found, remedy=remedy)


def _what_is_there(root: str) -> str:
    if not os.path.isdir(root):
        return "a file" if os.path.exists(root) else "no such directory"
    if os.path.isfile(os.path.join(root, "HEAD")) and os.path.isdir(os.path.join(root, "objects")):
        return "a bare repository, which has no files checked out"
    return "no such file"


def commands(found: Recognised, variables: Variables) -> list[tuple[str, str]]:
    """Return what is done, and the command that does it, in order.

    `python3` is the node's, or the image's; jobs follow from its CPUs and memory where the variable says auto.
    """
    from k3env.k3 import pins
    from k3env.node.facts.build import objects_of
    from k3env.node.modules.trtllm_build import argv

    jobs = variables.trtllm_jobs
    flags = frozenset(found.script.flags)
    objects = objects_of(variables.trtllm_build_root, found.checkout.root)
    words = argv(flags, arch=variables.trtllm_arch, jobs=jobs if isinstance(jobs, int) else 1, objects=objects)
    before = ("", *words)
    unknown = not isinstance(jobs, int)
    shown = ["JOBS" if unknown and last == "-j" else word for last, word in zip(before, words, strict=False)]
    python = f"{found.checkout.root}/.venv-X.Y/bin/python"
    steps = [
        ("build", _typed("python3", "scripts/build_wheel.py", *shown)),
        ("install", _typed(python, "-m", "pip", "install", "--no-deps", "-e", found.checkout.root)),
        ("extras", _typed(python, "-m", "pip", "install", "--no-deps", *_extras(variables))),
    ]
    if _wants_fork(found, variables):
        around = [f"{name}={value}" for name, value in pins.FLASHINFER_ENVIRONMENT.items()]
        text = pins.flashinfer_requirement(
            variables.flashinfer_url, variables.flashinfer_commit or pins.FLASHINFER_COMMIT
        )
        options = ("--force-reinstall", "--no-deps", "--no-build-isolation", "--no-cache-dir")
        steps.append(("flashinfer", _typed(*around, python, "-u", "-m", "pip", "install", *options, text)))
    return steps


def as_json(found: Recognised, variables: Variables) -> dict[str, Any]:
    """Return all of it as JSON."""
    checkout, script = found.checkout, found.script
    return {
        "schema": "k3env.checkout/1",
        "root": checkout.root,
        "commit": checkout.commit,
        "version": checkout.version,
        "age": script.age,
        "flags": list(script.flags),
        "venv": _venv_rule(script),
        "environments": list(found.environments),
        "submodules": {"paths": list(found.asked.submodules), "absent": list(found.asked.absent)},
        "sparse": found.asked.is_sparse,
        "pins": found.asked.pins,
        "images": found.asked.images,
        "architectures": list(found.asked.architectures),
        "modes": found.asked.modes,
        "flashinfer": {
            "guides": list(checkout.guides),
            "asked_for": checkout.asks_for_fork,
            "commit": checkout.fork_commit,
            "pin": checkout.flashinfer_pin,
            "step": variables.flashinfer_step,
            "installed": _wants_fork(found, variables),
        },
        "commands": [{"step": name, "command": text} for name, text in commands(found, variables)],
    }


def as_text(found: Recognised, variables: Variables) -> str:
    """Return all of it for people."""
    checkout, script, asked = found.checkout, found.script, found.asked
    rows = [
        ("commit", checkout.commit or "no git checkout"),
        ("version", checkout.version or "not said"),
        ("build script", f"{script.age}: {script.told}"),
        ("submodules", _submodules(found)),
        ("environment", _venv_rule(script)),
        ("there now", ", ".join(found.environments) or "none"),
        ("FlashInfer", _fork(found, variables)),
        ("its pins", ", ".join(asked.pins.values()) or "none in requirements.txt"),
        *([("its GPUs", " ".join(asked.architectures))] if asked.architectures else []),
        *((f"image {cpu}", image) for cpu, image in asked.images.items()),
        *((f"mode {mode}", _settings(around)) for mode, around in asked.modes.items()),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [checkout.root]
    for name, text in rows:
        lines += _paragraph(f"  {name.ljust(width)}  ", text)
    lines += ["", "what is done:"]
    for name, text in commands(found, variables):
        lines += [f"  {name}", f"    {text}"]
    return "\n".join(lines)


def _venv_rule(script: Script) -> str:
    from k3env.k3 import ages

    if not script.makes_venv:
        return "none of its own: it installs into python3 itself, as before Kimi K3"
    rule = ".venv-X.Y in the checkout, by python3's version"
    return f"{rule}; with {ages.BUILD_ROOT} ROOT, ROOT/venv-X.Y" if script.has(ages.BUILD_ROOT) else rule


def _submodules(found: Recognised) -> str:
    count, absent = len(found.asked.submodules), found.asked.absent
    if not count:
        return "none"
    if not absent:
        return f"{count}, all there"
    if found.script.fetches_submodules and found.checkout.commit is not None:
        return f"{count}, of which {len(absent)} are absent; the script fetches them"
    return f"{count}, of which {len(absent)} are absent and must be there before: {', '.join(absent[:3])}"


def _fork(found: Recognised, variables: Variables) -> str:
    from k3env.k3 import pins

    checkout = found.checkout
    if not checkout.guides:
        if found.asked.is_sparse:
            return "not known: this checkout is sparse, and leaves out the guides that say it"
        return "no guide for Kimi K3 in this checkout says what it needs"
    if not checkout.asks_for_fork:
        return "asks for none of its own"
    named, taken = checkout.fork_commit, variables.flashinfer_commit or pins.FLASHINFER_COMMIT
    other = f"; flashinfer_commit is {taken}" if named is None or not taken.startswith(named) else ""
    return f"asks for the fork at {named or 'a commit that it does not name'}{other}"


def _settings(around: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in around.items()) or "nothing set"


def _paragraph(label: str, text: str) -> list[str]:
    """Return text behind a label, in lines of 80 columns; a word that is too long stays whole."""
    rows = textwrap.wrap(text, max(80 - len(label), 40), break_long_words=False, break_on_hyphens=False)
    return [(label if at == 0 else " " * len(label)) + row for at, row in enumerate(rows)]


def _wants_fork(found: Recognised, variables: Variables) -> bool:
    step = variables.flashinfer_step
    return step == "fork" or (step == "auto" and found.checkout.asks_for_fork)


def _extras(variables: Variables) -> list[str]:
    from k3env.k3.pins import EXTRAS

    versions = (variables.fla_core_version, variables.einops_version)
    return [f"{name}=={version}" if version else name for name, version in zip(EXTRAS, versions, strict=True)]


def _typed(*words: str) -> str:
    """Return a command as a person would type it; assignments in front stay as they are."""
    return " ".join(
        word if "=" in word and word.partition("=")[0].isidentifier() else shlex.quote(word) for word in words
    )
