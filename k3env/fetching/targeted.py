"""pip for another machine: run as a program, with pip's words; $K3ENV_MARKERS holds the target's markers as JSON.

pip chooses wheels by `--platform`, but reads markers such as `platform_machine == "aarch64"` for the machine that it
runs on, and takes no source distribution together with `--platform`, though a pure one serves every machine.
Source: pip's documentation of `pip download`; pip's issue #11664.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def main() -> int:
    """Run pip, with the target's markers and with source distributions.

    Raises AttributeError if this pip is built otherwise than those that are known.
    """
    markers: Any = importlib.import_module("pip._vendor.packaging.markers")
    options: Any = importlib.import_module("pip._internal.cli.cmdoptions")
    target = json.loads(os.environ.pop("K3ENV_MARKERS"))
    for holder, name in ((markers, "default_environment"), (options, "check_dist_restriction")):
        getattr(holder, name)
    markers.default_environment = lambda: dict(target)
    options.check_dist_restriction = lambda *arguments, **keywords: None
    cli: Any = importlib.import_module("pip._internal.cli.main")
    return int(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
