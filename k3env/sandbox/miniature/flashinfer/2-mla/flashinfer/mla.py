"""Where the optimised MLA decode would be: a stand-in of k3env's sandbox."""

from __future__ import annotations

KERNEL = "cute_dsl"
