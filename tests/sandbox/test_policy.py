"""A play's policy words, and the plain modules, over real connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.cli import Said, Site

ROLLING = """
- name: Rolling
  hosts: all
  serial: 2
  {policy}
  tasks:
    - name: Begin
      command: {{argv: [sh, -c, 'touch "$HOME/began"'], creates: "{home}/{{{{ inventory_hostname }}}}/home/began"}}
    - name: Break one
      when: inventory_hostname == "tray-01"
      command: {{argv: [sh, -c, "exit 3"], read_only: true}}
    - name: Go on
      command: {{argv: [sh, -c, "sleep 2"], read_only: true}}
    - name: Finish
      command: {{argv: ["true"], read_only: true}}
- name: Afterwards
  hosts: all
  tasks:
    - command: {{argv: ["true"], read_only: true}}
"""


@pytest.fixture(scope="module")
def policy_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("policy"))


def rolling(site: Site, tmp_path: Path, policy: str) -> Said:
    (tmp_path / "book.yml").write_text(ROLLING.format(policy=policy, home=site.rack))
    return site.provision("--playbook", str(tmp_path / "book.yml"))


# policy, statuses of the four trays in two batches
POLICIES = {
    "none": ("tags: a", ["failed", "ok", "ok", "ok"]),
    "any_errors_fatal": ("any_errors_fatal: true", ["failed", "notrun", "notrun", "notrun"]),
    "exceeded": ("max_fail_percentage: 49", ["failed", "notrun", "notrun", "notrun"]),
    "not exceeded": ("max_fail_percentage: 50", ["failed", "ok", "ok", "ok"]),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies(policy_site: Site, tmp_path: Path, name: str) -> None:
    policy, wanted = POLICIES[name]
    said = rolling(policy_site, tmp_path, policy)
    statuses = ["ok" if status == "changed" else status for status in said.statuses().values()]
    assert (said.code, statuses) == (2, wanted), said.err
    tasks = {host: [task["status"] for task in told["tasks"]] for host, told in said.document["hosts"].items()}
    assert tasks["tray-01"][1:] == ["failed", "notrun", "notrun", "notrun"]
    if wanted[1] == "notrun":
        # The task it was at came to its end; the second batch was not begun.
        assert tasks["tray-02"][2:] in (["ok", "cancelled", "notrun"], ["cancelled", "notrun", "notrun"])
        assert set(tasks["tray-03"]) == {"notrun"} and "fa" in said.document["hosts"]["tray-03"]["message"]
        assert "stop before their next task" in said.err
    else:
        assert tasks["tray-02"][-1] == "ok"


SITE = """
- name: A site's files
  hosts: all
  vars: {base: "~/site"}
  vars_files: vars.yml
  pre_tasks:
    - file: {path: "{{ base }}", state: directory, mode: "0750"}
  tasks:
    - import_tasks: tasks/limits.yml
      tags: limits
    - name: Both kinds
      block:
        - copy: {dest: "{{ base }}/motd", src: motd}
        - template: {dest: "{{ base }}/env.sh", src: env.j2, mode: "0600"}
        - copy: {dest: "{{ base }}/token", content: {secret: "env:SITE_TOKEN"}, mode: "0600"}
  post_tasks:
    - file: {path: "{{ base }}/current", state: link, src: motd}
    - file: {path: "{{ base }}/old", state: absent}
"""
FILES = {
    "book.yml": SITE,
    "vars.yml": "limits: {memlock: unlimited, nofile: 1048576}\n",
    "tasks/limits.yml": """
- name: Limit
  loop: "{{ limits | dictsort }}"
  loop_control: {label: "{{ item[0] }}"}
  copy: {dest: "/etc/security/limits.d/k3-{{ item[0] }}.conf", content: "* - {{ item[0] }} {{ item[1] }}\\n"}
""",
    "files/motd": "Kimi K3\n",
    "templates/env.j2": "{% for name, value in limits.items() %}\nexport {{ name }}={{ value }}\n{% endfor %}\n",
}


def test_a_sites_files_once_and_never_again(policy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "open sesame")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    run = ("--playbook", str(tmp_path / "book.yml"))
    here = Path("/etc/security/limits.d/k3-memlock.conf")
    one = ("tray-01",)
    checked = policy_site.provision(*run, "--check", "--diff", "--limit", *one)
    assert checked.code == 0 and len(checked.changes()["tray-01"]) >= 6, checked.err
    tray = policy_site.rack / "tray-01"
    assert not (tray / "home/site").exists() and not here.exists()
    first = policy_site.provision(*run)
    assert first.code == 0 and set(first.statuses().values()) == {"changed"}, first.err
    assert (tray / "home/site/env.sh").read_text() == "export memlock=unlimited\nexport nofile=1048576\n"
    assert (tray / "home/site/token").read_text() == "open sesame"
    assert (tray / "overlay/etc/security/limits.d/k3-memlock.conf").read_text() == "* - memlock unlimited\n"
    assert not here.exists()
    assert [task["name"] for task in first.document["hosts"]["tray-01"]["tasks"]][1:3] == [
        "Limit (memlock)",
        "Limit (nofile)",
    ]
    again = policy_site.provision(*run)
    assert again.code == 0 and set(again.statuses().values()) == {"ok"} and again.changes() == {}
    for said in (checked, first, again):
        assert "open sesame" not in said.out + said.err
    records = [path.read_text() for path in (policy_site.state / "k3env/runs").rglob("*.json*")]
    assert records and not any("open sesame" in text for text in records)
