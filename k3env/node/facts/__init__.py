"""Facts read the world and judge nothing.

A fact is a function of the machine, or of the machine and the profile where the profile says where to look,
that returns a frozen dataclass. A failure to read raises, or returns Unreadable; it never guesses.
`@deadline(5.0)` says how many seconds it may take. Where a prolog runs as root, facts are read as the job's user:
what root opens, that user may not, and what belongs to users must not be executed by root. `@privileged` is read as
root all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from k3env.node.collector import Reading, collect
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile

if TYPE_CHECKING:
    import pwd

Fact = Callable[..., Any]
DEADLINE_S = 10.0
"""What a fact may take that does not say it itself, seconds."""

_USER = "user"
_Declared = TypeVar("_Declared", bound=Fact)


def deadline(seconds: float) -> Callable[[_Declared], _Declared]:
    """Declare how long a fact may take; it may get less where the context has less left."""

    def declare(fact: _Declared) -> _Declared:
        vars(fact)["deadline_s"] = seconds
        return fact

    return declare


def deadline_of(fact: Fact) -> float:
    """Return how many seconds a fact may take."""
    return float(getattr(fact, "deadline_s", DEADLINE_S))


def privileged(fact: _Declared) -> _Declared:
    """Declare that a fact is for root to read, where there is one; it touches nothing that belongs to users."""
    vars(fact)["privileged"] = True
    return fact


def read(fact: Fact, machine: Machine, profile: Profile) -> Any:
    """Read one fact in this process; whatever goes wrong becomes Unreadable."""
    try:
        return fact(machine) if fact.__code__.co_argcount == 1 else fact(machine, profile)
    except (OSError, ValueError) as error:
        return Unreadable(f"{type(error).__name__}: {error}")
    except Exception as error:
        return Unreadable(f"the reader itself failed: {type(error).__name__}: {error}")


class Facts:
    """The facts of one moment, each read once, in children that can be left behind."""

    def __init__(
        self,
        machine: Machine,
        profile: Profile,
        ends: Optional[float] = None,
        user: Optional[pwd.struct_passwd] = None,
    ) -> None:
        """`ends`, on time.monotonic(), is when the context's time is over; None: facts have their deadlines alone.

        `user` is who root becomes to read them.
        """
        self._machine = machine
        self._user = user
        self._profile = profile
        self._ends = ends
        self._values: dict[Fact, Any] = {}

    def collect(self, facts: tuple[Fact, ...]) -> dict[Fact, Any]:
        """Return the values of these facts, reading those that are missing side by side.

        A fact that is not there after its deadline is Unreadable; a wedged driver or a dead NFS server puts its
        reader into a wait that no signal ends, so that child is left behind.
        """
        missing = [fact for fact in dict.fromkeys(facts) if fact not in self._values]
        readings = {fact: self._reading(fact) for fact in missing}
        self._values.update(collect(readings, self._ends, {_USER: self._become}))
        return {fact: self._values[fact] for fact in facts}

    def _reading(self, fact: Fact) -> Reading:
        def value(ends: float) -> Any:
            self._machine.ends = ends
            return read(fact, self._machine, self._profile)

        as_user = self._user is not None and not getattr(fact, "privileged", False)
        return Reading(value, lambda: codec.hints(fact)["return"], deadline_of(fact), _USER if as_user else "")

    def _become(self) -> None:
        """Become the user, in a child."""
        from k3env.node.privilege.become import DROPPED, become

        if self._user is not None:
            said = become(self._user)
            for name in DROPPED:
                self._machine.environment.pop(name, None)
            self._machine.environment.update(said)
