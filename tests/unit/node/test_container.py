"""Commands in containers: the words before them, and that an engine gets what is meant."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from k3env.node.container import prefix, wrap
from k3env.protocol.container import Container, Engine
from tests.unit.node import ground

REPO = "/lustre/TensorRT-LLM"
MOUNTS = ("/models:/models:ro",)
# An engine that notes its words, and runs what comes after the image on this machine.
ENGINE = """#!/bin/sh
[ "$1" = ps ] && exit
printf '%s\\n' "$@" > "$(dirname "$0")/words"
while [ "$1" != the-image ]; do shift; done
shift
exec "$@"
"""


def test_none_puts_nothing_before() -> None:
    assert prefix(Container(), REPO, 1000, 1000, {"A": "1"}) == ()


def test_docker() -> None:
    words = prefix(Container("docker", "the-image", MOUNTS), REPO, 1000, 100, {"B": "2", "A": "secret"}, name="k3env-x")
    owner = f"k3env.owner={os.getuid()}-{os.stat('/proc/self/ns/pid').st_ino}"
    assert words == (
        *("docker", "run", "--rm", "--init", "--name", "k3env-x", "--label", owner, "--stop-timeout", "1"),
        *("--user", "1000:100"),
        *("--mount", f"type=bind,source={REPO},target={REPO}", "--volume", "/models:/models:ro", "--workdir", REPO),
        *("--env", "HOME=/tmp", "--env", "K3ENV_CONTAINER=k3env-x", "--env", "A", "--env", "B", "the-image"),
    )


@pytest.mark.parametrize(("uid", "keeps"), [(1000, True), (0, False)])
def test_podman_keeps_the_user_where_it_is_rootless(uid: int, keeps: bool) -> None:
    assert ("--userns=keep-id" in prefix(Container("podman", "the-image"), REPO, uid, uid)) == keeps


def test_enroot_enters_the_directory_by_itself() -> None:
    words = prefix(
        Container("enroot", "/images/k3.sqsh", MOUNTS), REPO, 1000, 100, {"A": "1"}, f"{REPO}/cpp", "k3env-x"
    )
    assert words == (
        *("enroot", "start", "--rw", "--mount", f"{REPO}:{REPO}", "--mount", "/models:/models:ro"),
        *("--env", "K3ENV_CONTAINER=k3env-x", "--env", "A"),
        *("/images/k3.sqsh", "sh", "-c", 'cd "$1" && shift && exec "$@"', "k3env", f"{REPO}/cpp"),
    )


@pytest.mark.parametrize("engine", ["docker", "podman", "enroot"])
def test_an_engine_starts_the_command_in_place_with_its_environment(tmp_path: Path, engine: str) -> None:
    repo = tmp_path / "a repo; $(touch never)"
    repo.mkdir()
    fake = tmp_path / "engines" / engine
    fake.parent.mkdir()
    fake.write_text(ENGINE)
    fake.chmod(0o755)
    machine = ground.machine(tmp_path / "home", fake.parent)
    container = Container(engine, "the-image")  # type: ignore[arg-type]
    environment = {"TOKEN": "secret"}
    argv = ("sh", "-c", 'pwd; echo "$TOKEN"; echo "$1"', "x", "two words")
    done = machine.run(
        wrap(container, argv, repo=str(repo), environment=environment), cwd=str(repo), environment=environment
    )
    assert done.text.splitlines() == [str(repo), "secret", "two words"]
    words = (fake.parent / "words").read_text()
    assert "secret" not in words, "a value in argv is seen by everybody"
    if engine != "enroot":
        assert f"{os.getuid()}:{os.getgid()}" in words.splitlines()


def test_an_engine_that_is_missing_does_not_start(tmp_path: Path) -> None:
    done = ground.machine(tmp_path).run(wrap(Container("enroot", "the-image"), ("true",)))
    assert done.exit_code == 127


@pytest.mark.parametrize("engine", ["docker", "podman", "enroot", "none"])
def test_each_container_has_a_name_of_its_own_that_says_whose_it_is(engine: Engine) -> None:
    container = Container(engine, "the-image" if engine != "none" else "")
    words = [wrap(container, ("true",), name="20261130-120000-abcdef-rack[1]:22-1.2") for _ in range(2)]
    if engine == "none":
        assert [tuple(each) for each in words] == [("true",)] * 2 and not words[0].removal and not words[0].mark
        return
    named = [each.mark.partition("=")[2] for each in words]
    assert named[0] != named[1]
    for each, name in zip(words, named):
        assert re.fullmatch(rf"k3env-20261130-120000-abcdef-rack_1__22-1\.2\.{os.getpid()}\.\d+\.\d+", name)
        assert each.removal == (() if engine == "enroot" else (engine, "rm", "--force", name))
