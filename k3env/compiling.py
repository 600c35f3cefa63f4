"""Compile for an interpreter: Python code without its source, which zipimport takes as NAME.pyc."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from collections.abc import Mapping

TIMEOUT_S = 120.0

# Runs in the interpreter; constants that are sets depend on the hash seed, so that one is fixed.
_CODE = """
import base64, importlib.util, json, marshal, sys
sources = json.load(sys.stdin)
head = importlib.util.MAGIC_NUMBER + bytes(12)
made = {name: compile(text, name, "exec", dont_inherit=True) for name, text in sorted(sources.items())}
made = {name: base64.b64encode(head + marshal.dumps(code, 2)).decode() for name, code in made.items()}
json.dump([sys.implementation.cache_tag, made], sys.stdout)
"""


def compiled(interpreter: str, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return code by the name of its file, in a directory by the interpreter's format; equal input, equal bytes.

    Raises OSError if the interpreter can't be started, ValueError if it can't compile the sources.
    """
    texts = {name: data.decode() for name, data in sources.items() if name.endswith(".py")}
    # Version 2 of marshal knows no references, whose use depends on what else is alive.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [interpreter, "-s", "-S", "-c", _CODE],
        input=json.dumps(texts).encode(),
        capture_output=True,
        env={name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(said[-1] if said else f"exit code {done.returncode}")
    tag, made = json.loads(done.stdout)
    return {f"compiled-{tag}/{name}c": b64decode(code) for name, code in made.items()}
