"""What a build would find where it runs: tools, the CUDA toolkit, torch, with versions. One process asks for all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

from k3env.k3 import build
from k3env.node.container import wrap
from k3env.node.facts import egress
from k3env.node.facts.egress import Configured
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.finding import Evidence, Unreadable

if TYPE_CHECKING:
    from k3env.node.process import Completed

ASK_S = 300.0
"""Seconds; an image may have to be unpacked first."""
HELP_S = 120
"""Seconds for the build script's --help: a cold network filesystem, not one that hangs."""
MARK = "k3env-toolchain "
TOOLS = ("cmake", "nvcc", "patchelf", "git", "git-lfs", "c++", "ninja", "ccache")
PACKAGES = (
    "torch",
    "triton",
    "transformers",
    "tensorrt",
    "nvidia-cutlass-dsl",
    "flashinfer-python",
    "pip",
    "virtualenv",
)

# Runs in an image's own Python, with nothing but the standard library. Values come by argv.
_PROGRAM = r"""
import configparser, glob, json, os, platform, re, shutil, signal, subprocess, sys, tempfile
from importlib import metadata

def said(*argv):
    try:
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        done = subprocess.run(argv, stdout=pipe, stderr=subprocess.STDOUT, stdin=none, timeout=20)
        return done.stdout.decode("utf-8", "replace")
    except Exception:
        return ""

def version(tool):
    if shutil.which(tool) is None:
        return None
    found = re.search(r"(?:release |version |[^0-9.])(\d+(?:\.\d+)+)", " " + said(tool, "--version"))
    return found.group(1) if found else ""

def overruled():
    # Variables and all of pip's files: an image may allow what its distribution forbids.
    told = said(sys.executable, "-m", "pip", "config", "list")
    return bool(re.search(r"break-system-packages\s*=\s*'?(?:1|true|yes|on)\b", told, re.I))

def bare(url):
    return re.sub(r"//[^/@\s]*@", "//", url)

def ways(urls):
    # git itself says what it makes of a URL, and which proxy it takes there; an empty one is none.
    found = {}
    for url in urls:
        after = (quiet("git", "ls-remote", "--get-url", url) or url).strip()
        proxy = quiet("git", "config", "--get-urlmatch", "http.proxy", after)
        found[url] = [bare(after), None if proxy is None else bare(proxy.strip())]
    return found

def quiet(*argv):
    try:
        none = subprocess.DEVNULL
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=none, stdin=none, timeout=20, cwd="/")
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
    except Exception:
        return None

def pip_files():
    # In the order in which later ones win. Source: pip's documentation, "Configuration".
    home, told = os.path.expanduser("~"), os.environ.get("PIP_CONFIG_FILE")
    if told == os.devnull:
        return []
    shared = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    own = [os.path.join(home, ".pip"), os.path.join(os.environ.get("XDG_CONFIG_HOME") or home + "/.config", "pip")]
    if told and os.path.exists(told):
        own = []
    places = [os.path.join(place, "pip") for place in shared] + ["/etc"] + own + [sys.prefix]
    return [os.path.join(place, "pip.conf") for place in places] + ([told] if told else [])

def pip_options():
    found = {"global": {}, "install": {}}
    for path in pip_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except Exception:
            continue
        for section in found:
            if parser.has_section(section):
                for key, value in parser.items(section):
                    found[section][key.lstrip("-").replace("_", "-")] = bare(value)
    both = dict(found["global"], **found["install"])
    return {key: both[key] for key in ("index-url", "proxy", "no-index") if key in both}

def package(name):
    try:
        return metadata.version(name)
    except Exception:
        return None

def installed():
    # What stands first in the search path is what is imported.
    found = {}
    for item in metadata.distributions():
        try:
            found.setdefault(str(item.metadata["Name"]), item.version)
        except Exception:
            continue
    return found

def helped(script):
    # Its own flags, asked in this container: another one would have to be started for them. argparse of Python 3.14
    # colours its help, also into a pipe where FORCE_COLOR is set.
    if not os.path.isfile(script):
        return None
    around = dict(os.environ, COLUMNS="200", NO_COLOR="1", PYTHON_COLORS="0")
    try:
        # Into a file: what it may have started and left behind would keep a pipe open.
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen([sys.executable, script, "--help"], stdout=said, stderr=subprocess.STDOUT,
                                     stdin=subprocess.DEVNULL, cwd=writable, env=around, start_new_session=True)
            try:
                code = child.wait(help_s)
            except subprocess.TimeoutExpired:
                code = 124
            end(child.pid)
            child.wait()
            said.seek(0)
            text = said.read().decode("utf-8", "replace")[-65536:]
            return [code, text + "\nno end after %d s" % help_s if code == 124 else text]
    except Exception as error:
        return [1, str(error)]

def end(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass

mark, tools, packages, writable = sys.argv[1], sys.argv[2].split(), sys.argv[3].split(), sys.argv[4]
script, help_s, urls = sys.argv[5], int(sys.argv[6]), sys.argv[7:]
homes = [home for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda") if home]
static = any(glob.glob(os.path.join(home, where, "libnvrtc_static.a")) for home in homes
             for where in ("lib64", "lib", "targets/*/lib"))
print(mark + json.dumps({
    "architecture": platform.machine(),
    "python": "%d.%d" % sys.version_info[:2],
    "is_base": sys.prefix == sys.base_prefix,
    "tools": {name: version(name) for name in tools},
    "packages": {name: package(name) for name in packages},
    "nvrtc_static": static,
    "has_cuda": any(map(os.path.isdir, homes)),
    "ngc_pytorch": os.environ.get("NVIDIA_PYTORCH_VERSION") or None,
    "externally_managed": bool(glob.glob(os.path.join(sys.prefix, "lib", "python*", "EXTERNALLY-MANAGED")))
    and not overruled(),
    "writable": os.access(writable, os.W_OK | os.X_OK) if writable else True,
    "installed": installed(),
    "help": helped(script),
    "ways": {"git": ways(urls) if urls else {}, "pip": pip_options() if urls else {}},
}))
"""


