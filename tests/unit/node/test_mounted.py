"""Filesystems that should be mounted, and are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.errors import Refused
from k3env.node.machine import Machine
from k3env.node.mounted import refuse_unmounted

ROOT = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
SHARED = "21 20 0:40 / /shared rw - nfs4 server:/export rw\n"
BOUND = "22 20 8:1 /srv/shared /shared rw - ext4 /dev/sda1 rw\n"
FSTAB = "/dev/sda1 / ext4 defaults 0 1\n# server:/old /old nfs defaults 0 0\nserver:/export /shared nfs4 nofail 0 0\n"


def machine(root: Path, mounts: str, fstab: str | None = FSTAB, unit: str = "") -> Machine:
    files = {"proc/self/mountinfo": mounts, **({"etc/fstab": fstab} if fstab is not None else {})}
    if unit:
        files[f"etc/systemd/system/{unit}"] = "[Mount]\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Machine(overlay=str(root))


@pytest.mark.parametrize(
    ("mounts", "fstab", "unit", "path"),
    [
        (ROOT, FSTAB, "", "/shared/code"),
        (ROOT, FSTAB, "", "/shared"),
        (ROOT, "server:/e /shared/ nfs4 defaults 0 0\n", "", "/shared/a/b/c"),
        (ROOT, r"server:/e /two\040words nfs4 defaults 0 0", "", "/two words/code"),
        (ROOT + SHARED, FSTAB + "server:/p /shared/deep nfs4 rw 0 0\n", "", "/shared/deep/code"),
        (ROOT, "", "shared.mount", "/shared/code"),
        (ROOT, "", r"shared-gb300\x2dlab.mount", "/shared/gb300-lab/code"),
    ],
)
def test_what_should_be_mounted_and_is_not_is_refused(
    tmp_path: Path, mounts: str, fstab: str, unit: str, path: str
) -> None:
    with pytest.raises(Refused, match="is not mounted") as caught:
        refuse_unmounted(machine(tmp_path, mounts, fstab, unit), ("/var/tmp/other", path))
    assert caught.value.finding.remedy.startswith("mount /")


@pytest.mark.parametrize(
    ("mounts", "fstab", "unit", "path"),
    [
        (ROOT + SHARED, FSTAB, "", "/shared/code"),
        (ROOT + BOUND, FSTAB, "", "/shared/code"),
        (ROOT, FSTAB, "", "/local/code"),
        (ROOT, FSTAB, "", "/shared-not/code"),
        (ROOT, FSTAB, "", "/old/code"),
        (ROOT, "server:/e /shared nfs4 noauto,user 0 0\n", "", "/shared/code"),
        (ROOT, "UUID=0 none swap sw 0 0\nshort line\n", "", "/shared/code"),
        (ROOT, "", "other.mount", "/shared/code"),
    ],
)
def test_what_is_mounted_or_is_the_nodes_own_is_not_in_question(
    tmp_path: Path, mounts: str, fstab: str, unit: str, path: str
) -> None:
    refuse_unmounted(machine(tmp_path, mounts, fstab, unit), (path,))
