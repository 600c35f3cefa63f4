"""The environment of a tray's processes: the tray's own, and how this machine reaches its package index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from k3env.sandbox.processes import MARKER

PREFIX = "K3ENV_MINIATURE_"
"""Variables with this prefix reach the trays: they say how the miniature build fails, and how long it takes."""

# Where packages come from. What says where packages go (PIP_TARGET, PIP_USER, PIP_PREFIX) stays outside.
_PASSED = frozenset(
    (
        *("PIP_CACHE_DIR", "PIP_CONFIG_FILE", "PIP_CONSTRAINT", "PIP_DISABLE_PIP_VERSION_CHECK"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_KEYRING_PROVIDER"),
        *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_TRUSTED_HOST", "PIP_PROXY"),
        *("PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    )
)
_PROXIES = frozenset(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"))


def of_tray(tray: Path, user: str, around: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that sshd would give a command on a tray.

    `around` is the environment of this process; nothing of a virtual environment in it reaches the tray.
    """
    around = os.environ if around is None else around
    passed = {key: value for key, value in around.items() if _is_passed(key)}
    config = _pip_config(around)
    if config and "PIP_CONFIG_FILE" not in passed:
        passed["PIP_CONFIG_FILE"] = str(config)  # the tray's home is not the user's
    return {
        **passed,
        "PATH": f"{tray}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tray / "home"),
        "TMPDIR": str(tray / "tmp"),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        MARKER: str(tray),
    }


def _is_passed(key: str) -> bool:
    return key in _PASSED or key.lower() in _PROXIES or key.startswith(PREFIX)


def _pip_config(around: Mapping[str, str]) -> Path | None:
    """Return the user's pip configuration, new place before old, as pip looks for it."""
    home = around.get("HOME")
    if not home:
        return None
    config = Path(around.get("XDG_CONFIG_HOME") or f"{home}/.config")
    places = (config / "pip" / "pip.conf", Path(home) / ".pip" / "pip.conf")
    return next((place for place in places if place.is_file()), None)
