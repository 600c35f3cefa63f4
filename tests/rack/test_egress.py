"""How a site reaches out, on real nodes: behind a sudo that empties the environment, in no log and in no words."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rack.bed import Bed
from tests.rack.row import Ground
from tests.rack.rows.other_users import people

PROXY = "http://ann:a-password-of-the-site@proxy.cluster:3128"
SSHD = ("SetEnv no_proxy=.cluster PIP_CERT=/etc/ssl/node.pem",)


def test_what_the_site_says_and_what_the_node_has_reach_another_users_commands(bed: Bed, tmp_path: Path) -> None:
    with Ground(bed, tmp_path).site(sshd=SSHD) as site:
        people(site, "ann ALL=(k3) NOPASSWD: ALL")
        (site.home / "proxy").write_text(PROXY)
        egress = {"https_proxy": {"secret": f"file:{site.home}/proxy"}, "ca": "/etc/ssl/site.pem"}
        (site.home / "vars.yml").write_text(json.dumps({"egress": egress}))
        argv = ["sh", "-c", "env > /home/k3/one; echo $https_proxy"]
        play = site.playbook(
            {"command": {"argv": argv, "creates": "/home/k3/one"}},
            {"command": {"argv": ["sh", "-c", "echo $https_proxy; false"], "creates": "/home/k3/two"}},
        )
        said = site.run(play, "--extra-vars", f"@{site.home}/vars.yml")
        assert said.statuses() == {"a": "failed"}, said.err
        seen = dict(line.partition("=")[::2] for line in site.node.path("/home/k3/one").read_text().splitlines())
        assert seen["https_proxy"] == seen["HTTPS_PROXY"] == PROXY
        assert seen["GIT_SSL_CAINFO"] == seen["PIP_CERT"] == seen["SSL_CERT_FILE"] == "/etc/ssl/site.pem", "it wins"
        assert seen["no_proxy"] == ".cluster", "the node's own came along"
        assert seen["USER"] == "k3"
        kept = [said.out, said.err, site.node.path("/var/log/sudo.log").read_text()]
        state = site.node.path("/var/tmp")
        kept += [
            path.read_text("utf-8", "replace")
            for path in state.rglob("*")
            if path.is_file() and path.stat().st_size < 1 << 20
        ]
        assert not [text for text in kept if "a-password-of-the-site" in text]
