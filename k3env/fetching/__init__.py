"""Fetching: filling a directory, on a host with egress, with what the main job needs on nodes without."""

from k3env.fetching.filling import Asked, Filled, fill
from k3env.fetching.target import Target

__all__ = ["Asked", "Filled", "Target", "fill"]
