"""The steps of a build in place: mend the environment, build, install, write down what was made."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from k3env.errors import Refused, TaskFailed
from k3env.k3 import ages
from k3env.k3 import build as k3
from k3env.k3.pins import RECORDED
from k3env.node import git, git_content, manifest, offline
from k3env.node.container import wrap
from k3env.node.facts import build, checkout, image_packages, interpreter, packages, system, venv
from k3env.node.facts import script as scripts
from k3env.node.facts import toolchain as toolchains
from k3env.node.modules import _before_build, _conan, _ground, _own_disk, _steps
from k3env.node.modules._pip import ENVIRONMENT, Pip, refuse_moves, usable
from k3env.node.process import Completed
from k3env.protocol.finding import Unreadable

if TYPE_CHECKING:
    from k3env.node.facts.build import Build
    from k3env.node.facts.toolchain import Toolchain
    from k3env.node.facts.venv import Venv
    from k3env.node.machine import Machine
    from k3env.node.modules._before_build import Ground
    from k3env.node.modules._own_disk import OwnDisk
    from k3env.node.modules.trtllm_build import TrtllmBuild


@dataclass(frozen=True)
class Work:
    """One build."""

    machine: Machine
    wanted: TrtllmBuild
    _asked: list[Toolchain] = field(default_factory=list, compare=False)
    _disk: list[OwnDisk] = field(default_factory=list, compare=False)

    @property
    def root(self) -> str:
        """The checkout."""
        return self.wanted.repo

    def move_aside(self, broken: Venv) -> None:
        """Rename an environment that can't be mended; what is in it can still be looked at, until the next is moved."""
        directory, name = os.path.split(f"{broken.path}.k3env-aside-")
        # Each holds all of the requirements: a builder that is cut off time and again would fill the disk.
        for entry in [entry for entry in os.scandir(directory) if entry.name.startswith(name)]:
            if entry.is_dir(follow_symlinks=False):
                self.machine.progress(f"removing {entry.path}, which was moved aside earlier")
                shutil.rmtree(entry.path)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        aside = os.path.join(directory, f"{name}{stamp}-{uuid.uuid4().hex[:6]}")
        os.rename(broken.path, aside)
        self.machine.progress(f"moved {broken.path} aside: {broken.unfinished}")

    def relink(self, broken: Venv) -> None:
        """Lead an environment's links to an interpreter of the same version; what is installed stays.

        Raises Refused where there is no such interpreter.
        """
        version = broken.version or ""
        python = interpreter.of_version(self.machine, version)
        if python is None:
            raise Refused(
                f"{broken.path} needs Python {version}, and this node has none: {broken.dangling}",
                expected=f"python{version} in PATH", found="none",
                remedy=f"install Python {version}, or mv {broken.path} {broken.path}.old to have it made anew",
                id="venv.no_python",
            )  # fmt: skip
        for name in venv.interpreter_names(version):
            link = os.path.join(broken.path, "bin", name)
            behind = re.search(r"python(\d+\.\d+)\Z", os.path.realpath(link))
            if not os.path.exists(link) or (behind and behind[1] != version):
                fresh = f"{link}.k3env-{os.getpid()}"
                os.symlink(python.path, fresh)
                os.replace(fresh, link)
        config = os.path.join(broken.path, "pyvenv.cfg")
        if not venv.serves(self.machine, broken.home, version):
            self.machine.write(config, _rehomed(self.machine.text(config), python.path).encode())

    def build(self) -> tuple[str, ...]:
        """Run build_wheel.py, see that it left what a whole build leaves, and return the arguments that it got.

        Raises TaskFailed.
        """
        found = build.look(self.machine, self.root, self._objects)
        toolchain = self.toolchain()
        version = toolchain.python
        self._refuse_ground(found, toolchain)
        arguments = self._arguments(found, toolchain)
        self._drop_half_fmha(found)
        self.machine.make(os.path.join(self.root, manifest.DIRECTORY, "dg_cache"))
        with self.machine.beside():
            self._take("build TensorRT LLM", (self._python(), k3.SCRIPT, *arguments))
        wanted = ages.environment(version, self.root)
        if not self.machine.is_dir(wanted):
            raise TaskFailed(
                "the build made no environment of its own", expected=wanted,
                found="nothing there", id="trtllm.no_venv",
                remedy="see that python3 is no virtual environment's, and that TRTLLM_BUILD_ROOT is unset",
            )  # fmt: skip
        missing = build.wanting(self.machine, self.root, version, self._objects)
        if missing:
            raise TaskFailed(
                f"the build ended well, but left no {', '.join(missing)}",
                expected="all libraries in tensorrt_llm/", found=f"{len(missing)} missing: {', '.join(missing)}",
                remedy=f"see the log in {manifest.logs(self.root)}; a build by hand with --clean starts over",
                id="trtllm.built",
            )  # fmt: skip
        return arguments

    def install(self) -> None:
        """Install the package from the checkout, so that what is imported is what was built."""
        pip = self._pip(self._venv())
        pip.see_image()
        sites = packages.sites(self.machine, pip.venv, self.root, self.wanted.container)
        if self.wanted.install == "no_deps":
            pip.install("install TensorRT LLM", "--no-deps", "-e", ".", cwd=self.root)
            return
        if pip.can_resolve(sites):
            moves = pip.resolution("see what installing would move", "-e", ".", cwd=self.root)
            moves.pop(k3.PACKAGE, None)
            image = pip.versions_in_image() if sites.base_unseen else {}
            refuse_moves(moves, lambda name: sites.version(name) or image.get(name))
        pip.install("install TensorRT LLM", "-e", ".", cwd=self.root)

    def see_image(self) -> None:
        """Make known what the image has installed."""
        self._pip(self._venv()).see_image()

    def record(self, flags: tuple[str, ...]) -> None:
        """Write the manifest, last of all."""
        found = build.look(self.machine, self.root, self._objects)
        made = self._venv()
        self._pip(made).see_image()
        sites = packages.sites(self.machine, made, self.root, self.wanted.container)
        manifest.write(
            self.machine,
            self.root,
            manifest.Manifest(
                commit=self.wanted.commit,
                arch=self.wanted.arch,
                cmake_arch=found.cmake_arch or "",
                dirty=git_content.dirty_hash(self.machine, self.root),
                submodules=git_content.submodule_commits(self.machine, self.root),
                flags=flags,
                build_dir=self._objects,
                image=self.wanted.container.image,
                image_key=image_packages.key(self.machine, self.wanted.container),
                python=made.version or "",
                versions=sites.versions(RECORDED),
                artefacts=build.artefacts(self.machine, self.root, {}),
            ),
        )

    def toolchain(self) -> Toolchain:
        """Ask for what is there where the build runs.

        Raises TaskFailed if nothing there answers.
        """
        if self._asked:
            return self._asked[0]
        urls = () if self.wanted.offline is not None else _ground.sources(self.machine, self.root)[0]
        found = toolchains.toolchain(self.machine, self.wanted.container, self.root, self._environment(), urls)
        if isinstance(found, Unreadable):
            raise TaskFailed(
                found.reason, expected="python3 that starts where the build runs",
                remedy="install it, or see PATH" if "can't be started" in found.reason
                else "see whether the image's name is right, and whether its engine works for this user",
                id="trtllm.no_python", evidence=(found.evidence,) if found.evidence else (),
            )  # fmt: skip
        self._asked.append(found)
        if self.wanted.container.engine != "none":
            image_packages.learn(self.machine, self.root, self.wanted.container, found.python, found.installed)
        return found

    def _refuse_ground(self, found: Build, toolchain: Toolchain) -> None:
        """Raise Refused, with all that keeps this build from ending well."""
        wrong = _before_build.problems(self._ground(found, toolchain))
        if wrong:
            raise Refused(
                "the build would not end well: " + "; ".join(f"{item.expected}: {item.found}" for item in wrong),
                expected="; ".join(str(item.expected) for item in wrong),
                found="; ".join(str(item.found) for item in wrong),
                remedy="; ".join(dict.fromkeys(str(item.remedy) for item in wrong)),
                id=wrong[0].id if len(wrong) == 1 else "trtllm.before",
            )

    def _ground(self, found: Build, toolchain: Toolchain) -> Ground:
        script = scripts.script(self.machine, self.root)
        if script is None:
            raise Refused(
                f"{self.root} has no {k3.SCRIPT}", expected="a TensorRT LLM checkout", found="no such file",
                remedy="see what trtllm_repo and trtllm_commit lead to", id="trtllm.script",
            )  # fmt: skip
        return _ground.look(self.machine, self.wanted, found, script, toolchain, self._environment())

    def _arguments(self, found: Build, toolchain: Toolchain) -> tuple[str, ...]:
        """Return the arguments that this checkout's script is to get, and see that the objects can go there.

        Raises Refused for a build root on a network filesystem, TaskFailed for a script that can't do it.
        """
        from k3env.node.modules.trtllm_build import argv

        clean = not build.same_home(found) or self._is_of_another_image(found)
        flags = self._flags()
        dynamic_nvrtc = ages.NVRTC in flags and toolchain.has_cuda and not toolchain.nvrtc_static
        environment = ages.environment(toolchain.python, self.root)
        stale = build.stale(found, arch=self.wanted.arch, environment=environment, dynamic_nvrtc=dynamic_nvrtc)
        words = argv(
            flags,
            arch=self.wanted.arch,
            jobs=self.wanted.jobs or self._jobs(),
            configure=bool(stale),
            clean=clean,
            dynamic_nvrtc=dynamic_nvrtc,
            generate_fmha=self._has_half_fmha(found),
            objects=self._objects,
        )
        if self.wanted.build_root is not None:
            _own_disk.refuse_far(self.machine, self.wanted.build_root)
            self.machine.make(self.wanted.build_root)
        return words

    def _is_of_another_image(self, found: Build) -> bool:
        """Return whether what is compiled there is known to be of another image: libraries of two must not be mixed.

        Source: TensorRT LLM's document of its containers. What it was compiled against, no dependency of make's says.
        """
        made = found.manifest
        if made is None or found.cmake_arch is None:
            return False
        now = image_packages.key(self.machine, self.wanted.container)
        return made.image != self.wanted.container.image or bool(made.image_key and now and made.image_key != now)

    def _flags(self) -> frozenset[str]:
        """Return the flags of the build script, by its own word.

        Raises TaskFailed where it says none.
        """
        code, text = self.toolchain().help or (1, f"there is no {k3.SCRIPT}")
        if code != 0:
            words = (self._python(), k3.SCRIPT, "--help")
            step = _steps.Step(f"ask {k3.SCRIPT} for its flags", words, "build")
            raise _steps.failed(self.machine, step, Completed(words, code, self.machine.mask.text(text).encode()))
        return checkout.flags(text)

    def _has_half_fmha(self, found: Build) -> bool:
        """Return whether attention kernels lie there that no build has finished, and the script can't tell."""
        script = scripts.script(self.machine, self.root)
        return (
            script is not None
            and not script.marks_fmha
            and found.manifest is None
            and self.machine.is_dir(os.path.join(self.root, k3.FMHA))
        )

    def _drop_half_fmha(self, found: Build) -> None:
        """Remove attention kernels that no build has finished, where the script has no flag to make them anew.

        It would trust them for ever. What git tracks is left alone.
        """
        if not self._has_half_fmha(found) or ages.GENERATE_FMHA in self._flags():
            return
        if not git.answer(self.machine, self.root, "ls-files", "--", k3.FMHA).strip():
            self.machine.progress("remove attention kernels that no build has finished")
            shutil.rmtree(os.path.join(self.root, k3.FMHA))

    def _jobs(self) -> int:
        left = system.memory(self.machine)
        return k3.build_jobs(system.cpus(self.machine).usable, left.available, left.cpu_nodes, left.cgroup)

    def _python(self) -> str:
        return "python3" if self.wanted.container.engine != "none" else interpreter.base_python(self.machine).path

    def _version(self) -> str:
        """Return the version of the interpreter that builds.

        Raises TaskFailed if an image's is a virtual environment's: then the build would make none.
        """
        if self.wanted.container.engine == "none":
            return interpreter.base_python(self.machine).version
        found = self.toolchain()
        if not found.is_base:
            raise TaskFailed(
                "the image's python3 is a virtual environment's, so the build would make none in the checkout",
                expected="a base interpreter first in the image's PATH", found="a virtual environment's",
                remedy="use a TensorRT LLM devel image", id="venv.no_python",
            )  # fmt: skip
        return found.python

    def _venv(self) -> Venv:
        path = ages.environment(self._version(), self.root)
        found = venv.read(self.machine, path, in_image=self.wanted.container.engine != "none")
        return usable(found, path)

    @property
    def _objects(self) -> str:
        return build.objects_of(self.wanted.build_root, self.root)

    @property
    def _own_disk(self) -> OwnDisk:
        if not self._disk:
            found = _own_disk.of(
                self.machine,
                self.root,
                self.wanted.container,
                self.wanted.environment,
            )
            found = self._with_conan(found)
            found.make(self.machine)
            self._disk.append(found)
        return self._disk[0]

    def _with_conan(self, disk: OwnDisk) -> OwnDisk:
        """Let conan find what was fetched, unless somebody named a home of their own."""
        home = disk.caches.get(_conan.VARIABLE)
        if self.wanted.offline is None or home is None or home == _conan.configured(self.machine):
            return disk
        conan = offline.use(self.machine, self.wanted.offline).conan
        if conan is None or conan.archive is None:
            return disk
        filled = _conan.unpacked(self.machine, self.wanted.offline, conan.archive, home)
        return replace(disk, caches={**disk.caches, _conan.VARIABLE: filled})

    def _pip(self, made: Venv) -> Pip:
        container = self._own_disk.container
        return Pip(self.machine, made, self.root, container, self._environment(), self.wanted.inactivity_s)

    def _take(self, title: str, words: tuple[str, ...]) -> None:
        environment = self._environment()
        roots = (self.wanted.build_root,) if self.wanted.build_root else ()
        _steps.take(
            self.machine,
            _steps.Step(
                title=title,
                argv=wrap(
                    _own_disk.mounted(self._own_disk.container, *roots),
                    words,
                    repo=self.root,
                    environment=environment,
                    name=self.machine.name,
                ),
                tool="build",
                cwd=self.root,
                environment=environment,
                inactivity_s=self.wanted.inactivity_s,
                logs=manifest.logs(self.root),
            ),
        )

    def _environment(self) -> dict[str, str]:
        """Return what is added to the build's environment.

        The build empties DeepGEMM's cache and writes conan's home: neither is the user's own.
        """
        own = os.path.join(self.root, manifest.DIRECTORY)
        around = {
            **ENVIRONMENT,
            "PYTHONUNBUFFERED": "1",
            "TRTLLM_DG_CACHE_DIR": os.path.join(own, "dg_cache"),
            **self._own_disk.caches,
        }
        if self.wanted.container.engine == "none":
            around["PATH"] = interpreter.base_path(self.machine)
        # In place means in the checkout, whatever this user's shell or the image says.
        around[ages.ROOT_VARIABLE] = ""
        return {**around, **self.wanted.environment}


def _rehomed(config: str, python: str) -> str:
    """Return a pyvenv.cfg that names another interpreter. Source: CPython's venv and virtualenv."""
    home = os.path.dirname(python)
    values = {
        "home": home,
        "executable": python,
        "base-executable": python,
        "base-prefix": os.path.dirname(home),
        "base-exec-prefix": os.path.dirname(home),
    }
    lines = []
    for line in config.splitlines():
        key = line.partition("=")[0].strip()
        lines.append(f"{key} = {values[key]}" if key in values else line)
    return "\n".join(lines) + "\n"
