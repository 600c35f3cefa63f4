"""Which site file a command reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from k3env.cli.options import Options
from k3env.errors import UsageError
from k3env.playbook import site as sites
from k3env.playbook.site import NO_SITE, Site


def site(options: Options) -> Site:
    """Return what `--site-file` says, else the file beside or in an inventory, else nothing.

    Raises UsageError for inventories with a site file each, DocumentError for a wrong one.
    """
    if options.site_file is not None:
        return sites.load(Path(options.site_file))
    found = list(dict.fromkeys(_beside(options)))
    if len(found) > 1:
        raise UsageError(
            "the inventories have a site file each",
            expected="one site file",
            found=", ".join(map(str, found)),
            remedy=f"name the one that is meant: --site-file {found[-1]}",
        )
    return sites.load(found[0]) if found else NO_SITE


def _beside(options: Options) -> Iterator[Path]:
    given = options.inventory or tuple(name for name in os.environ.get("K3ENV_INVENTORY", "").split(",") if name)
    for name in given:
        path = Path(name)
        file = (path if path.is_dir() else path.parent) / sites.NAME
        if path.exists() and file.is_file():
            yield file
