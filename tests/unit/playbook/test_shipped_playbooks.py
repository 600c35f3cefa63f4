"""The shipped playbooks compile, with what they promise to say."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from k3env.documents import shipped
from k3env.errors import DocumentError
from k3env.inventory import Inventory
from k3env.inventory.variables import extra
from k3env.k3 import variables
from k3env.playbook import Compiled, Options, compile_playbook, load
from k3env.protocol.plan import Task

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIVEN = ("trtllm_repo=/shared/TensorRT-LLM", f"trtllm_commit={COMMIT}")


def made(name: str, *options: str, tags: tuple[str, ...] = (), check: bool = False) -> dict[str, Compiled]:
    """Compile a shipped playbook for the hosts of the sandbox's inventory."""
    inventory = Inventory.load([shipped.find(shipped.INVENTORIES, "sandbox")], adhoc_allowed=True)
    playbook = load(name)
    targets = playbook.targets(inventory, inventory.select("sandbox"))
    (plans,) = compile_playbook(playbook, targets, Options(tags=tags, check=check, extra=extra(options)))
    return plans


def tasks(name: str, *options: str, tags: tuple[str, ...] = ()) -> list[Task]:
    """Return the tasks that run."""
    first = next(iter(made(name, *options, tags=tags).values()))
    return [task for task in first.plan.tasks if task.skip is None]


@pytest.mark.parametrize(("options", "told"), [((), None), (("trtllm_on_login_node=true",), True)])
def test_a_host_is_told_that_it_may_build_beside_slurm(options: tuple[str, ...], told: bool | None) -> None:
    (build,) = (task for task in tasks("trtllm", *GIVEN, *options) if task.module == "trtllm_build")
    assert build.parameters.get("on_login_node") is told


def test_the_main_job_in_its_order() -> None:
    plans = made("trtllm", *GIVEN)
    assert len(plans) == 4
    assert len({id(compiled.plan) for compiled in plans.values()}) == 1
    plan = next(iter(plans.values())).plan
    assert [task.module for task in plan.tasks if task.skip is None] == [
        "verify", "git_checkout", "trtllm_build", "pip_packages", "pip_packages", "cache_dirs", "rank_env", "verify",
    ]  # fmt: skip
    assert (plan.mode, plan.when_unfollowed) == ("apply", "finish")
    driver, checkout, build, deps, flashinfer, caches, ranks, _whole = plan.tasks
    repo = "/shared/TensorRT-LLM"
    assert driver.parameters == {"checks": ["gpu.driver.*"]}
    assert checkout.parameters["commit"] == build.parameters["commit"] == COMMIT
    assert build.parameters == {"repo": repo, "commit": COMMIT, "arch": "103-real", "install": "no_deps"}
    assert deps.parameters == {"checkout": repo, "packages": ["fla-core", "einops"], "no_deps": True}
    assert flashinfer.parameters == {
        "checkout": repo,
        "packages": [
            "flashinfer-python[cu13] @ git+https://github.com/PerkzZheng/flashinfer-k3.git"
            "@b6cc594918baf76c40c3a6236fd53f0f8fb9d2dc"
        ],
        "if_asked_by": repo,
        "no_deps": True,
        "no_build_isolation": True,
        "force_reinstall": True,
        "no_cache": True,
        "environment": {"BUILD_NVEP": "0", "FLASHINFER_BUILD_NO_PIP": "1"},
    }
    assert ranks.parameters == {"repo": repo, "base": caches.parameters["base"]}


def test_what_can_be_told_to_the_main_job() -> None:
    said = (
        *GIVEN, "trtllm_jobs=8", "trtllm_venv=/v", "fla_core_version=0.6.0", "einops_version=0.8.1",
        "cache_base=/local/c",
        "flashinfer_url=https://mirror/flashinfer.git", 'container={"engine": "enroot", "image": "/i.sqsh"}',
    )  # fmt: skip
    _driver, _checkout, build, deps, flashinfer, caches, ranks, _whole = tasks("trtllm", *said)
    container = {"engine": "enroot", "image": "/i.sqsh"}
    assert (build.parameters["jobs"], build.parameters["container"]) == (8, container)
    assert deps.parameters == {
        "venv": "/v", "packages": ["fla-core==0.6.0", "einops==0.8.1"], "no_deps": True, "container": container,
    }  # fmt: skip
    assert flashinfer.parameters["packages"][0].startswith(
        "flashinfer-python[cu13] @ git+https://mirror/flashinfer.git@"
    )
    assert (caches.parameters["base"], ranks.parameters["venv"]) == ("/local/c", "/v")


@pytest.mark.parametrize("step, installed", [("auto", True), ("fork", True), ("none", False)])
def test_the_step_of_flashinfer(step: str, installed: bool) -> None:
    found = tasks("trtllm", *GIVEN, f"flashinfer_step={step}", tags=("deps",))
    assert [task.name for task in found if "FlashInfer" in task.name] == ["FlashInfer for Kimi K3"] * installed


@pytest.mark.parametrize(
    "tag, modules",
    [
        ("verify", ["verify", "verify"]),
        ("build", ["verify", "git_checkout", "trtllm_build"]),
        ("deps", ["verify", "pip_packages", "pip_packages"]),
        ("caches", ["verify", "cache_dirs", "rank_env"]),
    ],
)
def test_tags_of_the_main_job(tag: str, modules: list[str]) -> None:
    assert [task.module for task in tasks("trtllm", *GIVEN, tags=(tag,))] == modules


