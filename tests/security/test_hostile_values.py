"""Values that would be words of a shell, options, or something else than values: never taken so, wherever they go.

The canary is a file that would be there if any shell or option parser had read a value as its own.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3env.cli.options import parse
from k3env.connections import ssh_settings
from k3env.connections.process import PREFIXES, Target
from k3env.documents.nodes import Node, Position
from k3env.errors import DocumentError, K3Error, UsageError
from k3env.inventory.hosts import address, valid_name, valid_user
from k3env.node import container, modules
from k3env.node.machine import Machine
from k3env.node.modules._parameters import check_path
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.runner.become import Become
from k3env.runner.session import command
from tests.agent import Agent, task
from tests.sshd import with_config

AT = Position("site.yml", 7, 9)
TOUCH = "touch canary"
HOSTILE = {
    "command substitution": f"$({TOUCH})",
    "backticks": f"`{TOUCH}`",
    "a second command": f"x; {TOUCH}",
    "and": f"x && {TOUCH}",
    "a pipe": f"x | {TOUCH}",
    "a line end": f"x\n{TOUCH}\n",
    "a carriage return": f"x\r{TOUCH}",
    "single quotes": f"x'; {TOUCH}; '",
    "double quotes": f'x"; {TOUCH}; "',
    "a redirection": "x > canary",
    "a variable": "${IFS}x",
    "an option of ssh": f"-oProxyCommand={TOUCH}",
    "another option of ssh": f"-oPermitLocalCommand=yes -oLocalCommand={TOUCH}",
    "a long option": f"--upload-pack={TOUCH}",
    "a helper of git": f"ext::sh -c {TOUCH}",
    "a NUL": "x\0y",
    "an escape": "x\x1b]52;c;eA==\x07",
    "8-bit control": "x\x9by",
    "a look-alike of a dash": "\u2010oProxyCommand=x",
    "a look-alike of a letter": "r\u043eot",
    "right to left": "x\u202ey",
    "braces": "{touch,canary}",
    "a glob": "*",
    "home": "~root",
    "history": "!!",
    "very long": "x" * 100_000,
    "nothing": "",
    "a blank": " ",
    "up": "../../../etc",
}
FIELDS = ("ansible_host", "ansible_user", "ansible_port", "ansible_python_interpreter", "ansible_connection")


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty directory, and see that no canary comes to be in it."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    yield place / "canary"
    assert not (place / "canary").exists()


def is_tame(words: list[str], value: str) -> bool:
    """Return whether a value is not there, or whole in a word of its own."""
    return not value or all(value == word or value not in word for word in words)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("field", FIELDS)
def test_an_address_is_refused_where_it_stands_or_is_harmless(field: str, value: str) -> None:
    try:
        made = address("node", {field: Node(value, AT)})
    except DocumentError as error:
        assert error.finding.subject == "site.yml:7:9" and len(str(error)) < 3000
        return
    for text in (made.hostname, made.user or "u", made.python):
        assert not text.startswith("-") and text.isprintable() and shlex.quote(text) in (text, "''", f"'{text}'")
        assert not set(text) & set("$`;&|<>()'\"\n ")


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_names_and_users(value: str) -> None:
    assert not valid_name(value)
    if valid_user(value):
        assert shlex.quote(value) in (value, f"'{value}'") and not value.startswith("-")
        return
    for option in ("user", "become_user"):
        with pytest.raises(UsageError):
            parse({option: value, "output": "text"})


@pytest.mark.parametrize("user", ["root", "DOMAIN\\me", "me@REALM.EXAMPLE", "first.last", "a-b_c", "ü", "0", "svc+x"])
def test_users_that_there_are(user: str) -> None:
    assert valid_user(user)


@pytest.mark.parametrize("kind", PREFIXES)
def test_a_program_that_connects_gets_words(kind: str) -> None:
    """Whatever an address may hold stands in a word of its own, behind what begins with a dash by itself."""
    target = Target("node-1", 2222, "me@REALM", "/keys/a key; $(touch canary)")
    words = PREFIXES[kind](target)
    assert all(is_tame(words, value) for value in (target.user or "", target.private_key or ""))
    if kind == "openssh":
        assert words[-2:] == ["--", "node-1"]


@pytest.mark.parametrize("value", [value for value in HOSTILE.values() if "\0" not in value])
@pytest.mark.parametrize("token", ["%r", "%h", "%n"])
def test_what_ssh_config_runs(value: str, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in ssh_config, in which a user or host stands, is a shell's; ssh itself expands it without quotes."""
    with_config(tmp_path, monkeypatch, f'Match exec "true {token}"\n  User matched\n')
    for asked in (ssh_settings.Asked("node", user=value), ssh_settings.Asked(value)):
        if (asked.user and not valid_user(asked.user)) or not (asked.user or valid_name(asked.host)):
            continue  # no inventory and no option lets it through
        ssh_settings.resolve(asked)


