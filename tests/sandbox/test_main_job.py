"""The main job on the sandbox: built once, converged ever after, and every promise broken and mended."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.cli import Said, Site, tasks_with

TRAYS = ["tray-01", "tray-02", "tray-03", "tray-04"]


def test_the_first_run_builds_once_and_all_four_are_verified(site: Site, first: Said) -> None:
    assert first.code == 0, first.err
    hosts = first.document["hosts"]
    assert list(hosts) == TRAYS
    assert all(
        host["failed"] == host["unreachable"] == host["notrun"] == 0 and host["simulated"] for host in hosts.values()
    )
    for module in ("git_checkout", "trtllm_build"):
        assert sum(module in tasks_with(first, name, ["changed"]) for name in TRAYS) == 1
    assert len(list((site.checkout / ".k3env" / "logs").glob("*-1.3.log"))) == 1, "one build, one log"
    assert all("cache_dirs" in tasks_with(first, name, ["changed"]) for name in TRAYS)
    assert "simulated" in first.err


def test_the_second_run_changes_nothing_and_starts_neither_pip_nor_the_build(provisioned: Site) -> None:
    logs = sorted((provisioned.checkout / ".k3env" / "logs").iterdir())
    before = _snapshot(provisioned.checkout)
    again = provisioned.provision("--detailed-exitcode")
    assert again.code == 0 and again.changes() == {}
    assert set(again.statuses().values()) == {"ok"}
    assert sorted((provisioned.checkout / ".k3env" / "logs").iterdir()) == logs
    assert _snapshot(provisioned.checkout) == before


def test_what_was_skipped_is_explained(provisioned: Site) -> None:
    said = provisioned.provision("--explain-skip", "--skip-tags", "deps")
    tasks = {task["module"]: task for task in said.document["hosts"]["tray-01"]["tasks"] if task["status"] == "ok"}
    assert "CMakeCache.txt says 103-real" in tasks["trtllm_build"]["message"]
    assert "HEAD of" in tasks["git_checkout"]["message"] and "mode 0700" in tasks["cache_dirs"]["message"]
    skipped = [task for task in said.document["hosts"]["tray-01"]["tasks"] if task["status"] == "skipped"]
    assert skipped and all(task["message"] == "tags: deps; --skip-tags deps" for task in skipped)
    assert "  CMakeCache.txt says 103-real; the manifest says commit " in said.err
    assert max(map(len, said.err.splitlines())) < 120


def pip(site: Site, *arguments: str) -> None:
    argv = [site.venv / "bin" / "python", "-m", "pip", *arguments, "-q", "--disable-pip-version-check"]
    subprocess.run(argv, check=True, capture_output=True)


def remove_einops(site: Site) -> None:
    pip(site, "uninstall", "-y", "einops")


def replace_flashinfer_by_an_index_release(site: Site) -> None:
    """Put a wheel of the same version there, as PyPI's would be: no commit is recorded for it."""
    wheels = site.state / "wheels"
    url = (site.rack / "upstream" / "flashinfer").as_uri()
    pip(site, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), f"flashinfer-python @ git+{url}")
    pip(site, "uninstall", "-y", "flashinfer-python")
    pip(site, "install", "--no-deps", "--no-index", "--find-links", str(wheels), "flashinfer-python==0.6.16")
    (info,) = site.venv.glob("lib/*/site-packages/flashinfer_python-*.dist-info")
    assert not (info / "direct_url.json").exists()
    for path in site.venv.glob("lib/*/site-packages/flashinfer/_build_meta.py"):
        path.write_text('__version__ = "0.6.16"\n')


def install_another_commit(site: Site) -> None:
    upstream = site.rack / "upstream" / "flashinfer"
    commits = subprocess.run(["git", "-C", upstream, "rev-list", "--all"], check=True, capture_output=True, text=True)
    (info,) = site.venv.glob("lib/*/site-packages/flashinfer_python-*.dist-info")
    now = json.loads((info / "direct_url.json").read_text())["vcs_info"]["commit_id"]
    other = next(commit for commit in commits.stdout.split() if commit != now)
    requirement = f"flashinfer-python @ git+{upstream.as_uri()}@{other}"
    pip(site, "install", "--force-reinstall", "--no-deps", "--no-build-isolation", "--no-cache-dir", requirement)


