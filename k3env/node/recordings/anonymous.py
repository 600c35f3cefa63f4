"""Replace what tells whose node something was recorded on: the same thing by the same word, all through a recording."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Iterable
from typing import Any, Optional

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{1,4}:){3,7}(?::?[0-9a-fA-F]{1,4})(?![0-9a-fA-F:.])")
_MAC = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5,7}[0-9a-fA-F]{2}(?![0-9a-fA-F:])")
_GUID = re.compile(r"(?<![0-9a-fA-F])0x(?!0000)[0-9a-fA-F]{16}(?![0-9a-fA-F])")
"""Masks of bits, which nvidia-smi prints as wide, begin with zeros."""
_SERIAL = re.compile(r"(?im)((?:serial(?: number)?|chassis serial|board part number|board id)\s*[:=]\s*)(\S+)")
_LONG_NUMBER = re.compile(r"(?<![\w.])\d{13}(?![\w.])")
"""Serial numbers of NVIDIA's boards have thirteen digits."""
_SAME = ("00000000-0000-0000-0000-000000000000", "0x0000000000000000", "127.0.0.1", "0.0.0.0", "255.255.255.255")  # noqa: S104
_NO_VALUE = ("N/A", "[N/A]", "0")


class Anonymous:
    """Replaces names, addresses, UUIDs and serial numbers."""

    def __init__(self, salt: str, hosts: Iterable[str]) -> None:
        """`salt` is common to the nodes of one run; `hosts` are names of nodes; users are the accounts of people."""
        self._salt = salt
        names = {name for host in hosts for name in (host, host.partition(".")[0]) if len(name) > 1}
        self._hosts = _any_of(names)
        self._users = _any_of(set(_users()))

    def text(self, text: str) -> str:
        """Return a text with all of that replaced."""
        text = _UUID.sub(lambda found: self._uuid(found.group()), text)
        text = _SERIAL.sub(lambda found: found[1] + self._serial(found[2]), text)
        text = _LONG_NUMBER.sub(lambda found: self._serial(found.group()), text)
        text = _MAC.sub(lambda found: self._mac(found.group()), text)
        text = _GUID.sub(lambda found: self._guid(found.group()), text)
        text = _IPV6.sub(lambda found: f"2001:db8::{self._word('ip', found.group()) >> 48:x}", text)
        text = _IPV4.sub(lambda found: self._ip(found.group()), text)
        if self._hosts is not None:
            text = self._hosts.sub(lambda found: self._name("node", found.group()), text)
        if self._users is not None:
            text = self._users.sub(lambda found: self._name("user", found.group()), text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return some bytes with all of that replaced; what is no text stays."""
        if b"\0" in data[:1024]:
            return data
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """Return a JSON value with all of that replaced in its texts and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value

    def _word(self, kind: str, text: str) -> int:
        """Return a number for a text: the same on all nodes of one run, and another in the next."""
        return int.from_bytes(hashlib.blake2b(f"{self._salt} {kind} {text}".encode(), digest_size=8).digest(), "big")

    def _ip(self, text: str) -> str:
        if text in _SAME or any(int(part) > 255 for part in text.split(".")):
            return text
        number = self._word("ip", text)
        return f"198.{18 + number % 2}.{number >> 8 & 255}.{number >> 16 & 255}"  # a range for tests: RFC 2544

    def _uuid(self, text: str) -> str:
        return text if text in _SAME else f"00000000-0000-4000-8000-{self._word('uuid', text.lower()) >> 16:012x}"

    def _serial(self, text: str) -> str:
        return text if text in _NO_VALUE else f"{self._word('serial', text) % 10**13:013d}"

    def _mac(self, text: str) -> str:
        digits = f"{self._word('mac', text):016x}"
        return ":".join(["02", *(digits[2 * at : 2 * at + 2] for at in range(text.count(":")))])

    def _guid(self, text: str) -> str:
        return text if text in _SAME else f"0x{self._word('guid', text):016x}"

    def _name(self, kind: str, text: str) -> str:
        return f"{kind}-{self._word(kind, text) >> 40:06x}"


def _users() -> list[str]:
    """Return the names of people among the accounts: those of the system tell nobody anything."""
    names = [entry.pw_name for entry in pwd.getpwall() if 1000 <= entry.pw_uid < 60000]
    given = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
    return [name for name in (*names, *given) if len(name) > 2 and name not in ("root", "nobody")]


def _any_of(names: set[str]) -> Optional[re.Pattern[str]]:
    if not names:
        return None
    ordered = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, ordered))})(?![A-Za-z0-9])")
