"""The command line of the bundle."""

from __future__ import annotations

import pytest

from k3env.errors import UsageError
from k3env.node.preflight.arguments import HELP, OUTPUTS, Arguments, parse
from k3env.protocol.context import CONTEXTS


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("", Arguments()),
        ("--context hc --output=nagios", Arguments(context="hc", output="nagios")),
        ("--fail-on warn --drain -v", Arguments(fail_on="warn", drain=True, verbose=True)),
        ("--output-file /x --list", Arguments(output_file="/x", list=True)),
        ("--output-file=--x", Arguments(output_file="--x")),
        ("--explain gpu.* --version -h", Arguments(explain="gpu.*", version=True, help=True)),
        ("--output json --output text", Arguments()),
    ],
)
def test_lines(line: str, arguments: Arguments) -> None:
    assert parse(line.split()) == arguments


@pytest.mark.parametrize(
    ("line", "told", "remedy"),
    [
        ("--contxt hc", "k3env-preflight has no option --contxt", "did you mean --context?"),
        ("--context prolgo", "--context prolgo is unknown", "did you mean prolog?"),
        ("--output xml", "--output xml is unknown", "use one of text, json"),
        ("--context", "--context is empty", "see k3env-preflight --help"),
        ("--context --drain", "--context is empty", "see k3env-preflight --help"),
        ("--context=", "--context is empty", "see k3env-preflight --help"),
        ("--drain=no", "--drain takes no value", "leave it out"),
        ("hc", "k3env-preflight has no option hc", "see k3env-preflight --help"),
        ("-x", "k3env-preflight has no option -x", "see k3env-preflight --help"),
    ],
)
def test_what_is_wrong_is_told_with_what_was_meant(line: str, told: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert str(caught.value) == told
    assert (caught.value.finding.remedy or "").startswith(remedy)


def test_the_help_names_everything() -> None:
    for name in vars(Arguments()):
        assert f"--{name.replace('_', '-')}" in HELP or name == "help"
    assert all(word in HELP for word in (*OUTPUTS, *CONTEXTS))
    assert max(map(len, HELP.splitlines())) <= 120
