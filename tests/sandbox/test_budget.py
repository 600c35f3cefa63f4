"""What a converged main job costs the road: connections, commands, bytes, round trips. Wall time is a benchmark's."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from k3env.sandbox import Rack, session
from tests.proxy import Proxy
from tests.sandbox.cli import Site
from tests.sshd import with_config


def test_a_converged_host_is_one_connection_one_command_and_twenty_kilobytes(
    provisioned: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bytes] = []
    start = session.Shell.start
    monkeypatch.setattr(
        session.Shell, "start", lambda shell, command: (started.append(command), start(shell, command))[1]
    )
    trays = {f"tray-{number:02}": {"gpu": "GB300", "gpus": 4} for number in range(1, 5)}
    with ExitStack() as stack:
        ends = stack.enter_context(Rack(provisioned.rack)).start(trays)
        proxies = {host: stack.enter_context(Proxy(end.port)) for host, end in ends.items()}
        lines = [f"[127.0.0.1]:{proxies[host].port} {end.host_key}\n" for host, end in ends.items()]
        with_config(tmp_path, monkeypatch, known_hosts="".join(lines))
        # Real hosts to the controller: no overlay, so the checks of GPUs and driver stay out.
        hosts = {
            host: {
                "ansible_host": "127.0.0.1",
                "ansible_port": proxies[host].port,
                "ansible_user": end.user,
                "ansible_ssh_private_key_file": end.private_key,
                **end.variables,
            }
            for host, end in ends.items()
        }
        inventory = tmp_path / "site.yml"
        inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
        arguments = ("--inventory", str(inventory), "--skip-tags", "verify,always")
        assert provisioned.provision(*arguments, hosts="all").code == 0
        started.clear()
        before = {
            host: (proxy.count.connections, proxy.count.bytes_up, proxy.count.turns) for host, proxy in proxies.items()
        }
        said = provisioned.provision(*arguments, hosts="all")
    assert said.code == 0 and said.changes() == {}, said.err
    for host, proxy in proxies.items():
        connections, sent, turns = before[host]
        assert proxy.count.connections - connections == 1
        assert proxy.count.bytes_up - sent <= 20 * 1024
        assert proxy.count.turns - turns <= 11
    assert len(started) == 4 and len(set(started)) == 1, "one command a host, the same for all"
