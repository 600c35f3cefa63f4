"""Ways out: as git, pip and CMake take them, by variables and by their own files, at the ports that they take."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from k3env.node.facts import egress
from k3env.node.facts import toolchain as toolchains
from k3env.node.facts.egress import Configured, Way
from k3env.node.facts.toolchain import Toolchain, toolchain
from k3env.node.machine import Machine
from k3env.node.modules import _ground
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.protocol.container import Container
from tests.unit.node.ground import run

URL = "https://github.com/fmtlib/fmt"
PROXY = "http://proxy.site:3128"
MIRRORED = {URL: "https://git.site/fmtlib/fmt"}
TO_PROXY = Way("git", "proxy.site:3128", "https_proxy")

# what it is, environment, git's files, what git connects to
GIT = [
    ("nothing is set", {}, Configured(), Way("git", "github.com:443")),
    ("a variable", {"https_proxy": PROXY}, Configured(), TO_PROXY),
    ("in capitals", {"HTTPS_PROXY": PROXY}, Configured(), Way("git", "proxy.site:3128", "HTTPS_PROXY")),
    ("for all", {"ALL_PROXY": "proxy.site"}, Configured(), Way("git", "proxy.site:1080", "ALL_PROXY", True)),
    ("http alone is another's", {"http_proxy": PROXY}, Configured(), Way("git", "github.com:443")),
    ("no port", {"https_proxy": "http://u:p@p.site"}, Configured(), Way("git", "p.site:1080", "https_proxy", True)),
    ("a TLS proxy", {"https_proxy": "https://p.site"}, Configured(), Way("git", "p.site:443", "https_proxy", True)),
    ("an IPv6 proxy", {"https_proxy": "http://[::1]:8"}, Configured(), Way("git", "::1:8", "https_proxy")),
    ("no URL", {"https_proxy": "http://proxy.site:port"}, Configured(), Way("git", "github.com:443")),
    ("taken out", {"https_proxy": PROXY, "no_proxy": ".github.com"}, Configured(), Way("git", "github.com:443")),
    ("by git's file", {}, Configured(git_proxies={URL: PROXY}), Way("git", "proxy.site:3128", "git's http.proxy")),
    (
        "git's file beats a variable",
        {"https_proxy": "http://other:1"},
        Configured(git_proxies={URL: PROXY}),
        Way("git", "proxy.site:3128", "git's http.proxy"),
    ),
    ("turned off by it", {"https_proxy": PROXY}, Configured(git_proxies={URL: ""}), Way("git", "github.com:443")),
    ("a mirror", {}, Configured(MIRRORED), Way("git", "git.site:443")),
    (
        "a mirror beside the proxy",
        {"https_proxy": PROXY, "no_proxy": "git.site"},
        Configured(MIRRORED),
        Way("git", "git.site:443"),
    ),
    ("a mirror by ssh", {"https_proxy": PROXY}, Configured({URL: "git@git.site:f"}), Way("git", "git.site:22")),
    ("by git's protocol", {}, Configured({URL: "git://git.site/f"}), Way("git", "git.site:9418")),
    ("a directory", {}, Configured({URL: "/srv/git/fmt"}), None),
    ("a file's URL", {}, Configured({URL: "file:///srv/git/fmt"}), None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "environment", "configured", "way"), GIT, ids=[row[0] for row in GIT])
def test_the_way_of_git(name: str, environment: dict[str, str], configured: Configured, way: Way | None) -> None:
    assert egress.for_git((URL,), environment, configured) == (() if way is None else (way,))


PIP = [
    ({}, {}, (Way("pip", "pypi.org:443"), Way("pip", "download.pytorch.org:443"))),
    ({"https_proxy": "http://p"}, {}, (Way("pip", "p:80", "https_proxy", True),)),
    ({"PIP_PROXY": "socks5://p"}, {}, (Way("pip", "p:1080", "pip's proxy", True),)),
    ({"PIP_INDEX_URL": "https://name:word@pypi.site/simple"}, {}, (Way("pip", "pypi.site:443"),)),
    ({"PIP_INDEX_URL": "http://[::1]:8080/simple"}, {}, (Way("pip", "::1:8080"),)),
    ({"PIP_INDEX_URL": "file:///srv/wheels"}, {}, ()),
    ({"PIP_INDEX_URL": "http://pypi.site:port/simple"}, {}, ()),
    ({"PIP_NO_INDEX": "1"}, {}, ()),
    ({}, {"no-index": "true"}, ()),
    ({}, {"index-url": "http://pypi.site/simple"}, (Way("pip", "pypi.site:80"),)),
    ({"PIP_INDEX_URL": "http://a"}, {"index-url": "http://b", "proxy": "p:1"}, (Way("pip", "p:1", "pip's proxy"),)),
    ({"https_proxy": PROXY}, {"index-url": "http://b"}, (Way("pip", "b:80"),)),
]


@pytest.mark.parametrize(("environment", "files", "ways"), PIP)
def test_the_way_of_pip(environment: dict[str, str], files: dict[str, str], ways: tuple[Way, ...]) -> None:
    assert egress.for_pip(_ground.INDEXES, environment, Configured(pip=files)) == ways


def test_cmake_knows_the_environment_alone() -> None:
    assert egress.for_cmake("github.com", {}) == Way("CMake", "github.com:443")
    assert egress.for_cmake("github.com", {"https_proxy": "p"}) == Way("CMake", "p:1080", "https_proxy", True)


NO_PROXY = [
    ("github.com", True), (".com", True), ("com", True), ("hub.com", False), ("*", True), ("a, github.com b", True),
    ("GitHub.com", True), ("", False), ("10.0.0.0/8", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "is_out"), NO_PROXY)
def test_no_proxy(text: str, is_out: bool) -> None:
    assert egress.bypasses("github.com", {"no_proxy": text}) is is_out
    assert egress.bypasses("10.1.2.3", {"NO_PROXY": "10.0.0.0/8"})


@pytest.mark.parametrize(("url", "port"), [("http://127.0.0.9", 1080), ("https://127.0.0.9", 443), ("127.0.0.9", 1080)])
def test_a_proxy_without_a_port_is_where_git_itself_looks(tmp_path: Path, url: str, port: int) -> None:
    around = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "https_proxy": url, "GIT_TERMINAL_PROMPT": "0"}
    done = Machine(environment=around).run(("git", "ls-remote", "https://host.invalid/x"))
    assert f"127.0.0.9 port {port}" in done.stderr.decode()
    assert egress.for_git(("https://host.invalid/x",), around, Configured())[0].target == f"127.0.0.9:{port}"


@pytest.mark.parametrize("url", ["http://127.0.0.9", "https://127.0.0.9", "http://127.0.0.9:7"])
def test_a_proxy_without_a_port_is_where_pip_itself_looks(url: str) -> None:
    said = run(
        "python3", "-c",
        "import sys; from pip._vendor.urllib3 import ProxyManager as P; print(P(sys.argv[1]).proxy.port)", url,
    )  # fmt: skip
    assert egress.for_pip(_ground.INDEXES, {"https_proxy": url}, Configured())[0].target == f"127.0.0.9:{said}"


def test_what_can_not_be_reached_is_named_once_with_what_led_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        here = f"127.0.0.1:{server.getsockname()[1]}"
        closed.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{closed.getsockname()[1]}"
        assert egress.unreached((Way("git", here), Way("pip", gone))) == (gone,)
        ways = (Way("git", gone, "git's http.proxy"), Way("pip", gone, "https_proxy"), Way("CMake", here))
        assert egress.unreached(ways) == (f"{gone} (the proxy of git and pip, by git's http.proxy and https_proxy)",)
        (told,) = egress.unreached((Way("git", gone, "https_proxy", True),))
        assert told == f"{gone} (the proxy of git, by https_proxy; no port stands there, so git would take this)"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Configured]:
    """Ask on this machine, with files of a user's own; of its tools none but git is asked."""
    monkeypatch.setattr(toolchains, "TOOLS", ("git",))

    def ask(*urls: str, **environment: str) -> Configured:
        around = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1",
                  "XDG_CONFIG_DIRS": str(tmp_path / "xdg"), "XDG_CONFIG_HOME": str(tmp_path / ".config")}  # fmt: skip
        found = toolchain(Machine(environment={**around, **environment}), Container(), "", urls=urls or (URL,))
        assert isinstance(found, Toolchain)
        return found.ways

    return ask


