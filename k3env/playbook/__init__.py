"""Playbook: what is to be done, from YAML to the plans of hosts."""

from k3env.playbook.builders import Builders, Ready, make_ready
from k3env.playbook.builders import named as named_builders
from k3env.playbook.compile import Compiled, Options, compile_alone, compile_playbook, layers, variables_alone
from k3env.playbook.plays import Play, Playbook, find_playbook, load
from k3env.playbook.tasks import Task

__all__ = [
    "Builders",
    "Compiled",
    "Options",
    "Play",
    "Playbook",
    "Ready",
    "Task",
    "compile_alone",
    "compile_playbook",
    "find_playbook",
    "layers",
    "load",
    "make_ready",
    "named_builders",
    "variables_alone",
]
