"""trtllm_build: TensorRT LLM built in place, and installed from its checkout."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Optional

from k3env.errors import Refused, TaskFailed
from k3env.k3 import ages
from k3env.k3 import build as k3
from k3env.node.modules import Module
from k3env.node.modules._parameters import check_commit, check_path
from k3env.protocol.container import Container
from k3env.protocol.finding import Change, Finding

if TYPE_CHECKING:
    from k3env.node.facts.build import Build
    from k3env.node.facts.venv import Venv
    from k3env.node.machine import Machine
    from k3env.node.manifest import Manifest
    from k3env.protocol.profile import Profile

EXCLUDED = "/.k3env/"


@dataclass(frozen=True)
class TrtllmBuild(Module):
    """Build TensorRT LLM in its checkout, and install it from there.

    What is up to date, the things themselves say: CMakeCache.txt, the libraries, direct_url.json. Only which commit a
    build is of, and whether its libraries are still those, needs the manifest. HEAD is git_checkout's.
    """

    repo: str
    """Absolute path of the checkout, the same that the jobs use."""
    commit: str
    """What HEAD must be at, all 40 hexadecimal digits."""
    arch: str = "103-real"
    """CUDA architectures: 103-real for GB300 and B300, 100-real for GB200 and B200."""
    jobs: Optional[int] = None
    """Compile jobs; unset: by CPUs and memory, 4 GiB each."""
    install: Literal["no_deps", "resolve"] = "no_deps"
    """`resolve` is the deployment guide's form; it may put the FlashInfer of requirements.txt back."""
    container: Container = Container()
    """The image that the build runs in."""
    environment: dict[str, str] = field(default_factory=dict)
    """Added to the build's environment."""
    build_root: Optional[str] = None
    """A directory on the node's own disk for the millions of objects that a compilation writes; unset: `cpp/build` in
    the checkout. The environment stays `.venv-X.Y` in the checkout, where jobs and other nodes look for it: that is the
    script's `--build_dir`; its `--build_root` would move the environment too."""
    on_login_node: bool = False
    """Build also where Slurm is configured and no slurmd runs: there a build disturbs everybody."""
    offline: Optional[str] = None
    """A directory that `invoke fetch` has filled: what is in it is used, and nothing else."""
    inactivity_s: float = 1800.0
    """How long the build may neither say nor compute anything, seconds."""

    def __post_init__(self) -> None:
        check_path("repo", self.repo)
        check_commit("commit", self.commit)
        if self.offline is not None:
            check_path("offline", self.offline)
        problem = k3.arch_problem(self.arch)
        if problem:
            raise ValueError(f"arch: {problem}")
        if self.build_root is not None:
            check_path("build_root", self.build_root)
        if self.environment.get(ages.ROOT_VARIABLE):
            raise ValueError(
                f"environment: {ages.ROOT_VARIABLE} would move the environment out of the checkout, where jobs look for"
                " it; set build_root instead"
            )
        if self.jobs is not None and not 1 <= self.jobs <= k3.MAX_JOBS:
            raise ValueError(f"jobs must be from 1 to {k3.MAX_JOBS}, found {self.jobs}")

    def writes(self) -> tuple[str, ...]:
        """Return the checkout's root."""
        return (self.repo,)

    def disturbs(self) -> tuple[str, ...]:
        """Return the checkout, whose libraries ranks have in memory."""
        return (self.repo,)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what differs: the environment, the build, the installation.

        Raises Refused where `offline` lacks what the checkout's requirements ask for.
        """
        venv = self._venv(machine)
        building = (*self._venv_changes(machine, venv), *self._build_changes(machine))
        if building and self.offline is not None:
            self._refuse_unfetched(machine, venv)
        changes = (*building, *self._install_changes(machine, venv))
        return changes or self._image_changes(machine, venv)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Mend the environment, build, install, and write down what was made, each only where it is needed.

        Raises Refused if HEAD is elsewhere, TaskFailed with log, tail and meaning if a step fails.
        """
        from k3env.node.modules._around import explained

        with explained(machine, self.offline, lambda: getattr(self._venv(machine), "version", None)):
            self._apply(machine)

    def _apply(self, machine: Machine) -> None:
        from k3env.node import git_content
        from k3env.node.modules import _building
        from k3env.node.modules._around import around

        self._require_head(machine)
        git_content.exclude(machine, self.repo, EXCLUDED)
        work = _building.Work(machine, around(machine, self))
        venv = self._venv(machine)
        if venv is not None and venv.unfinished:
            work.move_aside(venv)
        elif venv is not None and venv.dangling:
            work.relink(venv)
        found = self._found(machine)
        same_commit = found.manifest is not None and found.manifest.commit == self.commit
        built = bool(self._build_changes(machine)) or self._venv(machine) is None
        flags = work.build() if built else ()
        installed = bool(self._install_changes(machine, self._venv(machine))) or not same_commit
        if installed:
            work.install()
        if built:
            work.record(flags)
        elif self._image_changes(machine, self._venv(machine)):
            work.see_image()

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what CMake's cache, the manifest, the libraries and the installation say."""
        found, venv = self._found(machine), self._venv(machine)
        made = found.manifest
        told = [f"CMakeCache.txt says {found.cmake_arch}"]
        if made is not None:
            told.append(f"the manifest says commit {made.commit[:12]}{f', image {made.image}' if made.image else ''}")
            told.append(f"{len(made.artefacts)} artefacts as recorded")
        if venv is not None:
            told.append(f"{os.path.basename(venv.path)} is whole, Python {venv.version}")
        return (*told, f"{k3.PACKAGE} is editable from {self.repo}")

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Warn of a build that was made from local changes, or in another image of the same name."""
        from k3env.node import manifest

        made = manifest.read(machine, self.repo)
        if made is None or made.commit != self.commit:
            return ()
        return (*self._dirty(made), *self._other_image(machine, made))

    def _dirty(self, made: Manifest) -> tuple[Finding, ...]:
        from k3env.node import manifest

        if made.dirty is None:
            return ()
        return (
            Finding(
                "trtllm.dirty", "warn", "warn", subject=self.repo,
                message=f"TensorRT LLM was built from {self.commit[:12]} with local changes",
                expected="a build of the commit alone", found=f"local changes, hash {made.dirty[:12]}",
                remedy=f"commit or discard them, remove {manifest.path(self.repo)}, and build again",
            ),
        )  # fmt: skip

    def _other_image(self, machine: Machine, made: Manifest) -> tuple[Finding, ...]:
        from k3env.node import manifest
        from k3env.node.facts import image_packages

        now = image_packages.key(machine, self.container) if made.image_key else ""
        if not now or now == made.image_key or made.image != self.container.image:
            return ()
        return (
            Finding(
                "trtllm.image", "warn", "warn", subject=made.image,
                message=f"TensorRT LLM was built in another image than {made.image} now is",
                expected=f"the image {made.image_key[:12]}, in which it was built", found=now[:12],
                remedy="see that their torch and CUDA are the same; if not, build again from nothing: "
                f"rm -r {manifest.path(self.repo)} {made.build_dir or os.path.join(self.repo, k3.CMAKE_DIR)}",
            ),
        )  # fmt: skip

    def _image_changes(self, machine: Machine, venv: Optional[Venv]) -> tuple[Change, ...]:
        """Return that an image is to be asked what it has installed, if it is not known, and can be kept."""
        from k3env.node.facts import image_packages

        if self.container.engine == "none" or venv is None or not venv.system_site_packages:
            return ()
        if image_packages.recorded(machine, self.repo, self.container) is not None:
            return ()
        known = image_packages.key(machine, self.container)
        return (Change(f"packages of {self.container.image}", "not recorded", "recorded"),) if known else ()

    def _venv_path(self, machine: Machine) -> Optional[str]:
        from k3env.node.facts import venv
        from k3env.node.modules._pip import cannot_find_python

        try:
            return venv.expected(machine, self.repo, self.container)
        except FileNotFoundError as error:
            raise cannot_find_python(error) from None

    def _venv(self, machine: Machine) -> Optional[Venv]:
        from k3env.node.facts import venv

        path = self._venv_path(machine)
        return None if path is None else venv.read(machine, path, in_image=self.container.engine != "none")

    def _found(self, machine: Machine) -> Build:
        from k3env.node.facts import build

        return build.look(machine, self.repo)

    def _venv_changes(self, machine: Machine, venv: Optional[Venv]) -> tuple[Change, ...]:
        path = venv.path if venv is not None else self._venv_path(machine)
        what = f"environment {path or os.path.join(self.repo, '.venv-X.Y')}"
        if venv is None:
            return (Change(what, "absent", "made by the build"),)
        if venv.unfinished:
            return (Change(what, venv.unfinished, "moved aside and made anew"),)
        return (Change(what, venv.dangling, f"its links lead to a Python {venv.version}"),) if venv.dangling else ()

    def _build_changes(self, machine: Machine) -> tuple[Change, ...]:
        from k3env.node import git_content
        from k3env.node.facts import build

        found = self._found(machine)
        changes = build.differences(found, commit=self.commit, arch=self.arch, image=self.container.image)
        made = found.manifest
        if not changes and made is not None and made.dirty is not None:
            now = git_content.dirty_hash(machine, self.repo)
            if now != made.dirty:
                return (Change("local changes that were built", made.dirty[:12], now[:12] if now else "none"),)
        return changes

    def _install_changes(self, machine: Machine, venv: Optional[Venv]) -> tuple[Change, ...]:
        from k3env.node.facts.packages import Sites
        from k3env.node.modules._pip import refuse_several

        after = f"editable from {self.repo}"
        if venv is None:
            return (Change(k3.PACKAGE, "not installed", after),)
        if venv.unfinished:
            return ()  # It goes with the environment.
        sites = Sites(machine, venv, with_base=False)
        refuse_several(sites, k3.PACKAGE)
        found = sites.distribution(k3.PACKAGE)
        if found is None:
            return (Change(k3.PACKAGE, "not installed", after),)
        if found.lost:
            return (Change(k3.PACKAGE, f"without {', '.join(found.lost[:3])}", after),)
        return () if found.editable_from(self.repo) else (Change(k3.PACKAGE, found.origin, after),)

    def _refuse_unfetched(self, machine: Machine, venv: Optional[Venv]) -> None:
        """Raise Refused for requirements of this commit that `offline` holds no wheel for, as far as that is known."""
        from k3env.node import git
        from k3env.node.facts.packages import Sites
        from k3env.node.modules._around import opened
        from k3env.node.modules._wheelhouse import lacking, meets, read_in, required, unfetched

        if not machine.is_dir(self.repo) or git.head(machine, self.repo) != self.commit:
            return
        path = self._venv_path(machine)
        python = None if path is None else os.path.basename(path).rpartition("-")[2]
        needed = required(read_in(machine, self.repo), k3.INSTALLED)
        if venv is not None and not venv.unfinished:
            sites = Sites(machine, venv, with_base=False)
            needed = tuple(item for item in needed if not meets(item, sites.version(item.name)))
        offline = opened(machine, self.offline or "")
        told = unfetched(offline, needed, python)
        if told:
            raise lacking(offline, told, python)

    def _require_head(self, machine: Machine) -> None:
        from k3env.node import git

        head = git.head(machine, self.repo)
        if head != self.commit:
            raise Refused(
                f"{self.repo} is not at the commit that is to be built",
                expected=self.commit, found=head or "no git checkout there",
                remedy="let git_checkout bring it there (tag `build`), or set trtllm_commit to what HEAD is at",
                id="trtllm.head",
            )  # fmt: skip


def argv(
    flags: frozenset[str],
    *,
    arch: str,
    jobs: int,
    configure: bool = False,
    clean: bool = False,
    dynamic_nvrtc: bool = False,
    generate_fmha: bool = False,
    objects: str = "",
) -> tuple[str, ...]:
    """Return the arguments of build_wheel.py, leaving out what this checkout's does not know.

    `configure`: it was configured in another way; `clean`: somewhere else, or in another image; `dynamic_nvrtc`: there
    is no static one; `generate_fmha`: its attention kernels may be half of what they must be; `objects`: where to
    compile to, if not in the checkout.

    Raises TaskFailed if it does not take an architecture at all, or can't compile elsewhere and is to.
    """
    if "--cuda_architectures" not in flags:
        raise TaskFailed(
            f"this checkout's {k3.SCRIPT} takes no --cuda_architectures",
            expected="--cuda_architectures among its flags", found=", ".join(sorted(flags)) or "no flags",
            remedy="see that repo is a TensorRT LLM checkout, at a commit with Kimi K3", id="trtllm.script",
        )  # fmt: skip
    if objects and ages.BUILD_DIR not in flags:
        raise TaskFailed(
            f"this checkout's {k3.SCRIPT} takes no {ages.BUILD_DIR}",
            expected=f"{ages.BUILD_DIR} among its flags", found="none",
            remedy="leave build_root out", id="trtllm.script",
        )  # fmt: skip
    words = ["--cuda_architectures", arch]
    words += [flag for flag in ("--skip_building_wheel", "--yes") if flag in flags]
    words += ["-j", str(jobs)] if flags & {"-j", "--job_count"} else []
    words += [ages.CLEAN] if clean and ages.CLEAN in flags else []
    words += [ages.CONFIGURE] if configure and not clean and ages.CONFIGURE in flags else []
    words += [ages.NVRTC] if dynamic_nvrtc and ages.NVRTC in flags else []
    words += [ages.GENERATE_FMHA] if generate_fmha and not clean and ages.GENERATE_FMHA in flags else []
    words += [ages.BUILD_DIR, objects] if objects else []
    return tuple(words)
