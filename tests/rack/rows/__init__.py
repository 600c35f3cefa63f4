"""The rows of the fault table, a module a section."""

from tests.rack.row import ROWS
from tests.rack.rows import (
    controller,
    ground_of_a_node,
    long_work,
    main_job,
    other_users,
    road,
    shared_checkout,
    ssh_config,
    sudo,
)

__all__ = [
    "ROWS",
    "controller",
    "ground_of_a_node",
    "long_work",
    "main_job",
    "other_users",
    "road",
    "shared_checkout",
    "ssh_config",
    "sudo",
]
