"""What a person reads: the recap, results folded over hosts, findings, changes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from k3env.errors import DocumentError
from k3env.protocol.finding import Change, Evidence, Finding
from k3env.protocol.outcome import HostOutcome, Outcome, TaskOutcome
from k3env.reports import text
from k3env.reports.styled import STYLES, Styled
from tests.unit.reports.runs import DRIVER, PASSED, quiet, rack, rebooted

FIELDS = ["ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored", "notrun"]


def lines(styled: Styled) -> list[str]:
    return str(styled).splitlines()


def outcome(*names: str, ok: int = 0, changed: int = 0, notrun: int = 0) -> Outcome:
    return Outcome(
        "r", "", hosts={name: HostOutcome(name, "ok", ok=ok, changed=changed, notrun=notrun) for name in names}
    )


def test_the_whole_report() -> None:
    assert (
        str(text.report(rack(), ["Provision"]))
        == """
PLAY [Provision] *******************************************************

TASK [Verify the driver] ***********************************************
ok: [tray-[01-02]]: 1 passed
failed: [tray-03]: gpu.driver.version failed
  FAIL gpu.driver.version
    expected: >= 580
    found:    570.86.15
    remedy:   upgrade the driver to 580 or later
    seen:     /proc/driver/nvidia/version: NVRM version: NVIDIA UNIX x86_64
              Kernel Module  570.86.15
unreachable: [tray-04]
  FAIL run.timeout
    the host did not answer in time
    expected: an answer within 30 s
    found:    silence
    remedy:   is it up? see: ssh tray-04 true

TASK [Make the node-local caches] **************************************
changed: [tray-[01-02]]: base /local/k3

