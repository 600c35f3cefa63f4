"""From a host of the inventory and its plan to something that can be followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from k3env import payload
from k3env.connections import process
from k3env.connections.connection import Connection
from k3env.connections.road import Road
from k3env.errors import UsageError
from k3env.inventory.hosts import Address, Host
from k3env.protocol import codec
from k3env.protocol.plan import Plan, Start
from k3env.runner.become import Become, Password
from k3env.runner.host import Target
from k3env.runner.session import Work


class Options(Protocol):
    """What the command line says of becoming another user."""

    @property
    def become(self) -> bool:
        """Become root, or become_user."""

    @property
    def become_user(self) -> str | None:
        """Become this user instead."""


class Targets:
    """Makes targets of one run; equal plans are encoded once."""

    def __init__(
        self,
        run: str,
        owner: str,
        road: Road,
        secrets: Mapping[str, str] | None = None,
        jobs: str = "",
        *,
        detached: bool = False,
    ) -> None:
        """`secrets` are values by reference; a host gets those that its plan names. `jobs`, `detached`: see Start."""
        self._run, self._owner, self._road, self._detached = run, owner, road, detached
        self._secrets = dict(secrets or {})
        self._jobs = jobs
        self._works: dict[int, tuple[Plan, Work]] = {}

    def make(
        self,
        host: Host,
        plan: Plan,
        play: int,
        peers: int,
        state_dir: str | None,
        *,
        become: Become | None = None,
        number: int = 0,
        after: int = 0,
        action: str = "run",
        what: str = "",
        known_as: str | None = None,
    ) -> Target:
        """Return the target of a host in a play, which counts from 1.

        `known_as` is the host's name where the run was begun, if that was another one.
        """
        options = host.address.options
        start = Start(
            run=f"{self._run}.{play}",
            host=known_as or host.name,
            owner=self._owner,
            peers=peers,
            number=number,
            after=after,
            action=action,
            payload=payload.build().digest,
            state_dir=state_dir,
            overlay=options.get("overlay"),
            jobs=self._jobs,
            what=what,
            detached=self._detached,
        )
        return Target(host.name, self._reach(host.address), self._work(plan), start, host.address.python, become)

    def _work(self, plan: Plan) -> Work:
        if id(plan) not in self._works:
            from k3env.protocol.secret import references

            encoded = codec.encode(plan)
            named = {name: self._secrets[name] for name in references(encoded)}
            secrets = codec.dumps(named).encode()
            work = Work(payload.boot_code(), payload.build(), codec.dumps(plan).encode(), secrets)
            self._works[id(plan)] = (plan, work)
        return self._works[id(plan)][1]

    def _reach(self, address: Address) -> Callable[[], Connection]:
        if address.connection in process.PREFIXES:
            target = process.Target(
                address.hostname,
                address.port,
                address.user,
                address.options.get("private_key"),
                accept_new=self._road.accept_new,
            )
            return lambda: process.ProcessConnection(address.connection, target)
        if address.connection == "ssh":
            from k3env.connections.host_keys import Key
            from k3env.connections.ssh import Settings, SshConnection

            told = address.options.get("host_key", "").split()
            settings = Settings(
                address.hostname,
                address.port,
                address.user,
                address.options.get("private_key"),
                Key(told[0], told[1], "the sandbox") if told else None,
            )
            return lambda: SshConnection(settings, self._road)
        raise UsageError(
            f"connection {address.connection} is unknown",
            expected=", ".join(("ssh", *process.PREFIXES)),
            found=address.connection,
            remedy="set ansible_connection or --connection to one of them",
        )


def become(host: Host, plan: Plan, asked: Options, password: Password | None) -> Become | None:
    """Return whom the agent must become on the way in, or None.

    What is asked for counts; else a plan whose tasks are another user's needs root, unless that is who connects.
    """
    if asked.become or asked.become_user:
        return Become(asked.become_user or "root", password)
    if password is None:
        return None  # the worker becomes other users by itself, where sudo asks for nothing
    wanted = {task.become_user or plan.user for task in plan.tasks if task.skip is None} - {None}
    if not wanted:
        return None
    who = _connecting_user(host.address)
    return None if who == "root" or wanted <= {who} else Become("root", password)


def _connecting_user(address: Address) -> str:
    if address.user is not None and address.connection in ("ssh", "openssh"):
        return address.user
    if address.connection in ("ssh", "openssh"):
        from k3env.connections.ssh_settings import Asked, resolve

        return resolve(Asked(address.hostname)).user
    import getpass

    return getpass.getuser() if address.connection == "local" else "root"