def chmod_cache_base(site: Site) -> None:
    (site.rack / "tray-02" / "home" / "cache").chmod(0o755)


def edit_rank_env(site: Site) -> None:
    path = site.checkout / ".k3env" / "rank_env.sh"
    path.write_text(path.read_text() + "export TRITON_CACHE_DIR=/nfs/home/triton\n")


def delete_a_library(site: Site) -> None:
    (site.checkout / "tensorrt_llm" / "libs" / "libth_common.so").unlink()


def change_the_arch_in_the_cmake_cache(site: Site) -> None:
    path = site.checkout / "cpp" / "build" / "CMakeCache.txt"
    path.write_text(path.read_text().replace("103-real", "100-real"))


def move_head(site: Site) -> None:
    subprocess.run(["git", "-C", site.checkout, "checkout", "-q", "HEAD~1"], check=True)


def leave_the_python_dangling(site: Site) -> None:
    for name in ("python", "python3"):
        path = site.venv / "bin" / name
        if path.is_symlink():
            path.unlink()
            path.symlink_to("/opt/image-of-last-month/bin/python3")


@pytest.mark.parametrize(
    ("damage", "named", "hosts"),
    [
        (remove_einops, "einops", 4),
        (replace_flashinfer_by_an_index_release, "flashinfer-python", 4),
        (install_another_commit, "flashinfer-python", 4),
        (chmod_cache_base, "mode", 1),
        (edit_rank_env, "rank_env.sh", 4),
        (delete_a_library, "libth_common.so", 4),
        (change_the_arch_in_the_cmake_cache, "CMAKE_CUDA_ARCHITECTURES", 4),
        (move_head, "HEAD", 4),
        (leave_the_python_dangling, "/.venv-", 4),
    ],
)
def test_each_broken_promise_is_one_change_named_then_made_then_gone(
    provisioned: Site, damage: Callable[[Site], None], named: str, hosts: int
) -> None:
    damage(provisioned)
    before = _snapshot(provisioned.checkout)
    checked = provisioned.provision("--check", "--diff", "--detailed-exitcode")
    assert checked.code == 5, checked.err
    assert len(checked.changes()) == hosts
    for names in checked.changes().values():
        assert len(names) == 1 and named in names[0]
    assert named in checked.err and _snapshot(provisioned.checkout) == before, "--check must change nothing"
    mended = provisioned.provision()
    assert mended.code == 0, mended.err
    assert [len(names) for names in mended.changes().values()] == [1], "one node mends it, and only it"
    assert provisioned.provision("--detailed-exitcode").changes() == {}


def test_a_manifest_alone_proves_nothing(provisioned: Site) -> None:
    """With all artefacts gone and the manifest in place, everything is made again."""
    libs = provisioned.checkout / "tensorrt_llm" / "libs"
    shutil.rmtree(libs)
    checked = provisioned.provision("--check", hosts="tray-01")
    assert any("libs" in name or "build" in name for name in checked.changes()["tray-01"])
    assert provisioned.provision().code == 0 and (libs / "libth_common.so").is_file()


def test_facts_come_from_the_trays_files_not_from_the_inventory(provisioned: Site) -> None:
    version = provisioned.rack / "tray-03" / "overlay" / "proc" / "driver" / "nvidia" / "version"
    original = version.read_text()
    try:
        version.write_text(original.replace("580.105.08", "570.86.15"))
        said = provisioned.k3env("verify", "--hosts", "sandbox", "--output", "json")
        assert said.code == 2
        assert said.statuses() == {**dict.fromkeys(TRAYS, "ok"), "tray-03": "failed"}
        finding = next(item for item in said.findings("tray-03") if item["id"] == "gpu.driver.version")
        assert (finding["expected"], finding["found"]) == (">= 580", "570.86.15") and "upgrade" in finding["remedy"]
    finally:
        version.write_text(original)
    assert provisioned.k3env("verify", "--hosts", "sandbox", "--output", "json").code == 0


def _snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file of the checkout, without git's own and what Python caches."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and ".git/" not in f"{path}/" and "__pycache__" not in path.parts:
            status = path.lstat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found
