"""The oracle: ansible-core itself, one process for all questions. It runs in ansible-core's own environment.

Reads a JSON object a line, {"sources": [...], "ask": "list|patterns|values", ...}, and answers with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile


def answer(question: dict) -> object:
    from ansible.cli.inventory import InventoryCLI

    argv = ["ansible-inventory"]
    for source in question["sources"]:
        argv += ["-i", source]
    if question.get("playbook_dir"):
        argv += ["--playbook-dir", question["playbook_dir"]]
    if question.get("limit"):
        argv += ["--limit", question["limit"]]
    for extra in question.get("extra", ()):
        argv += ["-e", extra]
    if question["ask"] == "patterns":
        return patterns(question)
    if question["ask"] == "values":
        return [values(site) for site in question["sites"]]
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as output:
        command = InventoryCLI([*argv, "--list", "--vars", "--output", output.name])
        with contextlib.suppress(SystemExit):
            command.run()
        return {"list": output.read(), "graph": command.inventory_graph()}


def values(question: dict) -> dict:
    """Return each host's variables, without what Ansible sets itself."""
    from ansible import constants
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader
    from ansible.vars.manager import VariableManager

    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=question["sources"])
    variables = VariableManager(loader=loader, inventory=inventory)
    if question.get("playbook_dir"):
        loader.set_basedir(question["playbook_dir"])
        variables.safe_basedir = True
    return {
        name: {
            key: value
            for key, value in variables.get_vars(host=host, include_hostvars=False, stage="all").items()
            if key not in constants.INTERNAL_STATIC_VARS
        }
        for name, host in inventory.hosts.items()
    }


def patterns(question: dict) -> dict:
    """Return the hosts that each pattern means, None for one that is refused."""
    from ansible.errors import AnsibleError
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    inventory = InventoryManager(loader=DataLoader(), sources=question["sources"])
    answers = {}
    for pattern in question["patterns"]:
        try:
            answers[pattern] = [host.name for host in inventory.get_hosts(pattern)]
        except AnsibleError:
            answers[pattern] = None
    return answers


def forked(line: str) -> bytes:
    """Answer in a child: ansible-core keeps what it was asked in globals."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said: object = {"answer": answer(json.loads(line))}
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said_bytes = pipe.read()
    os.waitpid(child, 0)
    return said_bytes


def main() -> None:
    import ansible.cli.inventory  # noqa: F401

    # Once, so that each child has it.
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as warm:
        warm.write("all: {hosts: {h: }}")
        warm.flush()
        values({"sources": [warm.name]})
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            answers.write(forked(line) + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
