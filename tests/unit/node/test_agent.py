"""The agent for real: boot, worker, journal, follower, over pipes instead of SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from k3env import payload
from k3env.errors import Refused
from k3env.node.checks import select
from k3env.protocol.plan import CHECK
from k3env.protocol.profile import Paths, Profile
from tests.agent import Agent, task


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def slow(seconds: float, made: Path, id: str = "1.1") -> object:
    return task("command", id, argv=["sh", "-c", f"sleep {seconds}; touch {made}"], creates=str(made))


def test_hello_says_who_answers(agent: Agent) -> None:
    heard = agent.follow()
    hello = heard.session.hello
    assert hello is not None
    assert (hello.format, hello.uid, hello.state_dir, hello.simulated) == (1, os.geteuid(), str(agent.state), False)
    assert hello.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert hello.have_payload is False and heard.kinds() == ["begin", "end"]
    again = Agent(agent.root).follow()
    assert again.session.hello is not None and again.session.hello.have_payload
    assert again.sent < 500 < heard.sent, "the payload goes to a node once"


def test_a_module_changes_once_and_is_ok_ever_after(agent: Agent, tmp_path: Path) -> None:
    base = tmp_path / "made"
    tasks = [task("command", argv=["touch", str(base)], creates=str(base))]
    checked = agent.follow(tasks, mode=CHECK)
    assert checked.results() == {"1.1": "changed"} and not base.exists()
    assert checked.result()["changes"][0]["what"]
    assert Agent(tmp_path).follow(tasks).results() == {"1.1": "changed"} and base.exists()
    assert Agent(tmp_path).follow(tasks).results() == {"1.1": "ok"}


def test_a_change_that_does_not_hold_fails_and_ends_the_run(agent: Agent, tmp_path: Path) -> None:
    made = tmp_path / "never"
    heard = agent.follow([task("command", argv=["true"], creates=str(made)), slow(0, tmp_path / "later", "1.2")])
    assert heard.results() == {"1.1": "failed"} and heard.status == "failed"
    assert str(made) in heard.result()["message"]
    assert not (tmp_path / "later").exists()


def test_ignore_errors_goes_on(agent: Agent, tmp_path: Path) -> None:
    failing = replace(task("command", argv=["false"], creates=str(tmp_path / "never")), ignore_errors=True)
    heard = agent.follow([failing, slow(0, tmp_path / "later", "1.2")])
    assert heard.results() == {"1.1": "failed", "1.2": "changed"} and heard.status == "ok"


@pytest.mark.parametrize("at", range(1, 5))
def test_a_follower_that_was_cut_off_gets_exactly_the_rest(agent: Agent, tmp_path: Path, at: int) -> None:
    tasks = [slow(0.3, tmp_path / "one"), slow(0.3, tmp_path / "two", "1.2")]
    first = agent.follow(tasks, until=lambda event: event.seq >= at)
    second = agent.follow(tasks, after=first.session.last)
    seqs = [event.seq for event in first.events + second.events]
    assert seqs == list(range(1, len(seqs) + 1)) and second.status == "ok"
    assert second.session.hello is not None and second.session.hello.known
    assert second.sent == 0, "a run that is known is not started again"


def test_a_killed_worker_is_noticed_and_not_started_again(agent: Agent, tmp_path: Path) -> None:
    tasks = [slow(30, tmp_path / "never")]
    agent.follow(tasks, until=lambda event: event.kind == "apply")
    os.kill(int((agent.run_dir / "pid").read_text()), signal.SIGKILL)
    again = agent.follow(tasks, after=3)
    assert again.kinds() == ["lost"] and not (tmp_path / "never").exists()


def test_cancel_ends_the_command_and_the_run(agent: Agent, tmp_path: Path) -> None:
    tasks = [slow(30, tmp_path / "never"), slow(0, tmp_path / "later", "1.2")]
    first = agent.follow(tasks, until=lambda event: event.kind == "apply")
    begun = time.monotonic()
    heard = agent.follow(after=first.session.last, action="cancel")
    assert heard.results() == {"1.1": "cancelled"} and heard.status == "cancelled"
    assert time.monotonic() - begun < 5
    assert not (tmp_path / "later").exists()


def test_an_unfollowed_run_finishes_or_stops_as_its_plan_says(tmp_path: Path) -> None:
    def begun(word: str) -> tuple[Agent, Path, int]:
        (tmp_path / word).mkdir()
        agent, made = Agent(tmp_path / word), tmp_path / word / "made"
        heard = agent.follow([slow(22, made)], until=lambda event: event.kind == "apply", when_unfollowed=word)
        return agent, made, heard.session.last

    runs = [begun("finish"), begun("stop")]
    time.sleep(22.5)
    (finished, made, last), (stopped, unmade, last_seen) = runs
    assert finished.follow(after=last).results() == {"1.1": "changed"} and made.exists()
    heard = stopped.follow(after=last_seen)
    assert heard.status == "cancelled" and not unmade.exists()
    assert "nobody follows" in heard.result()["message"]


def test_a_second_changing_run_is_told_who_has_the_node(agent: Agent, tmp_path: Path) -> None:
    first = agent.follow([slow(5, tmp_path / "made")], until=lambda event: event.kind == "apply")
    other = Agent(tmp_path)
    heard = other.follow([slow(0, tmp_path / "more")])
    assert heard.status == "failed" and not (tmp_path / "more").exists()
    finding = heard.events[-1].data["findings"][0]
    assert finding["id"] == "run.busy" and agent.run.partition(".")[0] in finding["message"]
    assert "me@here" in finding["message"] and "invoke attach" in finding["remedy"]
    assert Agent(tmp_path).follow([slow(0, tmp_path / "more")], mode=CHECK).results() == {"1.1": "changed"}
    agent.follow(after=first.session.last, action="cancel")


@pytest.mark.parametrize("kind", ["link", "file", "mode", "owner"])
def test_a_state_directory_that_is_not_ours_alone_is_refused(agent: Agent, tmp_path: Path, kind: str) -> None:
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        agent.state.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        agent.state.write_text("")
    else:
        agent.state.mkdir(mode=0o755 if kind == "mode" else 0o700)
        if kind == "owner":
            if os.geteuid() != 0:
                pytest.skip("only root can give a directory away")
            os.chown(agent.state, 65534, 65534)
    with pytest.raises(Refused, match="state directory"):
        agent.follow([task("command", argv=["true"], creates="/nowhere")])
    assert not (tmp_path / "elsewhere" / "runs").exists()


def test_a_payload_that_was_changed_on_the_way_is_not_used(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    good = payload.build()
    monkeypatch.setattr(payload, "build", lambda: replace(good, data=good.data[:-9] + b"damaged!" + good.data[-1:]))
    heard = agent.follow()
    assert heard.status is None and "damaged" in heard.said
    assert not list((agent.state).glob("payload/*"))


@pytest.mark.parametrize("left", [0, 8, 16, 100])
def test_bytecode_that_a_full_disk_has_cut_off_is_made_again(agent: Agent, tmp_path: Path, left: int) -> None:
    tasks = [task("command", argv=["true"], read_only=True)]
    assert agent.follow(tasks).results() == {"1.1": "ok"}
    compiled = list((agent.state / "payload").rglob("*.pyc"))
    assert len(compiled) > 10
    for path in compiled:
        path.write_bytes(path.read_bytes()[:left])
    assert Agent(tmp_path).follow(tasks).results() == {"1.1": "ok"}
    made = [path.stat().st_size for path in compiled if path.name.startswith(("worker.", "performer.", "command."))]
    assert len(made) == 3 and min(made) > 100, "what was needed again is whole"


def test_secrets_reach_the_command_and_nothing_else(agent: Agent, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f'printf %s "$1" > {seen}; echo "token is $1"; exit 1'
    job = replace(
        task("command", argv=["sh", "-c", script, "sh", {"$secret": "env:TOKEN"}], creates=str(tmp_path / "never")),
    )
    heard = agent.follow([job], secrets={"env:TOKEN": "s3cret-value"})
    assert seen.read_text() == "s3cret-value" and heard.status == "failed"
    for path in agent.state.rglob("*"):
        if path.is_file():
            assert b"s3cret-value" not in path.read_bytes(), path
    assert "********" in str(heard.result())
    assert "s3cret-value" not in str(heard.events) + heard.said


def test_a_task_takes_no_longer_than_its_timeout(agent: Agent, tmp_path: Path) -> None:
    begun = time.monotonic()
    heard = agent.follow([replace(slow(30, tmp_path / "never"), timeout_s=0.5), slow(0, tmp_path / "x", "1.2")])
    assert heard.results() == {"1.1": "failed"} and "longer than 0.5 s" in heard.result()["message"]
    assert time.monotonic() - begun < 8


def test_retries_are_tries_after_the_first(agent: Agent, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    script = f"echo x >> {tries}; [ $(wc -l < {tries}) -ge 3 ] && touch {tmp_path / 'made'}"
    job = replace(task("command", argv=["sh", "-c", script], creates=str(tmp_path / "made")), retries=2, delay_s=0.1)
    assert agent.follow([job]).results() == {"1.1": "changed"}
    assert tries.read_text() == "x\n" * 3


def test_all_of_a_task_is_tried_again(agent: Agent, tmp_path: Path) -> None:
    """A command that only reads, a check, and changes that hold while what is judged does not."""

    def counting(name: str, then: str) -> list[str]:
        tries = tmp_path / name
        return ["sh", "-c", f"echo x >> {tries}; {then.format(n=f'$(wc -l < {tries})')}"]

    base = tmp_path / "cache"
    late = ["sh", "-c", f"(sleep 1; mkdir -m 700 {base}) > /dev/null 2>&1 & touch {tmp_path / 'begun'}"]
    jobs = [
        replace(task("command", argv=counting("read", "[ {n} -ge 3 ]"), read_only=True), retries=2, delay_s=0.1),
        task("command", "1.2", argv=["setsid", "-f", *late], creates=str(tmp_path / "begun")),
        replace(task("verify", "1.3", checks=["cache.owner"]), retries=20, delay_s=0.2),
        replace(task("command", "1.4", argv=counting("never", "false"), read_only=True), retries=2, delay_s=0.1),
    ]
    heard = agent.follow(jobs, profile=Profile(paths=Paths(cache_base=str(base))))
    assert heard.results() == {"1.1": "ok", "1.2": "changed", "1.3": "ok", "1.4": "failed"}, heard.events
    assert (tmp_path / "read").read_text() == (tmp_path / "never").read_text() == "x\n" * 3
    told = [event.data["text"] for event in heard.events if event.kind == "progress" and event.task == "1.4"]
    assert told and told[0].startswith("retry 1 of 2 in 0.1 s: a command failed")


@pytest.mark.parametrize("name", [None, "nobody"], ids=["itself", "another user"])
def test_a_command_does_not_outlive_a_killed_worker(agent: Agent, tmp_path: Path, name: str | None) -> None:
    if name and os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    opened(agent, tmp_path)
    pids = tmp_path / "open" / "pids"
    script = f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait"
    job = replace(task("command", argv=["sh", "-c", script], creates=str(tmp_path / "never")), become_user=name)
    agent.follow([job], until=lambda event: event.kind == "apply")
    ends = time.monotonic() + 10
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert time.monotonic() < ends
        time.sleep(0.02)
    os.kill(int((agent.run_dir / "pid").read_text()), signal.SIGKILL)
    left = [int(pid) for pid in pids.read_text().split()]
    ends = time.monotonic() + 20
    while any(map(running, left)) and time.monotonic() < ends:
        time.sleep(0.1)
    assert not [pid for pid in left if running(pid)]


def running(pid: int) -> bool:
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def opened(agent: Agent, tmp_path: Path) -> Path:
    """Let every user into a test's directory, and return one that all may write in."""
    agent.python = "/usr/bin/python3"  # one that every user may run
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    for parent in [tmp_path, *tmp_path.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o055)
    return place


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_finds_all_checks_and_modules(agent: Agent, tmp_path: Path) -> None:
    """Though the state directory, from which they were imported, is closed to that user."""
    place = opened(agent, tmp_path)
    (place / "cache").mkdir()
    profile = Profile(paths=Paths(cache_base=str(place / "cache")))
    tasks = [task("verify", checks=["*"]), task("verify", "1.2", checks=["cache.*", "gpu.driver.version"])]
    jobs = [replace(item, become_user="nobody", ignore_errors=True) for item in tasks]
    heard = agent.follow(jobs, profile=profile)
    assert agent.state.stat().st_mode & 0o777 == 0o700
    ids = {finding["id"] for finding in heard.result()["findings"]}
    assert {rule.id for rule in select(("*",)) if rule.scope != "across" and not rule.is_on_request} == ids
    assert len(heard.result("1.2")["findings"]) == len(select(("cache.*", "gpu.driver.version")))
    misspelt = replace(task("verify", checks=["gpu.drivr.*"]), become_user="nobody")
    again = Agent(tmp_path, "/usr/bin/python3").follow([misspelt])
    assert "did you mean gpu.dri" in again.result()["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_task_of_another_user_runs_as_that_user(agent: Agent, tmp_path: Path) -> None:
    made = opened(agent, tmp_path) / "made"
    job = replace(task("command", argv=["touch", str(made)], creates=str(made)), become_user="nobody")
    assert agent.follow([job]).results() == {"1.1": "changed"}
    assert made.stat().st_uid == 65534
    unknown = Agent(tmp_path, "/usr/bin/python3").follow([replace(job, become_user="nosuchuser")])
    assert unknown.result()["findings"][0]["id"] == "task.user"


def test_the_agent_survives_noise_and_refuses_what_is_no_frame(agent: Agent, tmp_path: Path) -> None:
    import subprocess

    from k3env.runner.session import command

    done = subprocess.run(["sh", "-c", command("python3")], input=b"hunter2\n", capture_output=True, timeout=20)
    assert done.returncode == 97 and b"hunter2" not in done.stdout + done.stderr


def test_an_empty_plan_imports_nothing_that_takes_its_time() -> None:
    """The budget of 20 ms from the start to the end of a plan without tasks is used up by few modules."""
    program = "import sys; import k3env.node.worker, k3env.node.journal; print(*sys.modules)"
    root = Path(__file__).parents[3]
    argv = ["/usr/bin/python3", "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {program}"]
    found = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    heavy = {
        "contextlib",
        "dataclasses",
        "typing",
        "inspect",
        "tempfile",
        "shutil",
        "subprocess",
        "threading",
        "logging",
    }
    assert found & heavy == set() and "k3env.node.worker" in found
