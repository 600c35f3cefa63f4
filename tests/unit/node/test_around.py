"""What is around a module's commands in a container: certificates, proxies by name alone, and the offline directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.errors import TaskFailed
from k3env.node.container import wrap
from k3env.node.modules._around import around, explained, inside
from k3env.node.modules.command import Command
from k3env.node.modules.pip_packages import PipPackages
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.node.offline import Fetched, Mirror, Wheelhouse
from k3env.protocol import codec, egress
from k3env.protocol.container import Container, Engine
from tests.unit.fetching.served import mirrored
from tests.unit.node import ground

PROXY = "http://user:password@proxy:3128"
DOCKER = Container("docker", "the-image")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ground.Watched:
    for name in egress.NAMES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "ca.pem").write_text("")
    ca = str(tmp_path / "ca.pem")
    return ground.machine(tmp_path / "home", https_proxy=PROXY, PIP_CERT=ca, SSL_CERT_FILE=ca, NETRC="/nowhere")


@pytest.fixture
def directory(tmp_path: Path, machine: ground.Watched) -> Path:
    place = tmp_path / "off line"
    place.mkdir()
    house = {f"{machine.architecture()}-3.12": Wheelhouse("", ()), "riscv64-3.12": Wheelhouse("", ())}
    fetched = Fetched(house, (mirrored(place, Mirror("https://x.invalid/a.git", "git/x.invalid/a.git", ("1" * 40,))),))
    (place / "manifest.json").write_text(codec.dumps(fetched))
    return place


@pytest.mark.parametrize("engine", ["docker", "podman", "enroot"])
def test_a_container_gets_names_never_values(machine: ground.Watched, tmp_path: Path, engine: Engine) -> None:
    container, environment = inside(machine, Container(engine, "the-image"), {"A": "1"})
    words = wrap(container, ("true",), repo="/repo", environment=environment)
    assert {"https_proxy", "PIP_CERT", "A"} <= {after for word, after in zip(words, words[1:]) if word == "--env"}
    assert "password" not in " ".join(words)
    assert container.mounts == (f"{tmp_path}/ca.pem:{tmp_path}/ca.pem:ro",), "once, and only what is there"


def test_without_a_container_the_machine_has_it_all(machine: ground.Watched) -> None:
    assert inside(machine, Container(), {"A": "1"}) == (Container(), {"A": "1"})


def test_what_is_mounted_already_is_not_mounted_twice(machine: ground.Watched, tmp_path: Path) -> None:
    given = Container("docker", "the-image", (f"/elsewhere:{tmp_path}/ca.pem",))
    assert inside(machine, given, {})[0] == given


def test_a_container_sees_the_offline_directory(machine: ground.Watched, directory: Path) -> None:
    module = TrtllmBuild(
        "/repo", "1" * 40, container=DOCKER, environment={"HF_HUB_OFFLINE": "0"}, offline=str(directory)
    )
    on = around(machine, module)
    assert f"{directory}:{directory}:ro" in on.container.mounts
    assert on.environment["PIP_NO_INDEX"] == "1"
    place = f"file://{str(directory).replace(' ', '%20')}/wheels/{machine.architecture()}-3.12"
    assert on.environment["PIP_FIND_LINKS"] == place, "this processor's alone, as a URL: the list is parted at blanks"
    assert on.environment["GITHUB_MIRROR"].endswith("/archives") and on.environment["GIT_ALLOW_PROTOCOL"] == "file"
    assert on.environment["HF_HUB_OFFLINE"] == "0", "the task's own word wins"


def test_a_commands_container_reaches_out_too(machine: ground.Watched, tmp_path: Path) -> None:
    engine = tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text('#!/bin/sh\nwhile [ "$1" != the-image ]; do echo "$1"; shift; done; shift\nexec "$@"\n')
    engine.chmod(0o755)
    machine.environment["PATH"] = f"{engine.parent}:{machine.environment['PATH']}"
    (finding,) = Command(("printenv", "https_proxy"), read_only=True, container=DOCKER).judge(machine, None)  # type: ignore[arg-type]
    assert finding.evidence[0].excerpt.strip().endswith(PROXY) and "\nhttps_proxy\n" in finding.evidence[0].excerpt


FAILURES = [
    ("pip.no_match", "No matching distribution found for conan==2.14.0", "conan==2.14.0 is not in", "--python 3.12"),
    ("pip.no_match", "No matching distribution found for torch>=2.11", "torch>=2.11 is not in", "use an image that"),
    (
        "git.transport",
        "fatal: transport 'https' not allowed",
        "a repository that the checkout asks for",
        "invoke fetch",
    ),
]


@pytest.mark.parametrize("id, said, message, remedy", FAILURES)
def test_what_is_lacking_is_named(
    machine: ground.Watched, directory: Path, id: str, said: str, message: str, remedy: str
) -> None:
    failure = TaskFailed("it failed", found=f"exit code 1: ERROR: {said}", id=id)
    with pytest.raises(TaskFailed, match=message) as caught, explained(machine, str(directory), lambda: "3.12"):
        raise failure
    assert remedy in (caught.value.finding.remedy or "") and caught.value.finding.id == "offline.missing"
    with pytest.raises(TaskFailed, match="it failed"), explained(machine, None):
        raise failure


def test_another_failure_stays_what_it_is(machine: ground.Watched, directory: Path) -> None:
    with pytest.raises(TaskFailed) as caught, explained(machine, str(directory)):
        raise TaskFailed("full", id="pip.disk")
    assert caught.value.finding.id == "pip.disk"


def test_mirrors_of_another_user_are_told_once_for_all(machine: ground.Watched, directory: Path) -> None:
    mirror = f"{directory}/git/x.invalid/a.git"
    failure = TaskFailed(
        "it failed", found=f"fatal: detected dubious ownership in repository at '{mirror}'", id="git.ownership"
    )
    with pytest.raises(TaskFailed, match="git lets uid") as caught, explained(machine, str(directory)):
        raise failure
    remedy = caught.value.finding.remedy or ""
    assert caught.value.finding.id == "offline.owner" and f"find '{directory}/git' -name '*.git' -prune" in remedy
    elsewhere = TaskFailed(
        "it failed", found="fatal: detected dubious ownership in repository at '/r'", id="git.ownership"
    )
    with pytest.raises(TaskFailed, match="it failed"), explained(machine, str(directory)):
        raise elsewhere


@pytest.mark.parametrize("path", ["off", "/off/", "/a/../b"])
def test_a_directory_has_one_name(path: str) -> None:
    with pytest.raises(ValueError, match="offline must be an absolute path"):
        PipPackages(("einops",), venv="/v", offline=path)


def test_sources_that_the_directory_lacks_are_told_before_the_build(machine: ground.Watched, directory: Path) -> None:
    from dataclasses import replace

    from k3env.node import offline
    from k3env.node.facts.toolchain import Toolchain
    from k3env.node.modules import _ground

    wanted, tools = TrtllmBuild("/repo", "1" * 40, offline=str(directory)), Toolchain("aarch64", "3.12", True)
    fetched = offline.read(machine, str(directory))
    assert fetched is not None and _ground._lacking(machine, wanted, {}, tools) == ()
    (directory / "manifest.json").write_text(codec.dumps(replace(fetched, missing={"fmt": "no such tag"})))
    ((told, remedy),) = _ground._lacking(machine, wanted, {}, tools)
    assert told == f"{directory} lacks fmt: no such tag" and "invoke fetch" in remedy
