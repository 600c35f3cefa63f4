"""Mode, owner and group: what is wanted, and what must be changed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

from k3env.errors import Refused
from k3env.protocol.finding import Change

if TYPE_CHECKING:
    from k3env.node.modules._place import Standing

_MODE = re.compile(r"[0-7]{3,4}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?")


@dataclass(frozen=True)
class Wanted:
    """Mode, uid and gid; None: as it is, or as it comes."""

    mode: Optional[int]
    uid: Optional[int]
    gid: Optional[int]

    def changes(self, path: str, standing: Standing, owner: Optional[str], group: Optional[str]) -> tuple[Change, ...]:
        """Return what is different about something that stands at a path."""
        found = []
        if self.mode is not None and self.mode != standing.mode:
            found.append(Change(f"mode of {path}", standing.shown, f"{self.mode:04o}"))
        if self.uid is not None and self.uid != standing.uid:
            found.append(Change(f"owner of {path}", _shown(standing.uid, user=True), str(owner)))
        if self.gid is not None and self.gid != standing.gid:
            found.append(Change(f"group of {path}", _shown(standing.gid, user=False), str(group)))
        return tuple(found)

    def over(self, standing: Standing) -> Wanted:
        """Return this for a new file in the place of an old one: what is not asked for stays as it was."""
        ours = os.geteuid() == 0 or standing.uid == os.geteuid()
        groups = (os.getegid(), *os.getgroups())
        gid = standing.gid if os.geteuid() == 0 or standing.gid in groups else None
        return Wanted(
            standing.mode if self.mode is None else self.mode,
            standing.uid if self.uid is None and ours else self.uid,
            gid if self.gid is None else self.gid,
        )

    def give(self, what: Union[int, str], mode: Optional[int] = None) -> None:
        """Give a descriptor, or the path of one in /proc, these, or this mode if none is wanted.

        The mode is set last, since a change of owner takes bits from it. Raises OSError.
        """
        if self.uid is not None or self.gid is not None:
            os.chown(what, -1 if self.uid is None else self.uid, -1 if self.gid is None else self.gid)
        wanted = self.mode if self.mode is not None else mode
        if wanted is not None:
            os.chmod(what, wanted)


def check(mode: Optional[str], owner: Optional[str], group: Optional[str]) -> None:
    """Raise ValueError for what can be no mode, no owner, no group."""
    if mode is not None and not _MODE.fullmatch(mode):
        raise ValueError(f'mode must be octal digits in quotes, such as "0644", found {mode!r}')
    for key, name in (("owner", owner), ("group", group)):
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(f"{key} must be a name or a number, found {name!r}")


def wanted(mode: Optional[str], owner: Optional[str], group: Optional[str]) -> Wanted:
    """Return what a task wants, names looked up on this node.

    Raises Refused for a name that is unknown here.
    """
    return Wanted(
        None if mode is None else int(mode, 8),
        None if owner is None else _uid(owner),
        None if group is None else _gid(group),
    )


def _uid(name: str) -> int:
    import pwd

    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise _unknown("user", name) from None


def _gid(name: str) -> int:
    import grp

    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise _unknown("group", name) from None


def _unknown(kind: str, name: str) -> Refused:
    return Refused(
        f"{kind} {name} is unknown on this node",
        expected=f"a {kind} of this node",
        found=f"no such {kind}",
        remedy="make it, or give its number",
    )


def _shown(number: int, user: bool) -> str:
    import grp
    import pwd

    try:
        return pwd.getpwuid(number).pw_name if user else grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
