"""Comparing what nodes have: the odd ones by name, and who could not be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional, TypeVar, Union

from k3env.node.checks import fail, passed, skip, unknown
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.folding import fold

T = TypeVar("T")
ByHost = Mapping[str, Union[T, Unreadable]]


def same(by_host: ByHost[T], shown: Callable[[T], str], expected: str, remedy: str) -> Finding:
    """Compare what each node has; name those that differ from most, or say who could not be asked."""
    values = {host: shown(value) for host, value in by_host.items() if not isinstance(value, Unreadable)}
    groups = grouped(values)
    if len(groups) > 1:
        return fail(expected=f"{expected} on all nodes", found=outliers(groups), remedy=remedy)
    silent = unread(by_host)
    if silent is not None:
        return silent
    only = next(iter(groups), None)
    return skip("no node was asked") if only is None else passed(only, f"on {nodes(len(values))}")


def grouped(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return hosts by what they have, the most common first; of equals, the one of the first host."""
    groups: dict[str, list[str]] = {}
    for host in sorted(values):
        groups.setdefault(values[host], []).append(host)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def outliers(groups: Mapping[str, list[str]]) -> str:
    """Return "gb300-07 has 580.82.07, the other 15 have 580.105.08"."""
    (common, most), *rest = groups.items()
    told = [f"{fold(hosts)} {_has(len(hosts))} {value}" for value, hosts in rest]
    even = len(rest) and len(rest[0][1]) == len(most)
    who = f"{fold(most)} {_has(len(most))}" if even else f"the other {len(most)} {_has(len(most))}"
    return f"{', '.join(told)}, {who} {common}"


def unread(by_host: ByHost[Any]) -> Optional[Finding]:
    """Return who could not be asked, and why; None if all were."""
    reasons = {host: item.reason for host, item in by_host.items() if isinstance(item, Unreadable)}
    if not reasons:
        return None
    return unknown("; ".join(f"{fold(hosts)}: {reason}" for reason, hosts in grouped(reasons).items()))


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
