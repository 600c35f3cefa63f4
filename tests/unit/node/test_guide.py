"""Which FlashInfer a README or guide asks for: only a command of today that installs it from git counts."""

from __future__ import annotations

import pytest

from k3env.node.guide import fork

SHA = "b6cc594918baf76c40c3a6236fd53f0f8fb9d2dc"
URL = "git+https://github.com/PerkzZheng/flashinfer-k3.git"

ASKED = [
    ("a fence", f'```bash\npip install "flashinfer-python[cu13] @ {URL}@{SHA}"\n```\n', SHA),
    ("a fence in a list", f"- Then:\n\n  ```bash\n  pip install 'flashinfer-python @ {URL}@{SHA}'\n  ```\n", SHA),
    ("continued", f"```\npython -m pip install --no-deps \\\n    --no-build-isolation \\\n    {URL}@{SHA}\n```", SHA),
    ("the name broken off", f'```\npip install "flashinfer-python[cu13] @ \\\n   {URL}@{SHA}"\n```', SHA),
    ("lines of Windows", f"```\r\npip install \\\r\n  'flashinfer-python @ {URL}@{SHA}'\r\n```\r\n", SHA),
    ("the URL alone", f"```\npip install {URL}@{SHA}\n```", SHA),
    ("an egg", f"```\npip install git+https://github.com/x/y.git@{SHA}#egg=flashinfer-python\n```", SHA),
    ("uv", f"```\nuv pip install 'FlashInfer_Python @ {URL}@{SHA[:12]}'\n```", SHA[:12]),
    ("a branch", f"```\npip install {URL}@main\n```", None),
    ("nothing named", f"```\npip install {URL}\n```", None),
    ("a user and a port", f"```\npip install flashinfer-python@git+ssh://git@host:22/x.git@{SHA}\n```", SHA),
    (
        "a private one, on a port of its own",
        f"- To use it:\n\n  ```bash\n  python -u -m pip install --no-build-isolation \\\n    "
        f'"flashinfer-python[cu13] @ git+ssh://git@git.site:12051/a/flashinfer.git@{SHA}"\n  ```\n',
        SHA,
    ),
    ("tildes", f"~~~sh\npip install {URL}@{SHA}\n~~~", SHA),
    ("text", f"Last, install the fork with `pip install {URL}@{SHA}`.\n", SHA),
    ("after another package", f"```\npip install git+https://github.com/x/fla.git {URL}@{SHA}\n```", SHA),
    ("no word of the past in code", f"```\npip install {URL}@{SHA}  # no longer needed from 0.7 on\n```", SHA),
]


@pytest.mark.parametrize(("name", "text", "commit"), ASKED, ids=[name for name, _, _ in ASKED])
def test_a_guide_asks_for_the_fork(name: str, text: str, commit: str | None) -> None:
    found = fork(text)
    assert found is not None and found.commit == commit


NOT_ASKED = [
    ("nothing", ""),
    ("another package", "```\npip install git+https://github.com/fla-org/flash-linear-attention\n```\nSee flashinfer."),
    ("both on one line", "```\npip install flashinfer-python git+https://github.com/fla-org/fla\n```"),
    ("a clone", f"```\ngit clone {URL[4:]}\n```\nFlashInfer is in requirements.txt; install nothing."),
    ("only told", f"The revision {URL}@{SHA} was measured.\n"),
    ("commented out", f"```bash\n# pip install {URL}@{SHA}\npip install fla-core einops\n```"),
    ("hidden", f"<!--\n```\npip install {URL}@{SHA}\n```\n-->\n"),
    ("hidden to the end", f"<!-- pip install {URL}@{SHA}\n"),
    ("no longer", f"Installing FlashInfer from\n`{URL}@{SHA}`\nis no longer needed.\n"),
    ("in the past", f"Previously, one had to `pip install {URL}@{SHA}`.\n"),
    ("a pin", "```\npip install flashinfer-python==0.6.16\n```\nUse `git+https` for others."),
]


@pytest.mark.parametrize(("name", "text"), NOT_ASKED, ids=[name for name, _ in NOT_ASKED])
def test_a_guide_asks_for_none(name: str, text: str) -> None:
    assert fork(text) is None