def test_caches_need_no_commit_and_builds_do() -> None:
    assert tasks("trtllm", GIVEN[0], tags=("caches",))
    with pytest.raises(DocumentError, match="trtllm_commit is not defined") as caught:
        made("trtllm", GIVEN[0])
    finding = caught.value.finding
    assert finding.subject.startswith("playbooks/trtllm.yml:")
    assert f"--extra-vars trtllm_commit={COMMIT}" in (finding.remedy or "")
    with pytest.raises(DocumentError, match="trtllm_repo is not defined"):
        made("trtllm", GIVEN[1])


def test_the_other_playbooks_need_nothing() -> None:
    assert [task.module for task in tasks("caches")] == ["cache_dirs", "verify"]
    assert [task.module for task in tasks("preflight")] == ["verify"]
    assert next(iter(made("preflight").values())).plan.when_unfollowed == "stop"


def test_staging_leaves_out_what_no_variable_names() -> None:
    assert [task.module for task in tasks("stage")] == ["verify", "verify", "verify"]
    said = ("checkpoint=/shared/Kimi-K3", "dataset=/shared/gsm8k", "hf_endpoint=https://mirror")
    weights, data, judged, *_ = tasks("stage", *said)
    assert weights.parameters == {
        "repo_id": "moonshotai/Kimi-K3",
        "revision": "9f62e4e9fffbd0a83ddd60e1c209d828994b3569",
        "target": "/shared/Kimi-K3",
        "endpoint": "https://mirror",
    }
    assert (data.module, data.parameters["target"], judged.parameters) == (
        "hf_dataset", "/shared/gsm8k", {"checks": ["model.*"]},
    )  # fmt: skip
    assert [task.module for task in tasks("stage", *said, tags=("dataset",))] == ["hf_dataset"]


def test_cubins_for_the_checkout() -> None:
    filled, judged = tasks("stage", GIVEN[0], "cubins_source=/data/cubins.tar", tags=("cubins",))
    assert filled.parameters == {"repo": "/shared/TensorRT-LLM", "source": "/data/cubins.tar"}
    assert judged.parameters == {"checks": ["cache.cubins"]}


def test_the_image_that_the_container_names() -> None:
    source = "docker://nvcr.io#nvidia/tensorrt-llm/release:1.4.0"
    said = (f"image_source={source}", 'container={"engine": "enroot", "image": "/shared/k3.sqsh"}')
    image, judged = tasks("stage", *said, tags=("image",))
    container = {"engine": "enroot", "image": "/shared/k3.sqsh"}
    assert image.parameters == {"source": source, "container": container, "arch": "aarch64"}
    assert judged.parameters == {"checks": ["system.image_sqsh", "system.image_compressor"]}
    with pytest.raises(DocumentError, match="path names no file, nor does container"):
        made("stage", f"image_source={source}")
    carried = tasks("stage", f"image_sha256={'0' * 64}", said[1], tags=("image",))[0]
    assert carried.parameters == {"sha256": "0" * 64, "container": container, "arch": "aarch64"}
    with pytest.raises(DocumentError, match="64 hexadecimal digits"):
        made("stage", "image_sha256=12", said[1])


@pytest.mark.parametrize("text", ["hf_" + "x" * 20, '{"secret": "env:HF_TOKEN"}'])
def test_a_token_is_never_itself(text: str) -> None:
    with pytest.raises(DocumentError, match="hf_token must be a reference") as caught:
        made("stage", "checkpoint=/c", f"hf_token={text}")
    assert "hf_x" not in repr(caught.value.finding)


def test_a_token_is_a_reference(tmp_path: Path) -> None:
    (tmp_path / "token.yml").write_text("hf_token: {secret: env:HF_TOKEN}\n")
    weights = tasks("stage", "checkpoint=/c", f"@{tmp_path}/token.yml")[0]
    assert weights.parameters["token"] == {"$secret": "env:HF_TOKEN"}


def test_the_example_inventory_runs_the_main_job() -> None:
    inventory = Inventory.load([shipped.find(shipped.INVENTORIES, "example")])
    playbook = load("trtllm")
    hosts = inventory.select("gb300-[01-04],gb200-01")
    (plans,) = compile_playbook(playbook, playbook.targets(inventory, hosts), Options())
    assert {name: made.settings.profile.gpu.arch for name, made in plans.items()}["gb200-01"] == "100-real"
    assert len({id(made.plan) for made in plans.values()}) == 2


def test_every_variable_has_a_source_and_a_description() -> None:
    from k3env.documents.schema import json_schema

    described = json_schema(variables.Variables)["properties"]
    assert set(described) == set(variables.names())
    assert all("description" in entry for entry in described.values())
    assert all(variables.sources().values())
    assert set(variables.remedies()) == {"trtllm_repo", "trtllm_commit"}
    assert set(variables.defaults()) == set(variables.names()) - set(variables.remedies())


def test_a_run_that_goes_well_does_not_import_pydantic(tmp_path: Path) -> None:
    top = Path(__file__).resolve().parents[3]
    program = (
        "import sys\n"
        "from k3env.documents import shipped\n"
        "from k3env.inventory import Inventory\n"
        "from k3env.inventory.variables import extra\n"
        "from k3env.playbook import Options, compile_playbook, load\n"
        "inventory = Inventory.load([shipped.find('inventories', 'sandbox')], adhoc_allowed=True)\n"
        "playbook = load('trtllm')\n"
        f"options = Options(extra=extra({list(GIVEN)!r}))\n"
        "compile_playbook(playbook, playbook.targets(inventory, inventory.select('sandbox')), options)\n"
        "assert not {'pydantic', 'ClusterShell', 'paramiko'} & set(sys.modules)\n"
    )
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, cwd=top)
    # Generous: 0.2 s on a quiet machine, interpreter included.
    assert time.perf_counter() - begun < 3
