"""An older TensorRT LLM, whose build loads packages by conan and clones sources, built where no network is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from k3env.fetching import Target
from k3env.sandbox import upstream
from tests.sandbox.test_offline import TOOLS, Place
from tests.unit.fetching import conans
from tests.unit.fetching.conans import Conans
from tests.unit.fetching.served import daemon
from tests.unit.node import ground

# What the older script does before it compiles, in its words.
OLDER = """    tool = python.with_name("conan")
    run([python, "-m", "pip", "install", "conan=={version}"])
    run([tool, "profile", "detect", "-f"])
    os.system(f"'{{tool}}' remote add --force TensorRT-LLM {url} >/dev/null 2>&1")
    run([tool, "install", "--build=missing", "--remote=TensorRT-LLM", "--output-folder", build / "conan",
         "-s", "build_type=Release", ROOT / "cpp"])
    run(["git", "clone", "-q", "--branch", "v1", "{sources}/fmt", build / "_deps" / "fmt"])
"""
BEFORE = "    generate_fmha(args.clean or args.generate_fmha)\n"


def gcc() -> str:
    """The major version of the compiler here, for which conan looks."""
    said = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"\d+", said)
    return found[0] if found else ""


@contextmanager
def served(root: Path, tools: Conans) -> Iterator[dict[str, str]]:
    """Serve an older checkout, what it clones, and conan's packages; yield the site's variables."""
    commits = upstream.make(root / "served")
    ground.commit(root / "served/fmt", "one", **{"CMakeLists.txt": "x\n"})
    ground.git(root / "served/fmt", "tag", "v1")
    with daemon(root / "served") as url, tools.server(Target(os.uname().machine, gcc=gcc())) as conan:
        work = root / "work"
        ground.git(root, "clone", "-q", str(root / "served" / upstream.TRTLLM), str(work))
        ground.git(work, "checkout", "-q", commits[upstream.TRTLLM][2])
        script = (work / "scripts/build_wheel.py").read_text()
        older = OLDER.format(version=conans.VERSION, url=conan, sources=url) + BEFORE
        source = {"name": "fmt", "git_repository": f"{url}/fmt", "git_tag": "v1"}
        files = {
            "scripts/build_wheel.py": script.replace(BEFORE, older),
            "cpp/conanfile.py": conans.CONANFILE.format(names=("nvrtc_wrapper/[>=1.0]",)),
            "3rdparty/fetch_content.json": json.dumps({"dependencies": [source]}),
        }
        made = ground.commit(work, "Load packages by conan", **files)
        ground.git(work, "push", "-q", "origin", "HEAD:refs/heads/older")
        yield {
            "trtllm_repo": f"{root}/nodes/TensorRT-LLM",
            "trtllm_url": f"{url}/{upstream.TRTLLM}",
            "trtllm_commit": made,
            "flashinfer_step": "none",
        }


def test_an_older_checkout_is_built_from_what_was_carried(tmp_path: Path) -> None:
    probe = ["unshare", *(["-n"] if os.geteuid() == 0 else ["-Urn"]), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs network namespaces")
    if not gcc():
        pytest.skip("needs gcc, whose version conan looks for")
    tools = conans.install(tmp_path / "conan")
    if isinstance(tools, str):
        pytest.skip(f"needs conan from the package index: {tools}")
    place = Place(tmp_path)
    for name, says in TOOLS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
    with served(tmp_path, tools) as variables:
        (tmp_path / "vars.yml").write_text(json.dumps(variables))
        said = place.fetch("--gcc", gcc())
    assert said.code == 0 and f"conan     nvrtc_wrapper/1.0, for gcc {gcc()}" in said.out, said.err + said.out

    # Carried, and the server and the first copy are gone.
    (tmp_path / "off").rename(tmp_path / "fetched")
    shutil.copytree(tmp_path / "fetched", tmp_path / "off", symlinks=True)
    shutil.rmtree(tmp_path / "fetched")
    (tmp_path / "nodes").mkdir()
    assert place.provision("--check").statuses() == {"localhost": "changed"}
    said = place.provision()
    assert said.statuses() == {"localhost": "changed"}, said.err
    own = tmp_path / "nodes/TensorRT-LLM/.k3env"
    (home,) = own.glob("conan-*")
    assert list(home.rglob("wrapper.so")) and not (own / "conan").exists()
    assert place.provision().changes() == {}, "and a second time there is nothing to do"
