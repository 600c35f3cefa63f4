"""Playbook: what is to be done, from YAML to the plans of hosts."""

from k3env.playbook.compile import Compiled, Options, compile_alone, compile_playbook, layers, variables_alone
from k3env.playbook.plays import Play, Playbook, find_playbook, load
from k3env.playbook.tasks import Task

__all__ = [
    "Compiled",
    "Options",
    "Play",
    "Playbook",
    "Task",
    "compile_alone",
    "compile_playbook",
    "find_playbook",
    "layers",
    "load",
    "variables_alone",
]
