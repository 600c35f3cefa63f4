"""Documents: what people wrote, read with the place of every value."""

from k3env.documents.nodes import Node, Position, Text, problem

__all__ = ["Node", "Position", "Text", "problem"]
