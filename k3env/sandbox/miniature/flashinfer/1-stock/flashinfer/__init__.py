"""A stand-in of k3env's sandbox for FlashInfer."""

from __future__ import annotations

from ._build_meta import __git_commit__, __version__

__all__ = ["__git_commit__", "__version__"]
