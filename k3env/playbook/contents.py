"""Contents: files of the controller's that travel within a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from k3env.documents.nodes import Node, described, problem
from k3env.documents.templates import Scope
from k3env.playbook import files
from k3env.playbook.tasks import Task
from k3env.protocol.secret import Secret

MAX_BYTES = 64 << 10
DIRECTORIES = {"copy": "files", "template": "templates"}
"""Modules whose `src` is read here, and the directory beside the playbook that is looked into first."""


def filled(task: Task, values: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return a task's parameters with `content` in the place of `src`, and secret content marked.

    Raises DocumentError for a file that can't be read, and where a template fails.
    """
    made = dict(values)
    if task.module not in DIRECTORIES:
        return made
    if made.get("src") is not None and made.get("content") is None:
        text, source = _read(task, made.pop("src"))
        made["content"] = scope.render_file(text, source) if task.module == "template" else text
    content, node = made.get("content"), task.parameters.child("content") or task.parameters
    if isinstance(content, Secret):
        made["sensitive"] = True
    elif isinstance(content, str) and len(content.encode()) > MAX_BYTES:
        found = f"{-(-len(content.encode()) >> 10)} KiB"
        expected = f"at most {MAX_BYTES >> 10} KiB"
        raise problem(node, "the content is too large to travel in a plan", expected=expected, found=found)
    return made


def _read(task: Task, name: Any) -> tuple[str, str]:
    node: Node = task.parameters.child("src") or task.parameters
    if not isinstance(name, str) or not name or "\0" in name:
        expected = "the path of a file here, beside the playbook"
        raise problem(node, f"src of {task.module} must be a path", expected=expected, found=described(name))
    return files.text(node, (os.path.join(DIRECTORIES[task.module], name), name), task.source, MAX_BYTES)