@pytest.mark.parametrize("value", [value for value in HOSTILE.values() if value and "\0" not in value])
def test_a_key_s_path_is_a_path(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch)
    try:
        found = ssh_settings.resolve(ssh_settings.Asked("node", private_key=value))
    except (K3Error, OSError) as error:
        assert len(str(error)) < 300_000
        return
    assert len(found.key_files) == 1


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
@pytest.mark.parametrize("user", ["me", "DOMAIN\\me", "me@x"])
def test_the_one_command_line(shell: str, user: str) -> None:
    """Its words come out of a shell as they went in."""
    for password in (None, "secret"):
        line = command("/opt/a+b/python3", Become(user, password)).replace(" sudo ", " printf '%s\\n' ", 1)
        said = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=True).stdout.splitlines()
        assert said[said.index("-u") + 1] == user and "secret" not in line


@pytest.mark.parametrize("value", [value for value in HOSTILE.values() if "\0" not in value])
def test_a_command_s_words_and_environment_arrive_as_they_are(value: str, tmp_path: Path) -> None:
    """From the plan to a process of its own, through the agent: no shell reads them."""
    script = "import json, os, sys; json.dump([sys.argv[1:], os.environ['V']], open(sys.argv[1], 'w'))"
    seen = tmp_path / "seen"
    words = [sys.executable, "-c", script, str(seen), value]
    job = task("command", argv=words, creates=str(seen), environment={"V": value})
    assert Agent(tmp_path).follow([job]).result()["status"] == "changed"
    assert json.loads(seen.read_text()) == [[str(seen), value], value]


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("module", "field", "rest"),
    [
        ("git_checkout", "url", {"repo": "/r", "commit": "c" * 40}),
        ("git_checkout", "repo", {"url": "https://h/r", "commit": "c" * 40}),
        ("git_checkout", "commit", {"url": "https://h/r", "repo": "/r"}),
        ("trtllm_build", "repo", {"commit": "c" * 40}),
        ("trtllm_build", "arch", {"repo": "/r", "commit": "c" * 40}),
        ("pip_packages", "packages", {"venv": "/v"}),
        ("pip_packages", "index_url", {"venv": "/v", "packages": ["a"]}),
        ("pip_packages", "find_links", {"venv": "/v", "packages": ["a"]}),
        ("pip_packages", "venv", {"packages": ["a"]}),
        ("cache_dirs", "base", {}),
        ("rank_env", "repo", {"base": "/b"}),
        ("rank_env", "base", {"repo": "/r"}),
        ("copy", "dest", {"content": ""}),
        ("file", "path", {"state": "directory"}),
        ("file", "owner", {"path": "/p"}),
        ("file", "mode", {"path": "/p"}),
    ],
)
def test_parameters_are_refused(module: str, field: str, rest: dict[str, Any], value: str) -> None:
    """Each of these would reach a program's command line, or a path."""
    kind = modules.find(module)
    if (value, field) in (("", "index_url"), ("x" * 100_000, "packages"), ("x" * 100_000, "owner")):
        return  # unset, and names like any other
    listed = field in ("packages", "find_links")
    with pytest.raises((ValueError, codec.DecodeError)) as caught:
        codec.decode(kind, {**rest, field: [value] if listed else value}, module)
    assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value).strip()


