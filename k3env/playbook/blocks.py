"""Blocks: lists of tasks, with the blocks and imported files among them, as one flat list."""

from __future__ import annotations

from collections.abc import Iterable

from k3env.documents.nodes import Node, problem
from k3env.playbook import keywords
from k3env.playbook.around import Around, refuse_idle_user
from k3env.playbook.files import Reading, Source
from k3env.playbook.reader import Reader
from k3env.playbook.tasks import Task, read_task

BLOCK, IMPORT = "block", "import_tasks"


def read_tasks(node: Node, key: str, around: Around, source: Source, reading: Reading) -> list[Task]:
    """Read a list of tasks; what is wrong with one is noted.

    Raises DocumentError if it is no list.
    """
    if not isinstance(node.content, list):
        raise problem(node, f"{key} must be a list", expected="a list", found=node.found, remedy="begin each with a -")
    return [task for item in node.content for task in _entry(item, around, source, reading)]


def _entry(node: Node, around: Around, source: Source, reading: Reading) -> Iterable[Task]:
    names = node.content if isinstance(node.content, dict) else ()
    if BLOCK in names:
        return _nested(Reader(node, "a block", reading.problems), BLOCK, around, source, reading)
    if IMPORT in names:
        return _nested(Reader(node, "an import", reading.problems), IMPORT, around, source, reading)
    reading.count(node)
    task = read_task(node, around, source, reading.problems)
    return () if task is None else (task,)


def _nested(keys: Reader, key: str, around: Around, source: Source, reading: Reading) -> list[Task]:
    known = keywords.BLOCK if key == BLOCK else keywords.IMPORT_TASKS
    for name in keys.keys:
        if name not in known:
            keys.refuse(name, keywords.BLOCK_INSTEAD.get(name) or keywords.task_instead(name), known)
    keys.take("name", Node.text, None)
    inner = around.with_keys(keys)

    def read() -> list[Task]:
        node = keys.keys[key]
        if key == BLOCK:
            found = read_tasks(node, key, inner, source, reading)
        else:
            root, file = reading.imported(node, key, source)
            found = read_tasks(root, f"the file {file.shown}", inner, file, reading)
        if not found and not reading.problems:
            raise problem(node, f"{keys.what} has no tasks", expected="a list of tasks")
        return found

    tasks: list[Task] = keys.guarded(read, [])
    if not reading.problems:
        refuse_idle_user(keys, [task.become_user for task in tasks])
    return tasks
