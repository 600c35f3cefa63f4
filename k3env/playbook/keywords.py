"""Keywords: the keys of plays and tasks, and what serves instead of those that Ansible has and k3env has not."""

from __future__ import annotations

from k3env.playbook.keys import BlockKeys, ImportKeys, ImportTasksKeys, PlayKeys, TaskKeys, names

PLAY = names(PlayKeys)
IMPORT = names(ImportKeys)
BLOCK = names(BlockKeys)
IMPORT_TASKS = names(ImportTasksKeys)
TASK = names(TaskKeys)

_FACTS = "a module reads the node when it runs; leave this out"
_VALUES = "tasks hand nothing to each other; a later task reads the node for itself"
_LOOP = "use loop: with a list"
_ITEM = "write loop: on the task; its loop_control names the variable"
_ROLES = "there are no roles: write the tasks into a file, and import_tasks it"
_IMPORT = "use import_tasks: FILE, which reads it before any host is contacted"
_RESCUE = "write ignore_errors on the task, and a task after it that looks at the node"
_ALWAYS = "write the tasks one after the other; those after a failure don't run unless it has ignore_errors"
_ON_TASKS = "write it on the tasks"
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
    "become_method": "leave it out",
    "block": "write it under tasks:",
    "fact_path": _FACTS,
    "force_handlers": "there are no handlers; a task looks at the node and does what is missing",
    "gather_facts": _FACTS,
    "gather_subset": _FACTS,
    "handlers": "write a task; it looks at the node and does what is missing",
    "ignore_errors": "write it on the task",
    "import_playbook": "let it stand in an item of its own, - import_playbook: FILE",
    "include": "use an item of its own, - import_playbook: FILE",
    "order": "hosts go at their own pace",
    "retries": "write it on the task",
    "roles": _ROLES,
    "timeout": "write it on the task",
    "vars_prompt": "use --extra-vars, or {secret: prompt}",
    "when": "write it on the tasks, or narrow the play's hosts",
}
TASK_INSTEAD = {
    **_BOTH,
    "action": "write the module's name as the key",
    "any_errors_fatal": "write it on the play",
    "always": _ALWAYS,
    "args": "write the parameters under the module's name",
    "become_method": "leave it out",
    "changed_when": "a module says itself what it changed; command takes creates, removes, unless, read_only",
    "delegate_facts": _VALUES,
    "delegate_to": "write a play of its own for that host",
    "failed_when": "write a check, and verify it",
    "hosts": "write it on the play",
    "import_role": _ROLES,
    "include": _IMPORT,
    "include_role": _ROLES,
    "include_tasks": _IMPORT,
    "include_vars": "use vars_files on the play",
    "listen": "there are no handlers",
    "local_action": "write a play of its own for that host, with ansible_connection: local",
    "notify": "write a task; it looks at the node and does what is missing",
    "poll": "a plan outlives its connection as it is; leave this out",
    "register": _VALUES,
    "rescue": _RESCUE,
    "roles": _ROLES,
    "serial": "write it on the play",
    "tasks": "tasks can't hold tasks",
    "until": "use retries and delay; a task is tried again while it fails",
}
BLOCK_INSTEAD = {
    "always": _ALWAYS,
    "any_errors_fatal": "write it on the play",
    "delay": _ON_TASKS,
    "loop": _ON_TASKS,
    "loop_control": _ON_TASKS,
    "rescue": _RESCUE,
    "retries": _ON_TASKS,
    "timeout": _ON_TASKS,
}
"""For blocks and for import_tasks."""
IMPORT_INSTEAD = {key: "write it in the imported plays" for key in (*PLAY, *PLAY_INSTEAD) if key not in IMPORT}
MODULE_INSTEAD = {
    "assert": "verify with checks:",
    "debug": "invoke describe prints variables",
    "blockinfile": "copy or template of a whole file; limits.d, tmpfiles.d and profile.d take files of their own",
    "get_url": "copy for a small file; command with creates: for a large one",
    "git": "git_checkout",
    "lineinfile": "copy or template of a whole file; limits.d, tmpfiles.d and profile.d take files of their own",
    "pip": "pip_packages",
    "raw": "command with argv:",
    "script": "command with argv:",
    "set_fact": "vars on the play or the task",
    "setup": _FACTS,
    "service": "command with unless: [systemctl, is-active, --quiet, NAME]",
    "shell": 'command with argv: [sh, -c, "…"]',
    "systemd": "command with unless: [systemctl, is-active, --quiet, NAME]",
}
NAME_INSTEAD = {
    "ansible_check_mode": "modules know it; leave it out",
    "ansible_facts": "facts are read on the node when a task runs; put what differs into the inventory",
    "groups": "the hosts of a run are not known to a plan; put what is needed into the inventory",
    "hostvars": "a plan knows its own host alone; put what is needed into the vars of a group",
    "item": _ITEM,
    "play_hosts": "the hosts of a run are not known to a plan",
}
"""What to do about names that templates of Ansible's use."""


def task_instead(key: str) -> str | None:
    """Return what serves instead of a key of a task, or None."""
    return _LOOP if key.startswith("with_") else TASK_INSTEAD.get(key)
