"""Which Slurm jobs may run on a node while it is changed."""

from __future__ import annotations

import os
import re

from k3env.cli.options import Options

_NAMED = re.compile(r"(?<![^,:&!\s])slurm:job:([0-9]+(?:_[0-9]+)?)")


def allowed(options: Options) -> str:
    """Return the jobs of this command, with commas between: the one around it, and those whose hosts it names.

    `*` with --allow-busy.
    """
    if options.allow_busy:
        return "*"
    around = os.environ.get("SLURM_JOB_ID", "")
    named = [job for pattern in (options.hosts, options.limit) for job in _NAMED.findall(pattern or "")]
    return ",".join(dict.fromkeys(job for job in (around, *named) if job))
