"""Secrets in a real run: looked for in all processes while it goes, and in all that it leaves behind.

Where one may be seen: in the environment of the commands that the playbook gives it to, which only their own user and
root can read; in the file or variable that it comes from.
"""

from __future__ import annotations

import base64
import http.server
import io
import json
import shlex
import sys
import tarfile
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3env.cli.words import shown
from k3env.protocol.masking import MASK
from tests.sandbox.cli import Site
from tests.security import watching
from tests.sshd import sshd, with_config
from tests.unit.node import ground

VALUE = 'Tr0ub4dor&3 "quoted" it\'s/+='
OTHER = "correct-horse-battery"


def forms(value: str) -> dict[str, bytes]:
    """Return a secret as programs write it."""
    data = value.encode()
    return {
        "itself": data,
        "base64": base64.b64encode(data).rstrip(b"="),
        "base64 of a line": base64.b64encode(data + b"\n")[: len(data) * 4 // 3 - 2],
        "base64 in a longer text": base64.b64encode(b"user:" + data)[8:-4],
        "URL": urllib.parse.quote(value, safe="").encode(),
        "URL with plus": urllib.parse.quote_plus(value).encode(),
        "JSON": json.dumps(value)[1:-1].encode(),
        "shell": shlex.quote(value).encode(),
        "Python": repr(value)[1:-1].encode(),
        "hex": data.hex().encode(),
    }


FORMS = {
    f"{name} of {which}": form
    for which, value in (("one", VALUE), ("other", OTHER))
    for name, form in forms(value).items()
}

SAYS = r"""
import base64, json, os, shlex, sys, time, urllib.parse
value = os.environ["TOKEN"]
out = sys.stdout
for text in (value, base64.b64encode(value.encode()).decode(), base64.b64encode((value + "\n").encode()).decode(),
             base64.b64encode(("user:" + value).encode()).decode(), urllib.parse.quote(value, safe=""),
             urllib.parse.quote_plus(value), json.dumps(value), shlex.quote(value), repr(value), value.encode().hex()):
    out.write("said " + text + "\n")
    out.write("half " + text[:len(text) // 2])
    out.flush()
    time.sleep(0.02)
    out.write(text[len(text) // 2:] + "\n")
    out.flush()
print(value, file=sys.stderr)
time.sleep(0.3)
raise SystemExit(int(sys.argv[1]))
"""

PLAY = """
- name: secrets
  hosts: all
  environment:
    GIT_CONFIG_NOSYSTEM: "1"
  tasks:
    - name: a command that succeeds
      command: {{argv: [{python}, {script}, "0"], read_only: true}}
      environment: {{TOKEN: {{secret: "file:{file}"}}}}
    - name: a command that fails
      command: {{argv: [{python}, {script}, "3"], creates: /nonexistent}}
      environment: {{TOKEN: {{secret: "env:OTHER"}}}}
      ignore_errors: true
    - name: a command in a module's own environment
      command:
        argv: [{python}, {script}, "3"]
        unless: [{python}, {script}, "4"]
        environment: {{TOKEN: {{secret: "file:{file}"}}}}
      ignore_errors: true
    - name: a file
      copy: {{dest: {dest}, content: {{secret: "file:{file}"}}, mode: "0600"}}
    - name: a checkout
      git_checkout: {{repo: {repo}, url: "file://{upstream}", commit: {commit}}}
      environment: {{TOKEN: {{secret: "env:OTHER"}}}}
    - name: a package
      pip_packages: {{venv: {venv}, packages: [tiny], no_index: true, find_links: [{wheels}]}}
      environment: {{TOKEN: {{secret: "file:{file}"}}}}
    - name: no such module's worth
      command: {{argv: [/nonexistent/program], read_only: true}}
      environment: {{TOKEN: {{secret: "env:OTHER"}}}}
"""


def looked_through(root: Path, *but: Path) -> int:
    """Look for every form in every file below a directory; return how many files that were."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path not in but]
    for path in files:
        data = path.read_bytes()
        assert not [name for name, form in FORMS.items() if form in data], path
    return len(files)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state")


@pytest.mark.parametrize(
    ("connection", "output"), [("local", "text"), ("ssh", "json"), ("openssh", "jsonl"), ("ssh", "text")]
)
def test_a_run(connection: str, output: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "node"
    base.mkdir()
    kept = tmp_path / "kept" / "secret"
    kept.parent.mkdir()
    kept.write_text(VALUE + "\n")
    (base / "says.py").write_text(SAYS)
    commit = ground.commit(tmp_path / "upstream", "first", a="1")
    ground.run(ground.PYTHON, "-m", "venv", base / "venv")
    ground.wheel(tmp_path / "wheels", "tiny", "1.0")
    play = tmp_path / "play.yml"
    play.write_text(
        PLAY.format(
            python=sys.executable, script=base / "says.py", file=kept, dest=base / "dest", repo=base / "repo",
            upstream=tmp_path / "upstream", commit=commit, venv=base / "venv", wheels=tmp_path / "wheels",
        )
    )  # fmt: skip
    inventory = tmp_path / "hosts.yml"
    monkeypatch.setenv("OTHER", OTHER)
    with sshd(tmp_path / "sshd") as server:
        with_config(tmp_path, monkeypatch, f"Host node\n  IdentityFile {server.key}\n  IdentitiesOnly yes\n",
                    known_hosts=f"[127.0.0.1]:{server.port} {server.host_key}\n")  # fmt: skip
        inventory.write_text(
            f"all: {{hosts: {{node: {{ansible_host: 127.0.0.1, ansible_port: {server.port},"
            f" ansible_private_key_file: {server.key}}}}}}}\n"
        )
        with watching.processes() as seen:
            said = site.k3env(
                "provision", "--hosts", "node", "--inventory", str(inventory), "--playbook", str(play), "--diff",
                "--connection", connection, "--output", output, "--allow-busy", "--extra-vars",
                f"k3env_state_dir={base}/state", "-v",
                "--extra-vars", "mirror=https://me:hunter2@h.invalid/x", "--extra-vars", f"api_token={OTHER}-more",
                "--extra-vars", f"spare={OTHER}",
            )  # fmt: skip
    assert said.code == 2 and "exit code 127" in said.out + said.err, said.out + said.err
    for name, form in FORMS.items():
        assert form not in said.out.encode() + said.err.encode(), name
        mine = [words for words in seen.in_argv(form) if b"--extra-vars" not in words]
        assert mine == [], (name, mine)
    assert seen.looks > 10 and (base / "dest").read_text() == VALUE
    # What the playbook gives a secret to has it in its environment, and so has what that starts; nothing of ours has.
    for words in seen.in_environ(VALUE.encode()):
        assert not any(part in words for part in (b"-I\0-S\0-c", b"k3env.cli", b"sshd", b"ssh\0")), words
    assert any(b"says.py" in words for words in seen.in_environ(VALUE.encode()))
    assert looked_through(base / "state") > 4 and looked_through(site.state) >= 2
    assert looked_through(base, base / "dest") > 20
    assert looked_through(tmp_path / "sshd") > 2
    assert "hunter2" not in "".join(path.read_text() for path in site.state.rglob("*.json*"))
    shown_again = [site.k3env(*words) for words in (["runs"], ["runs", "--output", "json"])]
    assert all(form not in one.out.encode() for one in shown_again for form in FORMS.values())


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--extra-vars", "url=https://u:p@h/x"], ["--extra-vars", f"url=https://{MASK}@h/x"]),
        (["--extra-vars=url=ssh://git:p@h/x"], [f"--extra-vars=url=ssh://{MASK}@h/x"]),
        (["hf_token=abc"], [f"hf_token={MASK}"]),
        (["--extra-vars=DB_PASSWORD=a b"], [f"--extra-vars=DB_PASSWORD={MASK}"]),
        (["x=value"], [f"x={MASK}"]),
        (["--hosts", "me@node", "--playbook", "secret.yml"], ["--hosts", "me@node", "--playbook", "secret.yml"]),
    ],
)
def test_a_command_line_that_is_kept(words: list[str], kept: list[str]) -> None:
    assert list(shown(words, ["value"])) == kept


def test_a_usage_error_s_document(site: Site) -> None:
    secrets = ("--extra-vars", "trtllm_url=https://me:hunter2@h/x", "--extra-vars", "hf_token=hunter2")
    said = site.k3env("provision", "--output", "json", "--hosts", "x", "--inventory", "/nonexistent", *secrets)
    assert said.code == 1 and "hunter2" not in said.out + said.err
    assert said.document["command"][-1] == f"hf_token={MASK}"


URL = "http://me:hunter2@proxy"
WRITTEN = [
    '{"egress": "http://me:hunter2',
    json.dumps({"egress": {"https_proxy": URL}}),
    json.dumps({"hf_token": "hunter2"}),
    f"egress={URL}",
    f'egress={{"https_proxy": "{URL}"',
    f"egress={{{{ {URL} }}}}",
    f"egress=http://me:hunter2{'x' * 80}@proxy",
    "egress=http://me:p@hunter2@proxy",
    "egress=https://hunter2@proxy",
    URL,
    "egress.https_proxy=hunter2",
    "trtllm_arch=1 hf_token=hunter2",
    *(f"{name}={URL}" for name in ("gpus_per_node", "trtllm_commit", "container", "image_arch", "trtllm_jobs")),
]


@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.parametrize("output", ["text", "json"])
def test_what_can_not_be_read_is_told_without_its_password(text: str, output: str, site: Site) -> None:
    said = site.k3env("provision", "--hosts", "h", "--check", "--extra-vars", text, "--output", output)
    shown_again = said.err if output == "text" else json.dumps(said.document["error"])
    assert said.code == 1 and "hunter2" not in shown_again and "found" in shown_again


BROKEN_FILES = [
    f"egress: {{https_proxy: {URL}\n",
    f"egress: {URL}: x\n",
    f"trtllm_jobs: {URL}\n",
    f"egress: {{{{ {URL} }}}}\n",
    f"\tegress: {URL}\n",
]


@pytest.mark.parametrize("text", BROKEN_FILES)
def test_nor_is_that_of_a_file_that_can_not_be_read(text: str, site: Site, tmp_path: Path) -> None:
    (tmp_path / "vars.yml").write_text(text)
    said = site.k3env("provision", "--hosts", "h", "--check", "--extra-vars", f"@{tmp_path}/vars.yml")
    assert said.code == 1 and "vars.yml:1" in said.err and "hunter2" not in said.out + said.err, said.err
    (tmp_path / "hosts.yml").write_text(f"all:\n  vars:\n    trtllm_repo: /r\n    {text.lstrip()}")
    said = site.k3env("provision", "--hosts", "all", "--check", "--inventory", str(tmp_path / "hosts.yml"))
    assert said.code == 1 and "hunter2" not in said.out + said.err, said.err


@pytest.mark.parametrize("variable", ["trtllm_url", "flashinfer_url"])
def test_a_password_in_a_url_of_the_main_job(variable: str, site: Site) -> None:
    """It is refused before anything is contacted, and not repeated."""
    said = site.provision("--check", "--extra-vars", f"{variable}=https://me:hunter2@h/x", hosts="sandbox")
    assert said.code == 1 and "hunter2" not in said.out + said.err
    assert "credential" in said.err and not (site.state / "k3env" / "runs").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "too short"), (b"\n", "too short"), (b"a\0b", "NUL"), (b"\xff", "no UTF-8 text"), (None, "No such file")],
)
def test_a_secret_that_can_not_be_one(content: bytes | None, why: str, site: Site, tmp_path: Path) -> None:
    kept = tmp_path / "secret"
    if content is not None:
        kept.write_bytes(content)
    play = tmp_path / "play.yml"
    play.write_text(
        "- hosts: all\n  tasks:\n    - command: {argv: ['true'], read_only: true}\n"
        f"      environment: {{T: {{secret: 'file:{kept}'}}}}\n"
    )
    said = site.k3env("provision", "--hosts", "localhost", "--connection", "local", "--playbook", str(play))
    assert said.code == 1 and why in said.err and "defect" not in said.err


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/proc/self", "/nonexistent/\ud800"])
def test_a_secret_s_file_that_is_none(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from k3env.cli.secrets import _value
    from k3env.errors import UsageError

    with pytest.raises(UsageError):
        _value(f"file:{path}")


class Index(http.server.BaseHTTPRequestHandler):
    """A package index that wants a name and a password."""

    def do_GET(self) -> None:
        wanted = f"Basic {base64.b64encode(f'me:{OTHER}'.encode()).decode()}"
        if self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        body = sdist() if self.path.endswith(".gz") else b'<a href="/f/guarded-1.0.tar.gz">guarded-1.0.tar.gz</a>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def sdist() -> bytes:
    """Return a package that pip builds in an environment of its own, for which it starts another pip."""
    files = {
        "pyproject.toml": '[build-system]\nrequires=[]\nbuild-backend="backend"\nbackend-path=["."]\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: guarded\nVersion: 1.0\n",
        "backend.py": (
            "import time, zipfile\n"
            "def build_wheel(directory, settings=None, metadata=None):\n"
            "    time.sleep(0.3)\n"
            "    name = 'guarded-1.0-py3-none-any.whl'\n"
            "    with zipfile.ZipFile(f'{directory}/{name}', 'w') as file:\n"
            "        info = 'guarded-1.0.dist-info'\n"
            "        file.writestr(f'{info}/METADATA', 'Metadata-Version: 2.1\\nName: guarded\\nVersion: 1.0\\n')\n"
            "        file.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\\nTag: py3-none-any\\n')\n"
            "        file.writestr(f'{info}/RECORD', '')\n"
            "    return name\n"
        ),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"guarded-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def index() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_index_with_a_password_is_used_and_shows_it_to_nobody(index: int, tmp_path: Path) -> None:
    from k3env.node.modules.pip_packages import PipPackages

    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text(f"machine 127.0.0.1 login me password {OTHER}\n")
    (home / ".netrc").chmod(0o600)
    ground.run(ground.PYTHON, "-m", "venv", tmp_path / "venv")
    machine = ground.machine(home, PIP_CONFIG_FILE="/dev/null", PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="")
    module = PipPackages(("guarded",), venv=str(tmp_path / "venv"), index_url=f"http://127.0.0.1:{index}/simple")
    with watching.processes() as seen:
        ground.perform(module, machine)
    assert not seen.in_argv(OTHER.encode()) and not seen.in_environ(OTHER.encode())
    assert seen.in_argv(b"pip") and looked_through(tmp_path / "venv" / ".k3env") >= 1
