"""hf_snapshot and hf_dataset against a hub of our own: what comes, what is refused, and what goes on after a fault."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import K3Error, Refused, TaskFailed
from k3env.node.cancel import Cancelled
from k3env.node.machine import Machine, Space
from k3env.node.modules.hf_dataset import HfDataset
from k3env.node.modules.hf_snapshot import HfSnapshot
from k3env.node.web import download, snapshot
from k3env.node.web.hub import HubFile
from k3env.protocol import egress
from k3env.protocol.profile import Profile
from k3env.protocol.secret import Secret, placeholder
from tests.agent import Agent, task
from tests.hub import REVISION, SIGNATURE, Fault, Hub, authority, certified, wait_for
from tests.unit.node.ground import perform

REPO, NAME = "moonshotai/Kimi-K3", "models/moonshotai/Kimi-K3"
SHARDS = [f"model-{number:05d}-of-000002.safetensors" for number in (1, 2)]
TOKEN = "hf_0123456789abcdef"  # noqa: S105


def shard(size: int) -> bytes:
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(size)


def contents() -> dict[str, bytes]:
    """Return a model in small; its shards are larger than what is read at once."""
    index = {"metadata": {"total_size": 1}, "weight_map": {f"t{at}": name for at, name in enumerate(SHARDS)}}
    return {
        "config.json": b'{"model_type": "kimi_k3"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tiktoken.model": b"tokens",
        "empty.txt": b"",
        "docs/deep/é guide.md": b"# text",
        **{name: shard(3 << 20) for name in SHARDS},
    }


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "BACKOFF_S", 0.01)
    monkeypatch.setattr(download, "POLL_S", 0.02)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({NAME: contents()}) as made:
        yield made


class Watched(Machine):
    """A machine that keeps what it tells."""

    def __init__(self, **environment: str) -> None:
        self.told: list[str] = []
        super().__init__(
            environment={"no_proxy": "*", **environment}, on_progress=lambda text, fraction: self.told.append(text)
        )


@pytest.fixture
def on() -> Watched:
    return Watched()


def module(hub: Hub, target: Path, **more: Any) -> HfSnapshot:
    return HfSnapshot(REPO, REVISION, str(target), endpoint=hub.url(), **more)


def files(target: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file() and ".k3env" not in path.parts
    }


def refused(staged: HfSnapshot | HfDataset, on: Machine) -> K3Error:
    with pytest.raises(TaskFailed) as caught:
        staged.apply(on, staged.changes(on))
    finding = caught.value.finding
    assert finding.expected and finding.found and finding.remedy
    return caught.value


# What comes


def test_all_of_it_comes_and_nothing_is_asked_afterwards(hub: Hub, on: Watched, tmp_path: Path) -> None:
    target = tmp_path / "deep/Kimi-K3"
    staged = module(hub, target)
    (change,) = staged.changes(on)
    assert (change.what, change.before) == (f"snapshot {target}", "absent")
    assert hub.requests == []
    perform(staged, on)
    (told, proven) = staged.reasons(on)
    assert (
        told.startswith(f"{target} has {len(contents())} files (")
        and told.endswith(f"of {REPO} at {REVISION[:12]}")
        and proven
    )
    assert files(target) == hub.repositories[NAME]
    assert not Path(snapshot.parts(str(target))).exists()
    asked = len(hub.requests)
    assert staged.changes(on) == () and staged.judge(on, Profile()) == ()
    assert len(hub.requests) == asked
    assert len(hub.asked("/tree/")) == 3
    assert any("of 0.0 GiB, 3 of 3 files" in text for text in on.told)


def test_what_was_carried_without_its_times_is_compared_where_no_hub_is(hub: Hub, on: Watched, tmp_path: Path) -> None:
    perform(module(hub, tmp_path / "t"), on)
    shutil.copytree(tmp_path / "t", tmp_path / "carried", copy_function=shutil.copyfile)
    for path in (tmp_path / "carried").rglob("*"):
        os.utime(path, (1, 1))
    wanted = HfSnapshot(REPO, REVISION, str(tmp_path / "carried"), endpoint="http://127.0.0.1:9")
    perform(wanted, Watched(no_proxy="*"))
    assert files(tmp_path / "carried") == hub.repositories[NAME]


def test_patterns_choose(hub: Hub, on: Watched, tmp_path: Path) -> None:
    perform(module(hub, tmp_path / "t", include=("*.json", "*.md"), exclude=("docs/*",)), on)
    assert set(files(tmp_path / "t")) == {"config.json", "model.safetensors.index.json"}
    asked = len(hub.asked("/api/"))
    changes = perform(module(hub, tmp_path / "t"), on)
    assert len(changes) == 5 and len(hub.asked("/api/")) == asked
    assert len(hub.asked("/config.json")) == 1
    assert refused(module(hub, tmp_path / "u", include=("*.bin",)), on).finding.id == "hub.nothing_chosen"


def test_many_changes_are_told_in_one(hub: Hub, on: Watched, tmp_path: Path) -> None:
    perform(module(hub, tmp_path / "t", include=("config.json",)), on)
    (tmp_path / "t/config.json").unlink()
    (change,) = module(hub, tmp_path / "t").changes(on)
    assert change.what == "7 files" and change.before.endswith("and 2 more")


def test_what_is_there_already_is_compared_and_kept(hub: Hub, on: Watched, tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.mkdir()
    right, wrong = (hub.repositories[NAME][name] for name in SHARDS)
    (target / SHARDS[0]).write_bytes(right)
    (target / SHARDS[1]).write_bytes(wrong[:-1] + b"?")
    os.utime(target / SHARDS[0], (1, 1))
    assert module(hub, target).changes(on)[0].before == "not known"
    perform(module(hub, target), on)
    assert (target / SHARDS[0]).stat().st_mtime == 1
    assert files(target) == hub.repositories[NAME]
    assert not hub.asked(SHARDS[0])


@pytest.mark.parametrize("spoil", ["size", "time", "gone", "directory"])
def test_the_record_is_not_trusted_alone(hub: Hub, on: Watched, tmp_path: Path, spoil: str) -> None:
    perform(module(hub, tmp_path), on)
    path, asked = tmp_path / SHARDS[0], len(hub.asked(SHARDS[0]))
    if spoil == "size":
        path.write_bytes(path.read_bytes()[:-1])
    elif spoil == "time":
        path.touch()
    else:
        path.unlink()
    if spoil == "directory":
        (tmp_path / "config.json").unlink()
        (tmp_path / "config.json").mkdir()
    assert [change.what for change in module(hub, tmp_path).changes(on)][-1:] == [SHARDS[0]]
    if spoil == "directory":
        with pytest.raises(OSError, match="directory"):
            module(hub, tmp_path).apply(on, ())
        return
    perform(module(hub, tmp_path), on)
    assert files(tmp_path) == hub.repositories[NAME]
    assert len(hub.asked(SHARDS[0])) == asked + (0 if spoil == "time" else 2)


def test_another_revision_replaces_what_the_first_one_left(hub: Hub, on: Watched, tmp_path: Path) -> None:
    perform(module(hub, tmp_path), on)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "other.safetensors").write_bytes(b"x")
    assert [finding.id for finding in module(hub, tmp_path).judge(on, Profile())] == ["hub.others"]
    (tmp_path / "other.safetensors").unlink()
    hub.revisions[NAME] = "1" * 40
    hub.repositories[NAME] = {**contents(), "config.json": b"new"}
    del hub.repositories[NAME]["empty.txt"]
    other = HfSnapshot(REPO, "1" * 40, str(tmp_path), endpoint=hub.url())
    assert other.changes(on)[0].before == f"{REPO} at {REVISION[:12]}"
    perform(other, on)
    assert files(tmp_path) == {**hub.repositories[NAME], "mine.txt": b"mine"}


def test_a_link_into_a_cache_is_replaced_and_not_written_through(hub: Hub, on: Watched, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "t/config.json").symlink_to(tmp_path / "elsewhere")
    perform(module(hub, tmp_path / "t"), on)
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"
    assert not (tmp_path / "t/config.json").is_symlink()


def test_a_dataset(on: Watched, tmp_path: Path) -> None:
    wanted = {"README.md": b"---", "main/test-00000-of-00001.parquet": b"PAR1" * 9}
    with Hub({"datasets/openai/gsm8k": wanted}) as hub:
        perform(HfDataset("openai/gsm8k", REVISION, str(tmp_path), endpoint=hub.url()), on)
    assert files(tmp_path) == wanted


def test_the_nodes_own_mirror_and_token(hub: Hub, tmp_path: Path) -> None:
    hub.token = TOKEN
    perform(HfSnapshot(REPO, REVISION, str(tmp_path)), Watched(HF_ENDPOINT=f"{hub.url()}/", HF_TOKEN=TOKEN))


# Faults that pass


def tampered(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


PASSING: dict[str, tuple[str, Fault]] = {
    "cut in a shard": (f"cdn:{SHARDS[0]}", Fault(cut_after=2 << 20)),
    "cut three times": (f"cdn:{SHARDS[0]}", Fault(times=3, cut_after=1 << 20)),
    "cut before anything came": (f"cdn:{SHARDS[0]}", Fault(times=4, cut_after=0)),
    "cut in the tree": ("/tree/", Fault(cut_after=10)),
    "429, by seconds": ("/tree/", Fault(status=429, headers={"Retry-After": "0"})),
    "429, by date": (SHARDS[0], Fault(status=429, headers={"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT"})),
    "500": ("/config.json", Fault(times=5, status=500)),
    "503 of the other host": (f"cdn:{SHARDS[1]}", Fault(times=2, status=503)),
    "a signature that is too old": (f"cdn:{SHARDS[1]}", Fault(times=2, status=403)),
    "another content, once": (f"cdn:{SHARDS[0]}", Fault(change=tampered)),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes(hub: Hub, on: Watched, tmp_path: Path, name: str) -> None:
    where, fault = PASSING[name]
    hub.faults[where] = fault
    perform(module(hub, tmp_path), on)
    assert files(tmp_path) == hub.repositories[NAME]
    assert fault.times == 0


def test_what_was_cut_is_gone_on_with(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.faults[f"cdn:{SHARDS[0]}"] = Fault(cut_after=2 << 20)
    perform(module(hub, tmp_path), on)
    first, second = hub.asked(SHARDS[0], "cdn")
    assert (first.range, second.range) == (None, f"bytes={2 << 20}-")


def test_a_server_without_ranges_sends_all_of_it_again(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.faults[f"cdn:{SHARDS[0]}"] = Fault(times=1, cut_after=1 << 20)
    hub.faults[f"cdn:{NAME}/{SHARDS[0]}"] = Fault(times=1, ignore_range=True)
    perform(module(hub, tmp_path), on)
    assert files(tmp_path) == hub.repositories[NAME]
    assert [item.range for item in hub.asked(SHARDS[0], "cdn")] == [None, f"bytes={1 << 20}-"]


def test_a_wait_that_is_too_long_is_told_at_once(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.faults["/tree/"] = Fault(99, 429, {"Retry-After": "86400"})
    assert refused(module(hub, tmp_path / "t"), on).finding.found == "status 429, Retry-After: 86400"
    assert len(hub.asked("/tree/")) == 1


def test_a_later_run_goes_on_too(hub: Hub, on: Watched, tmp_path: Path) -> None:
    staged = module(hub, tmp_path, jobs=1)
    begun = Fault(cut_after=2 << 20)
    hub.faults[f"cdn:{SHARDS[1]}"] = begun
    dead = Fault(99, 404)

    monitored = hub.fault

    def fault(host: str, path: str) -> Fault | None:
        found = monitored(host, path)
        if found is begun:
            hub.faults[SHARDS[1]] = dead
        return found

    hub.fault = fault  # type: ignore[method-assign]
    assert refused(staged, on).finding.id == "hub.not_found"
    assert {"config.json", SHARDS[0]} <= set(files(tmp_path)) < set(hub.repositories[NAME]) - {SHARDS[1]}
    hub.faults.clear()
    before = len(hub.requests)
    perform(staged, on)
    later = hub.requests[before:]
    assert {(item.host, item.range) for item in later if SHARDS[1] in item.path} == {
        (host, f"bytes={2 << 20}-") for host in ("hub", "cdn")
    }
    assert not [item for item in later if "/api/" in item.path or "config.json" in item.path]


def test_a_part_that_is_too_long_or_wrong_is_begun_anew(hub: Hub, on: Watched, tmp_path: Path) -> None:
    parts = Path(snapshot.parts(str(tmp_path)))
    parts.mkdir(parents=True)
    for name, length in zip(SHARDS, (4 << 20, 1 << 20)):
        content = hub.repositories[NAME][name]
        file = HubFile(name, len(content), hashlib.sha256(content).hexdigest(), True)
        (parts / snapshot.part_name(file)).write_bytes(b"x" * length)
    perform(module(hub, tmp_path), on)
    assert files(tmp_path) == hub.repositories[NAME]
    assert [item.range for item in hub.asked(SHARDS[1], "cdn")] == [f"bytes={1 << 20}-", None]


def test_equal_files_do_not_meet(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.repositories[NAME] = {f"{number}.model": b"equal" * 100_000 for number in range(16)}
    perform(module(hub, tmp_path, jobs=16), on)
    assert files(tmp_path) == hub.repositories[NAME]


def test_a_server_that_stands_still_is_left(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.faults[f"cdn:{SHARDS[0]}"] = Fault(stall_after=1 << 20)
    perform(module(hub, tmp_path, stall_s=1.0), on)
    assert hub.asked(SHARDS[0], "cdn")[-1].range == f"bytes={1 << 20}-"


def test_a_cancel_does_not_wait_for_a_silent_server(
    hub: Hub, on: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "STOP_S", 0.1)
    hub.faults[f"cdn:{SHARDS[0]}"] = Fault(stall_after=1 << 20)

    def cancel() -> None:
        wait_for(lambda: bool(hub.asked(SHARDS[0], "cdn")))
        on.cancel.request("cancelled")

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(Cancelled):
        module(hub, tmp_path).apply(on, ())
    thread.join()
    hub.released.set()
    assert SHARDS[0] not in files(tmp_path)


# Faults that stay

CODE = "X-Error-Code"
GATED = {CODE: "GatedRepo", "X-Error-Message": "Access to model moonshotai/Kimi-K3 is restricted"}
LASTING: dict[str, tuple[str, Fault, str, str]] = {
    "403, gated": ("/tree/", Fault(99, 403, GATED), "hub.gated", "accept the terms on http"),
    "404, no such revision": ("/revision/", Fault(99, 404, {CODE: "RevisionNotFound"}), "hub.not_found", "pin"),
    "404, no such repository": ("/revision/", Fault(99, 404, {CODE: "RepoNotFound"}), "hub.not_found", "pin"),
    "404 of one file": (SHARDS[0], Fault(99, 404, {CODE: "EntryNotFound"}), "hub.not_found", "pin"),
    "401": ("/revision/", Fault(99, 401), "hub.token", "hf_token: {secret: env:HF_TOKEN}"),
    "401 of one file": (SHARDS[0], Fault(99, 401), "hub.token", "hf_token"),
    "429, longer than anybody waits": ("/tree/", Fault(99, 429, {"Retry-After": "86400"}), "hub.busy", "run it again"),
    "500, always": (SHARDS[0], Fault(99, 500), "hub.busy", "run it again"),
    "503 of the other host, always": (f"cdn:{SHARDS[0]}", Fault(99, 503), "hub.busy", "run it again"),
    "429 of the other host, longer than anybody waits": (
        f"cdn:{SHARDS[0]}", Fault(99, 429, {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}), "hub.busy", "later"),
    "429, a date of no calendar": (
        SHARDS[0], Fault(99, 429, {"Retry-After": "Mon, 01 Jan 0001 00:00:00 -0000"}), "hub.busy", "later"),
    "429, a digit that is none": (SHARDS[0], Fault(99, 429, {"Retry-After": "\u00b2"}), "hub.busy", "later"),
    "a redirect to a port that is none": (SHARDS[0], Fault(99, location="http://host:99999/x"), "hub.distrusted",
                                          "hf_endpoint"),
    "a redirect to half an address": (SHARDS[0], Fault(99, location="http://[::1"), "hub.distrusted", "hf_endpoint"),
    "a redirect with a space": (SHARDS[0], Fault(99, location="/a b"), "hub.distrusted", "hf_endpoint"),
    "a next page at half an address": (
        "/tree/", Fault(99, 200, {"Link": '<http://[::1>; rel="next"'}, b"[]"), "hub.distrusted", "hf_endpoint"),
    "a nest": ("/tree/", Fault(99, 200, body=b"[" * 100_000), "hub.distrusted", "hf_endpoint"),
    "cut, always": (f"cdn:{SHARDS[0]}", Fault(99, cut_after=0), "hub.unreachable", "it goes on where it stopped"),
    "a shorter file": (f"cdn:{SHARDS[0]}", Fault(99, change=lambda data: data[:-1]), "hub.wrong_size", "a login"),
    "a longer file": (f"cdn:{SHARDS[0]}", Fault(99, change=lambda data: data + b"x"), "hub.wrong_size", "a login"),
    "another content": (f"cdn:{SHARDS[0]}", Fault(99, change=tampered), "hub.wrong_hash", "a proxy or a mirror"),
    "another small content": ("/config.json", Fault(99, change=tampered), "hub.wrong_hash", "a proxy or a mirror"),
    "a loop of redirects": (SHARDS[0], Fault(99, location=f"/{REPO}/resolve/{REVISION}/{SHARDS[0]}"), "hub.distrusted",
                            "hf_endpoint"),
    "a redirect to a file": (SHARDS[0], Fault(99, location="file:///etc/hostname"), "hub.distrusted", "hf_endpoint"),
    "a page of a portal": ("/tree/", Fault(99, 200, body=b"<html>please log in"), "hub.distrusted", "hf_endpoint"),
    "another commit": ("/revision/", Fault(99, 200, body=b'{"sha": "main"}'), "hub.senseless", "hf_endpoint"),
    "no list": ("/tree/", Fault(99, 200, body=b'{"error": "x"}'), "hub.senseless", "hf_endpoint"),
}  # fmt: skip


@pytest.mark.parametrize("name", LASTING)
def test_a_fault_that_stays(hub: Hub, on: Watched, tmp_path: Path, name: str) -> None:
    where, fault, id, advice = LASTING[name]
    hub.faults[where] = fault
    error = refused(module(hub, tmp_path / "t"), on)
    assert error.finding.id == id
    assert advice in (error.finding.remedy or "")
    assert SIGNATURE not in repr(error.finding)
    whole = files(tmp_path / "t") if (tmp_path / "t").exists() else {}
    assert all(hub.repositories[NAME][path] == content for path, content in whole.items())
    assert SHARDS[0] not in whole


def test_nobody_listens(on: Watched, tmp_path: Path) -> None:
    with Hub({}) as hub:
        url = hub.url()
    error = refused(HfSnapshot(REPO, REVISION, str(tmp_path / "t"), endpoint=url), on)
    assert error.finding.id == "hub.unreachable" and "refused" in str(error)


def test_a_shard_that_the_repository_lacks_is_seen_before_weights_come(hub: Hub, on: Watched, tmp_path: Path) -> None:
    del hub.repositories[NAME][SHARDS[1]]
    error = refused(module(hub, tmp_path), on)
    assert isinstance(error, Refused) and error.finding.id == "hub.missing_shard"
    assert SHARDS[1] in (error.finding.found or "")
    assert not hub.asked(SHARDS[0])


def test_a_shard_that_was_left_out(hub: Hub, on: Watched, tmp_path: Path) -> None:
    error = refused(module(hub, tmp_path, exclude=(SHARDS[1],)), on)
    assert error.finding.id == "hub.missing_shard" and "widen" in (error.finding.remedy or "")


def test_a_repository_that_is_broken_itself(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.repositories[NAME][SHARDS[1]] = shard(3 << 20)[:-5]
    error = refused(module(hub, tmp_path), on)
    assert error.finding.id == "hub.misfit" and SHARDS[1] in (error.finding.found or "")


def entry(**more: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda entries: [*entries, {"type": "file", "size": 1, "oid": "0" * 40, "path": "x", **more}]


@pytest.mark.parametrize(
    "tree, id",
    [
        *((entry(path=path), "hub.path") for path in ("../x", "/etc/x", "a//b", "a/../../b", ".k3env/x", "a\nb")),
        (entry(path="a" * 256), "hub.path"),
        *((entry(**more), "hub.senseless") for more in ({"size": -1}, {"oid": "main"}, {"size": "1"}, {"path": None})),
    ],
)  # fmt: skip
def test_a_tree_that_is_not_believed(hub: Hub, on: Watched, tmp_path: Path, tree: Any, id: str) -> None:
    hub.tree = tree
    assert refused(module(hub, tmp_path / "t"), on).finding.id == id
    assert not (tmp_path / "t").exists()


# Tokens


def test_a_token_goes_to_the_hub_alone(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.token = TOKEN
    perform(module(hub, tmp_path, token=TOKEN), on)
    assert {item.authorization for item in hub.asked("", "hub")} == {f"Bearer {TOKEN}"}
    assert {item.authorization for item in hub.asked("", "cdn")} == {None}
    assert not [item for item in hub.requests if TOKEN in item.path]
    assert TOKEN not in " ".join(on.told)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()


def test_a_token_that_is_wrong(hub: Hub, on: Watched, tmp_path: Path) -> None:
    hub.token = TOKEN
    other = TOKEN[::-1]
    error = refused(module(hub, tmp_path, token=other), on)
    assert "not given to this token" in str(error) and other not in repr(error.finding)


def test_a_token_is_not_sent_in_the_clear(on: Watched, tmp_path: Path) -> None:
    staged = HfSnapshot(REPO, REVISION, str(tmp_path), endpoint="http://hub.invalid", token=TOKEN)
    assert refused(staged, on).finding.id == "hub.clear"


def test_an_authority_of_the_sites_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in egress.FILES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tls").mkdir()
    with Hub({NAME: contents()}, tls=tmp_path / "tls") as hub:
        staged = module(hub, tmp_path / "t")
        error = refused(staged, Watched())
        assert error.finding.id == "hub.distrusted" and "ca of the variable egress" in (error.finding.remedy or "")
        authority(tmp_path / "other")
        error = refused(staged, Watched(SSL_CERT_FILE=f"{tmp_path}/other.pem"))
        assert f"add its authority's certificate to {tmp_path}/other.pem" in (error.finding.remedy or "")
        for path, told in ((tmp_path / "none.pem", "No such file"), (tmp_path / "tls/ca.key", "holds no certificates")):
            error = refused(staged, Watched(SSL_CERT_FILE=str(path)))
            assert told in str(error) and "see the file" in (error.finding.remedy or "")
        perform(staged, Watched(SSL_CERT_FILE=str(hub.authority)))
        hub.faults["/config.json"] = Fault(99, location="http://127.0.0.1:9/config.json")
        (tmp_path / "t/config.json").unlink()
        assert "from https to http" in str(refused(staged, Watched(SSL_CERT_FILE=str(hub.authority))))


def test_a_certificate_of_another_name_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    with Hub({NAME: contents()}, tls=tmp_path / "tls") as hub:
        staged = replace(module(hub, tmp_path / "t"), endpoint=hub.url().replace("127.0.0.1", "localhost"))
        error = refused(staged, Watched(SSL_CERT_FILE=str(hub.authority)))
        assert "not valid for 'localhost'" in str(error) and "as its certificate does" in (error.finding.remedy or "")


def test_a_certificate_that_has_run_out_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tls").mkdir()
    monkeypatch.setattr("tests.hub.certified", lambda *words: certified(*words, days=-1))
    with Hub({NAME: contents()}, tls=tmp_path / "tls") as hub:
        error = refused(module(hub, tmp_path / "t"), Watched(SSL_CERT_FILE=str(hub.authority)))
        assert "expired" in str(error) and "clock" in (error.finding.remedy or "")


def test_what_egress_says_reaches_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tls").mkdir()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in egress.FILES:
        monkeypatch.delenv(name, raising=False)
    with Hub({NAME: contents()}, tls=tmp_path / "tls") as hub:
        parameters = {"repo_id": REPO, "revision": REVISION, "target": str(tmp_path / "t"), "endpoint": hub.url()}
        without = task("hf_snapshot", **parameters)
        assert "certificate" in Agent(tmp_path / "1").follow([without]).result()["message"]
        told = egress.environment({"ca": str(hub.authority)})
        heard = Agent(tmp_path / "2").follow([replace(without, environment=told)])
        assert heard.result()["status"] == "changed", heard.result()
    assert files(tmp_path / "t") == hub.repositories[NAME]


def test_a_proxy_is_used_unless_the_host_is_left_out(hub: Hub, tmp_path: Path) -> None:
    staged = module(hub, tmp_path / "t")
    dead = "http://127.0.0.1:9"
    assert refused(staged, Watched(no_proxy="", http_proxy=dead)).finding.id == "hub.unreachable"
    assert hub.requests == []
    perform(staged, Watched(no_proxy="127.0.0.1", http_proxy=dead))


# Room


def test_too_little_room_is_seen_before_anything_comes(hub: Hub, tmp_path: Path) -> None:
    class Narrow(Watched):
        def space(self, path: str) -> Space:
            return Space(5 << 20, 1 << 20)

    error = refused(module(hub, tmp_path / "t"), Narrow())
    assert error.finding.id == "hub.no_room" and "are to come" in str(error)
    assert not hub.asked("/resolve/")


FULL = """
import sys
from k3env.errors import TaskFailed
from k3env.node.web.hub import HubFile
from k3env.node.machine import Machine, Space
from k3env.node.modules.hf_snapshot import HfSnapshot
class Blind(Machine):
    def space(self, path): return Space(1 << 40, 1 << 20)
