"""A real conan, and a real conan server on loopback, with packages for other machines."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from k3env.fetching import Target
from k3env.fetching.conan import profile

VERSION = "2.14.0"
SERVE = (
    "import sys; from conans.server.server_launcher import app; "
    "app.run(host='127.0.0.1', port=int(sys.argv[1]), quiet=True)"
)
CONFIG = """[server]
jwt_secret: aaaaaaaaaaaaaaaaaaaaaaaa
jwt_expire_minutes: 120
ssl_enabled: False
port: {port}
public_port:
host_name: 127.0.0.1
authorize_timeout: 1800
disk_storage_path: ./data
disk_authorize_timeout: 1800
updown_secret: bbbbbbbbbbbbbbbbbbbbbbbb
[write_permissions]
*/*@*/*: *
[read_permissions]
*/*@*/*: *
[users]
demo: demo
"""
WRAPPER = """from conan import ConanFile
import os
class Wrapper(ConanFile):
    name, version = "nvrtc_wrapper", "1.0"
    settings = "os", "arch", "compiler", "build_type"
    def package(self):
        os.makedirs(os.path.join(self.package_folder, "lib"))
        with open(os.path.join(self.package_folder, "lib", "wrapper.so.1"), "w") as file:
            file.write(f"{self.settings.arch} gcc {self.settings.compiler.version}")
        os.symlink("wrapper.so.1", os.path.join(self.package_folder, "lib", "wrapper.so"))
"""
SOURCED = """from conan import ConanFile
class Sourced(ConanFile):
    name, version = "sourced", "1.0"
    settings = "os", "arch", "compiler", "build_type"
"""
CONANFILE = """from conan import ConanFile
class Project(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"
    def requirements(self):
        for name in {names}:
            self.requires(name)
"""


@dataclass(frozen=True)
class Conans:
    """Where conan is installed, and what it has made."""

    root: Path

    @property
    def program(self) -> Path:
        """The real conan."""
        return self.root / "tool" / "bin" / "conan"

    def conan(self, home: Path, *words: str, check: bool = True) -> str:
        """Run conan with a home."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), "CONAN_HOME": str(home), "no_proxy": "*"}
        done = subprocess.run([self.program, *words], env=environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def server(self, *targets: Target) -> Iterator[str]:
        """Serve the wrapper for these targets, and a package that is for none of them; yield the URL."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = self.root / f"server-{port}" / ".conan_server"
        place.mkdir(parents=True)
        (place / "server.conf").write_text(CONFIG.format(port=port))
        environment = {"PATH": os.environ["PATH"], "HOME": str(place.parent)}
        words = [self.root / "tool" / "bin" / "python", "-c", SERVE, str(port)]
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            self._upload(f"http://127.0.0.1:{port}", place.parent, targets)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)

    def _upload(self, url: str, place: Path, targets: tuple[Target, ...]) -> None:
        home = place / "home"
        for name, text in (("wrapper", WRAPPER), ("sourced", SOURCED)):
            (place / name).mkdir()
            (place / name / "conanfile.py").write_text(text)
        for target in targets:
            (place / "profile").write_text(profile(target))
            self.conan(home, "create", str(place / "wrapper"), "--profile:all", str(place / "profile"))
        self.conan(home, "export", str(place / "sourced"))
        self.conan(home, "remote", "add", "there", url)
        self.conan(home, "remote", "login", "there", "demo", "-p", "demo")
        self.conan(home, "upload", "*", "-r", "there", "--confirm")


def install(root: Path) -> Conans | str:
    """Install conan and its server where nothing else is; return why that can't be, where it can't."""
    python = root / "tool" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", root / "tool"], check=True)
    words = [python, "-m", "pip", "install", "--quiet", f"conan=={VERSION}", f"conan-server=={VERSION}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return Conans(root) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no answer"])[-1]


def script(url: str, remote: str = "--remote=TensorRT-LLM") -> str:
    """Return a build script that installs conan's packages as the older ages do. Own code, with their flags."""
    return f"""import os, subprocess, sys
venv = sys.argv[1] if len(sys.argv) > 1 else ""
run = lambda command: subprocess.run(command, shell=True, check=True)
if __name__ == "__main__":
    run(f'"{{venv}}" -m pip install conan=={VERSION}')
    run("conan profile detect -f")
    run(f"conan remote add --force TensorRT-LLM {url}")
    run(f"conan install --build=missing {remote} --output-folder=build -s build_type=Release cpp")
"""
