"""flashinfer_cubins: FlashInfer's compiled kernels, fetched before ranks would have to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from k3env.k3.pins import FLASHINFER
from k3env.node.modules import Module
from k3env.node.modules._parameters import check_path, has_credentials
from k3env.protocol.container import Container
from k3env.protocol.finding import Change, Finding

if TYPE_CHECKING:
    from k3env.node.facts.venv import Venv
    from k3env.node.machine import Machine
    from k3env.node.modules._cubins import Cubins
    from k3env.protocol.profile import Profile

PACKAGE = "flashinfer-cubin"


@dataclass(frozen=True)
class FlashinferCubins(Module):
    """Fill the directory of cubins that `rank_env` points ranks to, whole or not at all.

    Without a way out of the cluster a rank that lacks a cubin hangs, and an empty directory hides those of the package
    flashinfer-cubin: where that package is installed, or comes with the image, nothing is to do. FlashInfer's own
    downloader fetches, in the checkout's environment, and it ends with 0 whatever happened: so what came is compared
    with its checksums.txt. `<directory>.json` says for which FlashInfer it was filled.
    """

    repo: str
    """Absolute path of the TensorRT LLM checkout."""
    venv: Optional[str] = None
    """The checkout's virtual environment; unset: `.venv-X.Y` in the checkout."""
    directory: Optional[str] = None
    """Absolute path of the directory to fill; unset: `<repo>/.k3env/cubins`, where `rank_env` looks."""
    source: Optional[str] = None
    """A mirror's URL, or the absolute path of a directory or .tar file of cubins from elsewhere; unset: NVIDIA's
    server, which FlashInfer names."""
    container: Container = Container()
    """The image that the environment's Python belongs to."""
    downloads: int = 16
    """Files at once."""
    inactivity_s: float = 600.0
    """How long the downloader may neither say nor compute anything, seconds."""

    def __post_init__(self) -> None:
        for name in ("repo", "venv", "directory"):
            if getattr(self, name) is not None:
                check_path(name, getattr(self, name))
        if self.source is not None and not self.source.startswith(("http://", "https://")):
            check_path("source", self.source)
        if has_credentials(self.source or ""):
            raise ValueError("source must hold no name and password")
        if self.downloads < 1:
            raise ValueError(f"downloads must be at least 1, found {self.downloads}")

    @property
    def target(self) -> str:
        """The directory that is filled."""
        return self.directory or os.path.join(self.repo, ".k3env", "cubins")

    def writes(self) -> tuple[str, ...]:
        """Return the checkout: whatever changes something in it takes its lease; or the directory elsewhere."""
        from k3env.node.modules import inside

        return (self.repo,) if inside(self.target, self.repo) else (self.target,)

    def disturbs(self) -> tuple[str, ...]:
        """Return what it writes."""
        return self.writes()

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the directory if it is absent, not as it was filled, or of another FlashInfer; nothing is started."""
        from k3env.node.modules import _cubins

        version, packaged = self._versions(machine)
        if packaged is not None:
            return ()
        after = f"cubins of FlashInfer {version or 'of this environment'}"
        record = _cubins.record(machine, self.target)
        if record is None:
            return (Change(self.target, "not filled", after),)
        if record.served_by and (version or "") == record.flashinfer and record.image == self.container.image:
            return ()
        if version not in (None, record.flashinfer):
            return (Change(self.target, f"cubins of FlashInfer {record.flashinfer}", after),)
        lost = record.served_by or _cubins.lost(machine, self.target, record)
        return (Change(self.target, str(lost), after),) if lost else ()

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Fill a directory beside it, compare what came, and put it in its place.

        Raises Refused without an environment to download with, TaskFailed where something lacks.
        """
        from k3env.node.modules._pip import usable

        if self.source is None or "://" in self.source:
            usable(self._venv(machine), f"of {self.repo}")
        self._cubins(machine).fill()

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what the directory was filled with, or what serves cubins instead."""
        from k3env.node.modules import _cubins

        version, packaged = self._versions(machine)
        record = _cubins.record(machine, self.target)
        if packaged is not None:
            return (f"{PACKAGE} {packaged} is installed, which FlashInfer takes before the directory",)
        if record is None:
            return ()
        if record.served_by:
            return (f"FlashInfer {record.flashinfer} takes cubins from {record.served_by}",)
        return (
            f"{self.target} has {len(record.files)} cubins of FlashInfer {record.flashinfer}, as they were filled",
            f"{record.compared} of them were compared with its checksums",
            f"the environment has FlashInfer {version}" if version else "no environment says otherwise",
        )

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Tell what serves cubins where this directory does not."""
        from k3env.node.modules import _cubins

        _, packaged = self._versions(machine)
        record = _cubins.record(machine, self.target)
        served = f"{PACKAGE} {packaged}" if packaged is not None else record.served_by if record is not None else ""
        if not served:
            return ()
        return (Finding("cubins.package", "pass", message=f"cubins are those of {served}: nothing to fill"),)

    def _versions(self, machine: Machine) -> tuple[Optional[str], Optional[str]]:
        """Return the versions of FlashInfer and of its package of cubins; None where they are not seen."""
        from k3env.node.facts.packages import sites

        venv = self._venv(machine)
        if venv is None or venv.unfinished:
            return None, None
        found = sites(machine, venv, self.repo, self.container)
        return found.versions((FLASHINFER,)).get(FLASHINFER) or found.version(FLASHINFER), found.version(PACKAGE)

    def _venv(self, machine: Machine) -> Optional[Venv]:
        from k3env.node.facts import venv
        from k3env.node.modules._pip import cannot_find_python

        try:
            path = self.venv or venv.find(machine, self.repo, self.container)
        except FileNotFoundError as error:
            raise cannot_find_python(error) from None
        return None if path is None else venv.read(machine, path, in_image=self.container.engine != "none")

    def _cubins(self, machine: Machine) -> Cubins:
        from k3env.node.modules._cubins import Cubins

        venv = self._venv(machine)
        python, site = (venv.python, venv.site) if venv is not None else ("", "")
        version = self._versions(machine)[0] or ""
        return Cubins(
            machine, self.repo, self.target, self.source, python, site, version, self.container, self.downloads,
            self.inactivity_s,
        )  # fmt: skip
