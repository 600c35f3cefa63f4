"""`--limit run:RUN` as a person types it: what failed is done again, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k3env.cli.options import Options
from k3env.cli.who import as_recorded
from tests.sandbox.cli import Said, Site

PLAY = """
- hosts: all
  tasks:
    - command: {{argv: [test, -e, "{ground}/{{{{ inventory_hostname }}}}"], read_only: true}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "ground").mkdir()
    (tmp_path / "book.yml").write_text(PLAY.format(ground=tmp_path / "ground"))
    return Site(tmp_path)


def run(site: Site, *options: str, hosts: str = "a,b,c") -> Said:
    book, state = str(site.state / "book.yml"), f"k3env_state_dir={site.state}/node-{{{{ inventory_hostname }}}}"
    return site.provision(
        "--playbook", book, "--connection", "local", "--extra-vars", state, "--timeout", "20", *options, hosts=hosts
    )


def test_what_failed_is_done_again(site: Site) -> None:
    none = run(site, "--limit", "run:last")
    assert none.code == 1 and "no run was begun from here yet" in none.err
    (site.state / "ground/b").touch()
    first = run(site)
    assert first.statuses() == {"a": "failed", "b": "ok", "c": "failed"}
    (site.state / "ground/a").touch()
    again = run(site, "--limit", "run:last")
    assert again.statuses() == {"a": "ok", "c": "failed"}
    # The last run is now another one; the first one is still known, by the beginning of its name too.
    assert run(site, "--limit", f"run:{first.document['run']}:!run:last").statuses() == {"a": "ok"}
    clean = run(site, "--limit", "run:last")
    assert clean.code == 1 and "failed or was unreachable" in clean.document["error"]["message"]
    wrong = run(site, "--limit", "run:2020")
    assert wrong.code == 1 and "no run 2020" in wrong.err and "Traceback" not in wrong.err


def test_what_ended_unseen_is_not_left_out(site: Site) -> None:
    """A run that was left to itself, or whose controller was killed: which of its hosts failed is not known yet."""
    name = run(site).document["run"]
    record = site.state / "k3env/runs" / name
    lines = (record / "events.jsonl").read_text().splitlines()
    seen = [line for line in lines if json.loads(line)["host"] != "b" or '"kind":"hello"' in line]
    (record / "events.jsonl").write_text("".join(f"{line}\n" for line in seen))
    (record / "ended").unlink()
    (listed,) = json.loads(site.k3env("runs", "--output", "json").out)["runs"]
    assert (listed["state"], listed["hosts"]) == ("open", {"a": "failed", "b": "open", "c": "failed"})
    refused = run(site, "--limit", "run:last")
    assert refused.code == 1 and f"how run {name} ended on b is not known here" in refused.document["error"]["message"]
    assert f"invoke attach {name}" in refused.document["error"]["remedy"]
    assert site.k3env("attach", name, "--output", "json").statuses() == dict.fromkeys("abc", "failed")
    assert set(run(site, "--limit", "run:last").statuses()) == {"a", "b", "c"}


def test_the_record_names_the_run_that_was_meant(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(site.state))
    name = run(site).document["run"]
    kept = as_recorded(Options(hosts="run:last", limit="a,!run:last:&x,run:lasting,b"))
    assert (kept.hosts, kept.limit) == (f"run:{name}", f"a,!run:{name}:&x,run:lasting,b")
    run(site, "--limit", "run:last")
    (second,) = [path for path in (site.state / "k3env/runs").iterdir() if path.name != name]
    assert json.loads((second / "run.json").read_text())["options"]["limit"] == f"run:{name}"
    # What it did is followed for the hosts that it was for, whatever has become of the first run since.
    (site.state / "k3env/runs" / name / "events.jsonl").unlink()
    attached = site.k3env("attach", second.name, "--output", "json")
    assert "no host left that is at work" in attached.err and set(attached.statuses()) == {"a", "b", "c"}
