"""template: a whole file, rendered on the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Optional

from k3env.node.modules import Module, _ownership
from k3env.node.modules._content import WholeFile, check
from k3env.node.modules._place import place
from k3env.protocol.finding import Change

if TYPE_CHECKING:
    from k3env.node.machine import Machine


@dataclass(frozen=True)
class Template(Module):
    """Give a file the content of a template, rendered on the controller before any host is contacted.

    The template is Jinja2 over the task's variables; lines that hold nothing but a statement leave none behind. What
    comes of it is treated as `copy` treats its content.
    """

    SECRETS: ClassVar[tuple[str, ...]] = ("content",)

    dest: str
    """Absolute path on the node, or `~/…`; its directory must be there."""
    src: Optional[str] = None
    """A template on the controller, at most 64 KiB, in `templates/` beside the playbook or beside it."""
    content: Optional[str] = None
    """The text itself, in the place of src."""
    mode: Optional[str] = None
    """Octal digits in quotes, such as "0644", which is what a new file gets."""
    owner: Optional[str] = None
    """A user's name or number."""
    group: Optional[str] = None
    """A group's name or number."""
    sensitive: bool = False
    """Never show the content, nor what stood there before."""

    def __post_init__(self) -> None:
        check("template", self.dest, self.content, self.src)
        _ownership.check(self.mode, self.owner, self.group)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return content, mode and owner that differ."""
        return self._file(machine).changes()

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return which file is as it must be."""
        return (f"{self.dest} holds what the template makes, with that mode and owner",)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Replace the file."""
        self._file(machine).put()

    def _file(self, machine: Machine) -> WholeFile:
        content = (self.content or "").encode()
        dest = place(self.dest, machine)
        return WholeFile(dest, content, self.mode, self.owner, self.group, self.sensitive, machine.mask)
