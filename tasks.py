"""The tasks that a person types here: k3env's own, and those of its developers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from invoke import Collection, Exit, task

from k3env.cli import namespace

# What tests start for real, and the Debian package that has it.
PROGRAMS = {
    "git": "git",
    "git-lfs": "git-lfs",
    "gcc": "gcc",
    "dash": "dash",
    "bash": "bash",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "mksquashfs": "squashfs-tools",
    "strace": "strace",
}


# As root the tests have nodes of their own, in network namespaces, and Slurm on them.
ROOTS = {
    "nft": "nftables",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "sudo": "sudo",
    "csh": "tcsh",
    "fish": "fish",
    # A container engine, 95 MB with what it needs: without it the tests of real containers are skipped.
    "podman": "podman",
    "runc": "runc",
    "catatonit": "catatonit",
    # For those of an ordinary user, whom the tests make and remove.
    "newuidmap": "uidmap",
}
SEARCH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def run(*argv: str) -> None:
    """Run a tool of this environment; its exit code becomes ours."""
    code = subprocess.run(argv).returncode
    if code:
        raise Exit(code=code)


PARTS = (("tests/unit",), ("tests", "--ignore=tests/unit"))
"""Of the tests, about as long as each other."""


def _pytest(number: int, *words: str) -> list[str]:
    """Return pytest's words for a part; each has a cache of its own, which knows what failed last."""
    return [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir=.pytest_cache/part{number}", *words]


def run_beside(*argvs: Sequence[str]) -> None:
    """Run tests side by side; print what each part said when it has ended, and fail if one did.

    What failed is tried once more, alone: real nodes, clusters and engines share two cores with all the others.
    """
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in argvs]
        tools = [subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT) for argv, out in zip(argvs, outputs)]
        try:
            codes = [tool.wait() for tool in tools]
        except BaseException:
            for tool in tools:
                tool.terminate()
            raise
        for out in outputs:
            out.seek(0)
            sys.stdout.write(out.read().decode("utf-8", "replace"))
            sys.stdout.flush()
    for argv, code in zip(argvs, codes):
        if code == 1:
            run(*argv, "--last-failed", "--last-failed-no-failures", "none")
        elif code:
            raise Exit(code=code)


def need_programs() -> None:
    """Install what is missing, as root; say how, as anyone else."""
    wanted = {**PROGRAMS, **(ROOTS if os.geteuid() == 0 else {})}
    missing = sorted({package for program, package in wanted.items() if not shutil.which(program, path=SEARCH)})
    if not missing:
        return
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Exit(f"the tests need {', '.join(missing)}: sudo {' '.join(install)}", code=1)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["apt-get", "update", "-qq"], install):
        if subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL).returncode:
            raise Exit(f"the tests need {', '.join(missing)}, and {' '.join(argv)} failed", code=1)


@task(auto_shortflags=False, help={"only": "what pytest is given instead of all tests, such as tests/unit"})
def test(context, only=""):
    """Run the tests, after installing the programs that they need: those of single parts beside those of the whole."""
    need_programs()
    if only:
        run(sys.executable, "-m", "pytest", "-q", *only.split())
    else:
        run_beside(*(_pytest(number, *part) for number, part in enumerate(PARTS)))


@task(auto_shortflags=False)
def lint(context):
    """Check style, types and the direction of imports."""
    bin_dir = os.path.dirname(sys.executable)
    run(sys.executable, "-m", "ruff", "check", ".")
    run(sys.executable, "-m", "ruff", "format", "--check", ".")
    run(sys.executable, "-m", "mypy")
    run(os.path.join(bin_dir, "lint-imports"))


@task(auto_shortflags=False, name="agent")
def bench_agent(context):
    """Measure what the agent and the road to a node cost, beside their budgets."""
    run(sys.executable, "-m", "tests.bench.agent")


@task(auto_shortflags=False, name="preflight")
def bench_preflight(context):
    """Measure what the preflight in one file costs, over Python's start and the GPU query."""
    run(sys.executable, "-m", "tests.bench.preflight")


@task(auto_shortflags=False, name="noop")
def bench_noop(context):
    """Measure what a play costs that finds all as wanted, on a local and on a slow filesystem, beside ssh true."""
    run(sys.executable, "-m", "tests.bench.noop")


@task(auto_shortflags=False, name="build")
def bench_build(context):
    """Measure what downloads beside the compile save, on the sandbox's miniature, as a ratio."""
    run(sys.executable, "-m", "tests.bench.build")


ns = namespace()
ns.add_task(test)
ns.add_task(lint)
ns.add_collection(Collection("bench", bench_agent, bench_preflight, bench_noop, bench_build))
