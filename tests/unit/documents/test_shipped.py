"""Shipped files are found in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.documents import shipped


def test_a_checkout_has_them_at_its_top() -> None:
    assert "trtllm" in shipped.names(shipped.PLAYBOOKS)
    assert "sandbox" in shipped.names(shipped.INVENTORIES)
    assert shipped.find(shipped.PLAYBOOKS, "trtllm").is_file()
    with pytest.raises(KeyError):
        shipped.find(shipped.PLAYBOOKS, "../playbooks/trtllm")


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "k3env"
    inside = package / "_shipped" / "playbooks"
    inside.mkdir(parents=True)
    (inside / "trtllm.yml").write_text("[]")
    # Directories of others beside the package are not ours.
    (tmp_path / "site-packages" / "playbooks").mkdir()
    monkeypatch.setattr(shipped, "_PACKAGE", package)
    assert shipped.names(shipped.PLAYBOOKS) == ("trtllm",)
    assert shipped.find(shipped.PLAYBOOKS, "trtllm") == inside / "trtllm.yml"
    assert shipped.names(shipped.INVENTORIES) == ()
