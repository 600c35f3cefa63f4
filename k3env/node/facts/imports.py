"""Imports: whether the packages of a server really load where ranks run, and whether a GPU runs a kernel of each."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Optional, Union

from k3env.node.container import wrap
from k3env.node.facts import deadline
from k3env.node.facts import venv as venvs
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

ASK_S = 240.0
"""torch and Triton alone take 8 s from a warm page cache; TensorRT LLM from a cold shared filesystem takes minutes."""
MODULES = ("torch", "triton", "einops", "fla", "flashinfer", "tensorrt_llm")
MARK = "k3env-imports "

# Runs in the environment's own Python, in the image. Each line that it prints is whole, so that what was seen before a
# crash of the interpreter is told all the same.
_PROGRAM = r"""
import json, sys, time

mark, modules = sys.argv[1], sys.argv[2].split()

def told(name, kind, problem, seconds):
    print(mark + json.dumps([name, kind, problem, round(seconds, 1)]), flush=True)

def tried(name, kind, work):
    begun = time.monotonic()
    try:
        work()
    except BaseException as error:
        told(name, kind, "%s: %s" % (type(error).__name__, str(error).strip()[:300]), time.monotonic() - begun)
        return False
    told(name, kind, None, time.monotonic() - begun)
    return True

def triton_kernel():
    import torch, triton, triton.language as tl
    import tempfile, os, importlib.util
    source = (
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def add(x, y, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)\n"
    )
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "k3env_kernel.py")
        open(path, "w").write(source)
        spec = importlib.util.spec_from_file_location("k3env_kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.arange(64, device="cuda", dtype=torch.float32)
        out = torch.empty_like(x)
        module.add[(1,)](x, x, out, 64, BLOCK=64)
        torch.cuda.synchronize()
        assert torch.equal(out, x + x), "the sum is wrong"

def flashinfer_kernel():
    import torch, flashinfer
    x = torch.randn(4, 128, device="cuda", dtype=torch.bfloat16)
    weight = torch.ones(128, device="cuda", dtype=torch.bfloat16)
    got = flashinfer.norm.rmsnorm(x, weight, 1e-6).float()
    want = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    torch.cuda.synchronize()
    assert torch.allclose(got, want, atol=5e-2), "the norm is wrong"

def fla_kernel():
    import torch
    from fla.ops.kda import chunk_kda
    shape = dict(device="cuda", dtype=torch.bfloat16)
    q, k, v = (torch.randn(1, 64, 1, 64, **shape) for _ in range(3))
    gate = -torch.rand(1, 64, 1, 64, device="cuda", dtype=torch.float32)
    beta = torch.rand(1, 64, 1, **shape)
    out = chunk_kda(q, k, v, gate, beta)[0]
    torch.cuda.synchronize()
    assert torch.isfinite(out.float()).all(), "the output is not finite"

loaded = {name: tried(name, "import", lambda name=name: __import__(name)) for name in modules}
gpu = False
if loaded.get("torch"):
    import torch
    gpu = bool(torch.cuda.is_available())
told("gpu", "seen", None if gpu else "torch sees none", 0)
if gpu:
    for name, work in (("triton", triton_kernel), ("flashinfer", flashinfer_kernel), ("fla", fla_kernel)):
        if loaded.get(name):
            tried(name, "kernel", work)
"""


@dataclass(frozen=True)
class Imports:
    """What became of each import, and of each kernel."""

    python: str
    problems: dict[str, str] = field(default_factory=dict)
    """`import fla` or `kernel triton` to what went wrong."""
    done: tuple[str, ...] = ()
    """Those that went well."""
    has_gpu: bool = False
    ended: bool = True
    """Whether it came to its end; else it crashed, or took too long, in what follows the last one that is told."""
    source: Evidence = Evidence("")


@deadline(ASK_S + 5.0)
def imports(machine: Machine, profile: Profile) -> Union[Imports, Unreadable, None]:
    """Import the packages of a server in the environment's Python, in the image; None where there is no environment."""
    venv = venvs.venv(machine, profile)
    if venv is None or venv.unfinished:
        return None
    if machine.recorded:
        return Unreadable("a recording can't be tried")
    repo = profile.paths.repo
    around = {"PYTHONNOUSERSITE": "1", "PYTHONPATH": repo or ""}
    words = (venv.python, "-c", _PROGRAM, MARK, " ".join(MODULES))
    argv = wrap(profile.container, words, repo=repo, environment=around, name=machine.name)
    done = machine.run(argv, timeout_s=ASK_S, environment=around, cwd=os.path.dirname(venv.path))
    evidence = Evidence(f"{venv.python} -c …", done.exit_code, done.evidence().excerpt)
    told = [_row(line) for line in done.text.splitlines() if line.startswith(MARK)]
    if not told:
        why = f"no answer after {ASK_S:g} s" if done.timed_out else f"exit code {done.exit_code}"
        return Unreadable(f"{venv.python} says nothing: {why}", evidence)
    return Imports(
        venv.python,
        {f"{kind} {name}": problem for name, kind, problem in told if problem is not None and kind != "seen"},
        tuple(f"{kind} {name}" for name, kind, problem in told if problem is None and kind != "seen"),
        any(kind == "seen" and problem is None for _, kind, problem in told),
        done.ok and any(kind == "seen" for _, kind, _ in told),
        evidence,
    )


def _row(line: str) -> tuple[str, str, Optional[str]]:
    name, kind, problem, _ = json.loads(line[len(MARK) :])
    return str(name), str(kind), None if problem is None else str(problem)
