"""Keywords: the keys of plays and tasks, and what serves instead of those that Ansible has and k3env has not."""

from __future__ import annotations

PLAY = (
    "name",
    "hosts",
    "vars",
    "tags",
    "tasks",
    "become",
    "environment",
    "any_errors_fatal",
    "serial",
    "max_fail_percentage",
)
TASK = (
    "name",
    "when",
    "tags",
    "vars",
    "environment",
    "timeout",
    "ignore_errors",
    "retries",
    "delay",
    "become",
    "become_user",
)

_FACTS = "a module reads the node when it runs; leave this out"
_TASKS = "write the tasks under tasks:"
_VALUES = "tasks hand nothing to each other; a later task reads the node for itself"
_LOOP = "write one task for each item, or give the module a list"
_USER = "connect as that user: --user, or ansible_user in the inventory"

_BOTH = {
    "async": "a plan outlives its connection as it is; leave this out",
    "check_mode": "use --check",
    "collections": "modules are named without a collection",
    "connection": "use --connection, or ansible_connection in the inventory",
    "debugger": "use --check --diff",
    "diff": "use --diff",
    "ignore_unreachable": "the other hosts go on anyway",
    "module_defaults": "write the parameters on the tasks",
    "no_log": "refer to secrets as {secret: env:NAME}; they are masked everywhere",
    "port": "use ansible_port in the inventory",
    "remote_user": _USER,
    "run_once": "a change to a shared path is made once anyway; narrow the play's hosts for the rest",
    "strategy": "hosts go at their own pace; plays and serial are the barriers",
    "throttle": "use --forks",
}
PLAY_INSTEAD = {
    **_BOTH,
    "become_user": _USER,
    "become_method": _USER,
    "fact_path": _FACTS,
    "force_handlers": "there are no handlers; a task looks at the node and does what is missing",
    "gather_facts": _FACTS,
    "gather_subset": _FACTS,
    "handlers": "write a task; it looks at the node and does what is missing",
    "ignore_errors": "write it on the task",
    "import_playbook": "write the plays into one file",
    "order": "hosts go at their own pace",
    "post_tasks": _TASKS,
    "pre_tasks": _TASKS,
    "retries": "write it on the task",
    "roles": "write the tasks into the play",
    "timeout": "write it on the task",
    "vars_files": "use --extra-vars @FILE, or vars in the inventory",
    "vars_prompt": "use --extra-vars, or {secret: prompt}",
    "when": "write it on the tasks, or narrow the play's hosts",
}
TASK_INSTEAD = {
    **_BOTH,
    "action": "write the module's name as the key",
    "any_errors_fatal": "write it on the play",
    "always": "write the tasks one after the other; those after a failure don't run",
    "args": "write the parameters under the module's name",
    "become_method": "sudo is used",
    "block": "write the tasks one after the other; tags and when stand on each",
    "changed_when": "a module says itself what it changed; command takes creates, removes, unless, read_only",
    "delegate_facts": _VALUES,
    "delegate_to": "write a play of its own for that host",
    "failed_when": "write a check, and verify it",
    "hosts": "write it on the play",
    "import_role": "write the tasks into the play",
    "import_tasks": "write the tasks into the play",
    "include_role": "write the tasks into the play",
    "include_tasks": "write the tasks into the play",
    "include_vars": "use --extra-vars @FILE",
    "listen": "there are no handlers",
    "local_action": "write a play of its own for that host, with ansible_connection: local",
    "loop": _LOOP,
    "loop_control": _LOOP,
    "notify": "write a task; it looks at the node and does what is missing",
    "poll": "a plan outlives its connection as it is; leave this out",
    "register": _VALUES,
    "rescue": "write ignore_errors on the task, and a task after it that looks at the node",
    "roles": "write the tasks into the play",
    "serial": "write it on the play",
    "tasks": "tasks can't hold tasks",
    "until": "use retries and delay; a task is tried again while it fails",
}
MODULE_INSTEAD = {
    "assert": "verify with checks:",
    "debug": "invoke describe prints variables",
    "file": "cache_dirs makes directories; command with creates: makes the rest",
    "git": "git_checkout",
    "pip": "pip_packages",
    "raw": "command with argv:",
    "script": "command with argv:",
    "set_fact": "vars on the play or the task",
    "setup": _FACTS,
    "shell": 'command with argv: [sh, -c, "…"]',
}
NAME_INSTEAD = {
    "ansible_check_mode": "modules know it; leave it out",
    "ansible_facts": "facts are read on the node when a task runs; put what differs into the inventory",
    "groups": "the hosts of a run are not known to a plan; put what is needed into the inventory",
    "hostvars": "a plan knows its own host alone; put what is needed into the vars of a group",
    "item": _LOOP,
    "play_hosts": "the hosts of a run are not known to a plan",
}
"""What to do about names that templates of Ansible's use."""


def task_instead(key: str) -> str | None:
    """Return what serves instead of a key of a task, or None."""
    return _LOOP if key.startswith("with_") else TASK_INSTEAD.get(key)