TASK [Write the ranks' environment] ************************************
skipped: [tray-[01-02]]: tag caches is left out

PLAY RECAP *************************************************************
tray-01 : ok=2    changed=1    unreachable=0    failed=0    skipped=1    rescued=0    ignored=0    notrun=0
tray-02 : ok=2    changed=1    unreachable=0    failed=0    skipped=1    rescued=0    ignored=0    notrun=0
tray-03 : ok=0    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0    notrun=2
tray-04 : ok=0    changed=0    unreachable=1    failed=0    skipped=0    rescued=0    ignored=0    notrun=3
simulated: tray-[01-03]: nodes of the sandbox; their driver, GPUs and free space are made up"""
    )


def test_simulated_is_said_once() -> None:
    assert str(text.report(rack())).count("simulated") == 1
    assert "simulated" not in str(text.recap(outcome("a")))


def test_every_targeted_host_is_there_once() -> None:
    recap = str(text.recap(rack()))
    for name in rack().hosts:
        assert len(re.findall(rf"^{name} +:", recap, re.MULTILINE)) == 1


def test_names_are_aligned() -> None:
    rows = lines(text.recap(outcome("a", "a-long-name")))[1:]
    assert [row.index(" : ") for row in rows if " : " in row] == [11, 11]


def test_a_terminal_of_80_columns_breaks_between_fields() -> None:
    rows = lines(text.recap(outcome("tray-01", ok=12, changed=3), width=80))[2:]
    assert rows == [
        "tray-01 : ok=12   changed=3    unreachable=0    failed=0    skipped=0",
        "          rescued=0    ignored=0    notrun=0",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 132, 200])
@pytest.mark.parametrize("name", ["a", "gb300-rack7-tray-0001", "gb300-rack7-tray-0001.cluster.example.org"])
def test_every_field_is_there_at_any_width(name: str, width: int) -> None:
    shown = text.recap(outcome(name, ok=1234, notrun=7), width=width)
    body = " ".join(lines(shown)[2:])
    assert [word.partition("=")[0] for word in body.split() if "=" in word] == FIELDS
    for row in lines(shown)[2:]:
        assert len(row) <= width or row.strip() in (f"{name} :", "unreachable=0"), row
        assert row == row.rstrip()


def test_a_long_name_has_a_line_of_its_own() -> None:
    rows = lines(text.recap(outcome("n" * 70), width=80))[2:]
    assert rows[0] == "n" * 70 + " :"
    assert rows[1].startswith("    ok=0")


def test_numbers_are_coloured_where_there_is_something() -> None:
    styles = {words.strip(): style for words, style in text.recap(rack()).spans if style}
    assert styles["failed=1"] == "failed"
    assert styles["unreachable=1"] == "unreachable"
    assert styles["ok=2"] == "ok"
    assert "failed=0" not in styles


def test_all_styles_are_known() -> None:
    parts = text.report(rack(), diff=True, verbose=True) + text.finding(DocumentError("x").finding)
    assert {style for _, style in parts.spans} <= set(STYLES)


# Results


def done(status: str, **rest: object) -> TaskOutcome:
    return TaskOutcome("1.1", "n", "m", status, **rest)  # type: ignore[arg-type]


def test_same_results_share_a_line_whatever_they_took() -> None:
    tasks = {f"tray-{number:02}": done("ok", duration_s=number / 10) for number in range(1, 5)}
    assert lines(text.results(tasks)) == ["ok: [tray-[01-04]]"]


def test_why_nothing_was_done_stands_below_within_the_width() -> None:
    why = "CMakeCache.txt says 103-real; the manifest says commit 1f2e3d4c5b6a; 14 artefacts as recorded; .venv-3.12"
    assert lines(text.results({"a": done("ok", message=why), "b": done("ok", message=why)})) == [
        "ok: [a,b]",
        "  CMakeCache.txt says 103-real; the manifest says commit 1f2e3d4c5b6a; 14",
        "  artefacts as recorded; .venv-3.12",
    ]


def test_a_finding_about_each_host_itself_is_the_same_finding() -> None:
    tasks = {
        name: done("failed", findings=(replace(DRIVER, subject=name, duration_ms=at),))
        for at, name in enumerate(("tray-01", "tray-02"))
    }
    shown = lines(text.results(tasks))
    assert shown[0] == "failed: [tray-[01-02]]"
    assert shown[1] == "  FAIL gpu.driver.version"
    assert str(text.results(tasks)).count("FAIL") == 1


def test_other_messages_stand_apart() -> None:
    shown = lines(text.results({"a1": done("failed", message="x"), "a2": done("failed", message="y")}))
    assert shown == ["failed: [a1]: x", "failed: [a2]: y"]


def test_an_ignored_failure_says_so() -> None:
    assert lines(text.results({"a": done("failed", ignored=True, message="x")})) == ["failed (ignored): [a]: x"]


def test_a_task_that_did_not_run_is_silent() -> None:
    assert not text.results({"a": done("notrun"), "b": done("notrun")})
    assert "TASK" not in str(text.report(Outcome("r", "", hosts={"a": HostOutcome("a", tasks=(done("notrun"),))})))


def test_what_passed_is_counted_and_only_shown_on_request() -> None:
    warned = Finding("cache.space", "warn", severity="warn", expected=">= 20 GiB", found="3 GiB", remedy="make room")
    tasks = {"a": done("ok", findings=(PASSED, PASSED, warned))}
    assert lines(text.results(tasks))[0] == "ok: [a]: 2 passed, 1 warned"
    assert "580.105.08" not in str(text.results(tasks))
    assert "WARN cache.space" in str(text.results(tasks))
    assert str(text.results(tasks, verbose=True)).count("PASS") == 2


def test_diff_shows_before_and_after() -> None:
    change = Change("rank_env.sh", "1a, line 3: export X=0", "2b, line 3: export X=1\nand more")
    shown = text.results({"a": done("changed", changes=(change,))}, diff=True)
    assert lines(shown) == [
        "changed: [a]: rank_env.sh",
        "    rank_env.sh",
        "      - 1a, line 3: export X=0",
        "      + 2b, line 3: export X=1",
        "      + and more",
    ]
    assert ("      - 1a, line 3: export X=0", "removed") in shown.spans


def test_many_changes_are_counted() -> None:
    changes = tuple(Change(f"package {number}") for number in range(9))
    shown = lines(text.results({"a": done("changed", changes=changes)}))
    assert shown == ["changed: [a]: package 0, package 1, package 2, package 3 and 5 more"]


def test_without_changes_nothing_is_said_of_changes() -> None:
    assert "changed:" not in str(text.report(quiet(), diff=True))


# Findings


def test_an_error_in_a_file_begins_with_its_place() -> None:
    error = DocumentError(
        "unknown module cach_dirs",
        subject="playbooks/site.yml:12:5",
        expected="one of cache_dirs, command, verify",
        found="cach_dirs",
        remedy="did you mean cache_dirs?",
    )
    assert lines(text.finding(error.finding)) == [
        "ERROR playbooks/site.yml:12:5: unknown module cach_dirs",
        "  expected: one of cache_dirs, command, verify",
        "  found:    cach_dirs",
        "  remedy:   did you mean cache_dirs?",
    ]


def test_long_texts_hang_below_their_label() -> None:
    item = Finding("x.y", "fail", expected="a " * 60, remedy="b " * 10)
    shown = lines(text.finding(item, width=60))
    assert shown[1].startswith("  expected: a a")
    assert shown[2].startswith(" " * 12 + "a a")
    assert all(len(row) <= 60 for row in shown)


def test_a_path_is_never_broken() -> None:
    path = "/local/" + "k3-cache/" * 20
    assert path in str(text.finding(Finding("x.y", "fail", found=f"it is {path} here"), width=40))


def test_a_log_is_cut_at_its_beginning() -> None:
    log = Evidence("/repo/.k3env/logs/x.log", 2, "\n".join(f"row {number}" for number in range(30)))
    shown = str(text.finding(Finding("x.y", "fail", evidence=(log,))))
    assert "seen:     /repo/.k3env/logs/x.log (exit code 2)" in shown
    assert "18 lines before" in shown
    assert "row 29" in shown and "row 17\n" not in shown


@pytest.mark.parametrize("hostile", ["\x1b[2J\x1b]0;x\x07", "a\rb", "\u202eevil", "\x9b31m"])
def test_control_characters_are_shown_not_obeyed(hostile: str) -> None:
    item = Finding(hostile, "fail", subject=hostile, message=hostile, expected=hostile, found=hostile, remedy=hostile)
    item = replace(item, evidence=(Evidence(hostile, 1, hostile),))
    task = TaskOutcome("1.1", hostile, "m", "failed", message=hostile, changes=(Change(hostile, hostile, hostile),))
    task = replace(task, findings=(item,))
    host = HostOutcome(hostile, "failed", failed=1, message=hostile, tasks=(task,), simulated=True)
    shown = str(
        text.report(Outcome("r", "", hosts={hostile: host}, across=(item,)), [hostile], diff=True, verbose=True)
    )
    assert all(char == "\n" or char.isprintable() for char in shown), shown
    assert hostile.encode("unicode_escape").decode()[:4] in shown


def test_a_name_stays_on_its_line() -> None:
    assert lines(text.heading("TASK", "one\ntwo")) == ["", "TASK [one two] ".ljust(72, "*")]


def test_what_lies_across_hosts_has_a_heading() -> None:
    across = Finding("path.same", "fail", scope="across", message="tray-03 sees another file")
    shown = str(text.report(replace(quiet(), across=(across, replace(across, status="pass")))))
    assert "ACROSS HOSTS ***" in shown
    assert shown.count("path.same") == 1


def test_a_rebooted_host_is_told_with_its_finding() -> None:
    shown = str(text.report(rebooted("the node was rebooted during the run")))
    assert "failed: [a]\n  FAIL run.rebooted\n    the node was rebooted during the run" in shown
