"""What options say about the plans that are to be made."""

from __future__ import annotations

from k3env.cli.options import Options
from k3env.cli.site import site
from k3env.inventory.variables import extra
from k3env.playbook import compile as compiling


def asked(options: Options) -> compiling.Options:
    """Return what compiling is told; files that options name are read.

    Raises UsageError, DocumentError.
    """
    return compiling.Options(
        tags=options.tags,
        skip_tags=options.skip_tags,
        start_at_task=options.start_at_task,
        check=options.check,
        context=options.context,
        probe_dir=options.probe_dir,
        force_in_use=options.force_in_use,
        explain=options.explain_skip,
        extra=extra(options.extra_vars),
        site=site(options),
    )