def test_git_is_asked_what_its_files_come_to(tmp_path: Path, asked: Callable[..., Configured]) -> None:
    (tmp_path / ".gitconfig").write_text(
        '[url "https://u:word@git.site/gh/"]\n\tinsteadOf = https://github.com/\n'
        '[url "/srv/eigen"]\n\tinsteadOf = https://gitlab.com/libeigen/eigen\n'
        '[http]\n\tproxy = http://u:word@proxy.site\n[http "https://other.invalid"]\n\tproxy =\n'
    )
    found = asked(URL, "https://gitlab.com/libeigen/eigen", "https://other.invalid/a")
    assert found.git == {
        URL: "https://git.site/gh/fmtlib/fmt",
        "https://gitlab.com/libeigen/eigen": "/srv/eigen",
        "https://other.invalid/a": "https://other.invalid/a",
    }
    assert found.git_proxies["https://git.site/gh/fmtlib/fmt"] == "http://proxy.site"
    assert found.git_proxies["https://other.invalid/a"] == ""
    assert egress.for_git((URL,), {}, found) == (Way("git", "proxy.site:1080", "git's http.proxy", True),)


FILES = [
    ("the user's", {".config/pip/pip.conf": "[global]\nindex-url = http://u:word@one/\n"}, "http://one/"),
    ("the old place of it", {".pip/pip.conf": "[global]\nindex_url = http://one/\n"}, "http://one/"),
    (
        "the user's over everybody's",
        {"xdg/pip/pip.conf": "[global]\nindex-url = http://all/\n", ".config/pip/pip.conf": "[global]\nindex-url=http://me/\n"},
        "http://me/",
    ),
    (
        "of the command over of all",
        {"xdg/pip/pip.conf": "[install]\nindex-url = http://all/\n", ".config/pip/pip.conf": "[global]\nindex-url=http://me/\n"},
        "http://all/",
    ),
    ("another command's", {".config/pip/pip.conf": "[download]\nindex-url = http://one/\n"}, None),
    ("what is no file of pip's", {".config/pip/pip.conf": "index-url = http://one/\n"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "files", "index"), FILES, ids=[row[0] for row in FILES])
def test_pips_files_are_read_as_pip_reads_them(
    tmp_path: Path, asked: Callable[..., Configured], name: str, files: dict[str, str], index: str | None
) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = asked().pip
    if index is None:
        assert "http://one/" not in found.values()
    else:
        assert found["index-url"] == index


def test_a_file_that_a_variable_names_replaces_the_users(tmp_path: Path, asked: Callable[..., Configured]) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\nindex-url = http://one/\n")
    (tmp_path / "own.conf").write_text("[global]\nproxy = http://p\n")
    assert "index-url" not in asked(PIP_CONFIG_FILE=str(tmp_path / "own.conf")).pip
    assert asked(PIP_CONFIG_FILE=str(tmp_path / "own.conf")).pip["proxy"] == "http://p"
    assert asked(PIP_CONFIG_FILE="/dev/null").pip == {}


def test_a_site_that_is_configured_by_files_is_not_told_that_it_has_no_way_out(tmp_path: Path) -> None:
    rows = [
        {"git_repository": "${github_base_url}/fmtlib/fmt", "git_tag": "1"},
        {"git_repository": "https://x.invalid/a"},
    ]
    (tmp_path / "3rdparty").mkdir()
    listed = tmp_path / "3rdparty/fetch_content.json"
    listed.write_text(json.dumps({"dependencies": rows}))
    wanted, machine = TrtllmBuild(str(tmp_path), "1" * 40), Machine()
    assert _ground.sources(machine, str(tmp_path)) == ((URL, "https://x.invalid/a"), False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = f"http://127.0.0.1:{server.getsockname()[1]}"
        ways = Configured({URL: f"{here}/fmt"}, {"https://x.invalid/a": here}, {"index-url": f"{here}/simple"})
        assert _ground._out_of_reach(machine, wanted, {}, ways) == ()
        listed.write_text(
            json.dumps({"dependencies": [*rows, {"git_repository": "${github_base_url}/a", "use_url": 1}]})
        )
        assert _ground.sources(machine, str(tmp_path))[1]
        (told,) = _ground._out_of_reach(machine, wanted, {"https_proxy": "http://127.0.0.9:9"}, ways)
        assert "CMake" in told, "git's and pip's files are not CMake's"


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"dependencies": [1]}', '{"dependencies": {"a": 1}}'])
def test_a_list_of_sources_that_says_nothing(text: str | None) -> None:
    assert egress.source_urls(text, "https://github.com") == ((), False)