target, url = sys.argv[1:]
staged = HfSnapshot({repo!r}, {revision!r}, target, endpoint=url, jobs=1)
on = Blind(environment={{"no_proxy": "*"}})
try:
    staged.apply(on, staged.changes(on))
except TaskFailed as error:
    print(error.finding.id, error.finding.found, error.finding.remedy, sep="; ")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_disk_that_is_full_nevertheless(hub: Hub, tmp_path: Path) -> None:
    """Space is told beforehand: here somebody else takes it meanwhile."""
    mount = 'mount -t tmpfs -o size=1m none "$1" || exit 77; shift; exec "$@"'
    program = FULL.format(repo=REPO, revision=REVISION)
    (tmp_path / "small").mkdir()
    argv = [sys.executable, "-c", program, str(tmp_path / "small/t"), hub.url()]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path / "small"), *argv],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("no mount namespaces here")
    assert done.stdout.startswith("hub.no_space; no space left on device; make room"), done.stderr


# Parameters


@pytest.mark.parametrize(
    "parameters, told",
    [
        (("Kimi-K3", REVISION, "/t"), "repo_id must be OWNER/NAME"),
        (("a/../b", REVISION, "/t"), "repo_id must be"),
        ((REPO, "main", "/t"), "git ls-remote https://huggingface.co/moonshotai/Kimi-K3 main"),
        ((REPO, REVISION[:12], "/t"), "revision must be a full commit"),
        ((REPO, REVISION, "t"), "target must be an absolute path"),
        ((REPO, REVISION, "/t", (), (), "ftp://x"), "endpoint must be"),
        ((REPO, REVISION, "/t", (), (), "https://me:secret@x"), "without name and password"),
        ((REPO, REVISION, "/t", (), (), None, None, 0), "jobs must be"),
    ],
)
def test_parameters(parameters: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ValueError, match="(?s)" + told.replace(".", r"\.")) as caught:
        HfSnapshot(*parameters)
    assert "secret" not in str(caught.value)