@pytest.mark.parametrize(
    "requirement",
    ["-r /etc/passwd", "--index-url http://x", "-e .", "a --global-option=x", "a\n--index-url=http://x", "./a",
     "/a.whl", "git+https://h/r", "git+https://h/r@main", "a @ git+ext::sh -c touch% canary@" + "c" * 40,
     "a @ git+https://u:p@h/r@" + "c" * 40, "a;import os", "a @ git+ssh://-oProxyCommand=touch canary/x@" + "c" * 40],
)  # fmt: skip
def test_what_is_no_requirement_is_no_word_of_pip(requirement: str) -> None:
    with pytest.raises(ValueError):
        codec.decode(modules.find("pip_packages"), {"venv": "/v", "packages": [requirement]}, "pip_packages")


@pytest.mark.parametrize(
    "url",
    ["ext::sh -c touch% canary", "--upload-pack=touch canary", "-u", "ssh://-oProxyCommand=touch%20canary/x",
     "-oProxyCommand=x@h:r", "user@-oProxyCommand=touch:x", "https://u:p@h/r", "https://token@h/r", "fd::7", "x",
     "file://", "http://h/ r", "https://h/r\n--upload-pack=x", "transport::address", "git@h"],
)  # fmt: skip
def test_what_is_no_url_is_no_word_of_git(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        codec.decode(modules.find("git_checkout"), {"repo": "/r", "url": url, "commit": "c" * 40}, "git_checkout")
    assert ":p@" not in str(caught.value) and "token@" not in str(caught.value)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("engine", ["docker", "podman", "enroot"])
def test_images_and_mounts(value: str, engine: Any) -> None:
    for made in ({"image": value}, {"image": "i", "mounts": (value,)}):
        try:
            box = Container(engine, **made)  # type: ignore[arg-type]
        except ValueError:
            continue
        words = list(container.wrap(box, ["true"], repo="/r"))
        assert is_tame(words, value) and not value.startswith("-") and value.isprintable()


@pytest.mark.parametrize("repo", ["/a,b", '/a"b', "/a,readonly", "/a b", "/a'b", "/a$(touch canary)", "/a;b"])
def test_a_checkout_s_path_is_one_mount(repo: str) -> None:
    import csv

    check_path("repo", repo)
    words = container.wrap(Container("docker", "i"), ["true"], repo=repo)
    (fields,) = csv.reader([words[words.index("--mount") + 1]])
    assert fields == ["type=bind", f"source={repo}", f"target={repo}"]


@pytest.mark.parametrize("value", [value for value in HOSTILE.values() if value.strip() and "\0" not in value])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_path_in_rank_env_is_a_path(value: str, shell: str, tmp_path: Path) -> None:
    kind = modules.find("rank_env")
    path = f"/{value}".rstrip("/")
    try:
        made = codec.decode(kind, {"repo": path, "base": path}, "rank_env")
    except ValueError:
        return
    text = made.text()
    assert "\x1b" not in text
    script = tmp_path / "rank_env.sh"
    script.write_text(text)
    done = subprocess.run([shell, "-c", '. "$1"; true', shell, script], capture_output=True, check=False)
    assert (b"not found" not in done.stderr and b"canary" not in done.stderr) or value.encode()[:50] in done.stderr


def test_a_state_directory_and_an_owner_are_texts(tmp_path: Path) -> None:
    """Start is read as a Python literal on the node: quotes, line ends and code in it stay text."""
    hostile = "x'\"\n\\u0041__import__('os').system('touch canary')\u2028"
    agent = Agent(tmp_path / hostile)
    (tmp_path / hostile).mkdir()
    assert agent.follow([]).status == "ok" and agent.state.is_dir()
    assert Machine().exists(str(agent.state)) and not os.path.exists("canary")