@dataclass(frozen=True)
class Toolchain:
    """What is there where a build would run: in an image, or on the node itself."""

    architecture: str
    """CPU, as uname names it: aarch64 on Grace."""
    python: str
    """Of python3 in its PATH: "3.12"."""
    is_base: bool
    """Whether that is no virtual environment's: inside one, the build makes none."""
    tools: dict[str, Optional[str]] = field(default_factory=dict)
    """Version by tool; None: not there; "": there, and says none."""
    packages: dict[str, Optional[str]] = field(default_factory=dict)
    """Version by distribution, of that python3; None: not there."""
    nvrtc_static: bool = True
    has_cuda: bool = False
    ngc_pytorch: Optional[str] = None
    """NVIDIA_PYTORCH_VERSION: an image that was made from NGC's PyTorch."""
    externally_managed: bool = False
    """PEP 668: pip refuses to install into it, and the build needs virtualenv there; unless break-system-packages is
    set."""
    writable: bool = True
    """Whether the checkout can be written to from there."""
    installed: dict[str, str] = field(default_factory=dict)
    """Version by name of all that this python3 has installed."""
    help: Optional[tuple[int, str]] = None
    """Exit code and words of the build script's --help, asked there; None: there is no script."""
    ways: Configured = Configured()
    """How git and pip would reach out, by their own files; empty where nobody asked."""
    source: Evidence = Evidence("")


def toolchain(
    machine: Machine,
    container: Container,
    repo: str,
    environment: Optional[Mapping[str, str]] = None,
    urls: Sequence[str] = (),
) -> Union[Toolchain, Unreadable]:
    """Ask python3, where the build would run, for all of it at once; `urls` are repositories that git would clone."""
    around = dict(environment or {})
    script = os.path.join(repo, build.SCRIPT)
    words = (
        "python3",
        "-I",
        "-c",
        _PROGRAM,
        MARK,
        " ".join(TOOLS),
        " ".join(PACKAGES),
        repo,
        script,
        str(HELP_S),
        *urls,
    )
    argv = wrap(container, words, repo=repo, environment=around, name=machine.name)
    done = machine.run(argv, timeout_s=ASK_S, environment=around)
    shown = Evidence(" ".join((*argv[: len(argv) - len(words)], "python3 …")), done.exit_code, done.evidence().excerpt)
    lines = [line for line in done.text.splitlines() if line.startswith(MARK)]
    if not done.ok or not lines:
        return Unreadable(_silence(done, argv[0]), shown)
    try:
        return _read(codec.plain(lines[-1][len(MARK) :]), shown)
    except (ValueError, KeyError, TypeError) as error:
        return Unreadable(f"what python3 said there is no answer: {type(error).__name__} {error}", shown)


def _silence(done: Completed, program: str) -> str:
    """Say why there is no answer."""
    if done.exit_code in (126, 127) and done.stderr.startswith(f"{program}: ".encode()):
        return f"{program} can't be started: {done.stderr.decode('utf-8', 'replace').partition(': ')[2].strip()}"
    last = (done.stderr.decode("utf-8", "replace").strip() or done.text).splitlines()[-1:]
    why = "no answer in time" if done.timed_out else f"exit code {done.exit_code}"
    return ": ".join(("python3 does not answer where the build would run", why, *last))


def _read(told: Mapping[str, Any], source: Evidence) -> Toolchain:
    return Toolchain(
        str(told["architecture"]),
        str(told["python"]),
        bool(told["is_base"]),
        {str(name): value for name, value in told["tools"].items()},
        {str(name): value for name, value in told["packages"].items()},
        bool(told["nvrtc_static"]),
        bool(told["has_cuda"]),
        told["ngc_pytorch"],
        bool(told["externally_managed"]),
        bool(told["writable"]),
        {str(name): str(version) for name, version in told["installed"].items()},
        None if told["help"] is None else (int(told["help"][0]), str(told["help"][1])),
        egress.read(told["ways"]),
        source,
    )