def test_a_dataset_says_where_its_branches_are() -> None:
    with pytest.raises(ValueError, match=r"huggingface\.co/datasets/openai/gsm8k main"):
        HfDataset("openai/gsm8k", "main", "/t")


def test_through_the_agent_a_token_is_left_nowhere(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    hub.token = TOKEN
    parameters = {"repo_id": REPO, "revision": REVISION, "target": str(tmp_path / "t"), "endpoint": hub.url()}
    wanted = task("hf_snapshot", **parameters, token=placeholder(Secret("env:HF_TOKEN")))
    heard = Agent(tmp_path).follow([wanted], secrets={"env:HF_TOKEN": TOKEN})
    assert heard.result()["status"] == "changed", heard.result()
    assert TOKEN not in repr(heard.events) + heard.said
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert Agent(tmp_path).follow([wanted], secrets={"env:HF_TOKEN": TOKEN}).result()["status"] == "ok"


def test_one_of_two_nodes_fetches_and_the_other_waits(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    hub.faults[f"cdn:{SHARDS[0]}"] = Fault(stall_after=1 << 20)
    parameters = {"repo_id": REPO, "revision": REVISION, "target": str(tmp_path / "t"), "endpoint": hub.url()}
    wanted = task("hf_snapshot", **parameters)
    heard: dict[str, Any] = {}

    def follow(name: str) -> None:
        heard[name] = Agent(tmp_path / name).follow([wanted])

    first, second = (threading.Thread(target=follow, args=(name,)) for name in ("a", "b"))
    first.start()
    assert wait_for(lambda: bool(hub.asked(SHARDS[0], "cdn")))
    second.start()
    assert wait_for(lambda: any(b'"waiting"' in path.read_bytes() for path in (tmp_path / "b").rglob("journal*")))
    hub.released.set()
    first.join()
    second.join()
    assert [heard[name].result()["status"] for name in ("a", "b")] == ["changed", "ok"]
    assert "waiting" in heard["b"].kinds()
    assert len(hub.asked("/revision/")) == 1 and len(hub.asked(SHARDS[1], "cdn")) == 1


def test_a_worker_that_is_killed_leaves_what_has_come(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    for name in SHARDS:
        hub.faults[f"cdn:{name}"] = Fault(stall_after=2 << 20)
    parameters = {"repo_id": REPO, "revision": REVISION, "target": str(tmp_path / "t"), "endpoint": hub.url()}
    wanted, agent = task("hf_snapshot", **parameters), Agent(tmp_path / "a")
    parts = Path(snapshot.parts(str(tmp_path / "t")))

    def kill() -> None:
        wait_for(lambda: sorted(part.stat().st_size for part in parts.glob("*.part")) == [2 << 20] * 2)
        os.kill(int((agent.run_dir / "pid").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    assert agent.follow([wanted]).results() == {}
    thread.join()
    hub.released.set()
    assert Agent(tmp_path / "a").follow([wanted]).result()["status"] == "changed"
    assert {item.range for name in SHARDS for item in hub.asked(name, "cdn")} == {None, f"bytes={2 << 20}-"}
    assert files(tmp_path / "t") == hub.repositories[NAME]
