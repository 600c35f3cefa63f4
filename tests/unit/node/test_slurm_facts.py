"""Slurm by what its commands of several versions say, its files, and the environment of its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.node.facts import slurm, slurm_config
from k3env.node.facts.slurm import munge, private, pyxis, shape, tools
from k3env.protocol.finding import Unreadable
from tests.unit.node.tools import Node, known


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.file("/etc/slurm/slurm.conf", "ClusterName=rack\n")
    return made


NEW = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4,pmix_v5\n"
OLD = "srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix_v3\n"


@pytest.mark.parametrize(
    ("answer", "mpi"),
    [
        ({"stdout": NEW}, ("none", "pmi2", "pmix")),
        ({"stderr": NEW}, ("none", "pmi2", "pmix")),
        ({"stderr": OLD}, ("none", "pmi2", "pmix_v3")),
        ({"stdout": "MPI plugin types are...\n\tnone\n"}, ("none",)),
    ],
)
def test_kinds_of_mpi(node: Node, answer: dict[str, str], mpi: tuple[str, ...]) -> None:
    node.says("srun", **answer)
    assert tools(node.machine()).mpi == mpi


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (("", "srun: error: slurm_load_ctl_conf error: Unable to contact slurm controller\n", 1), "Unable to contact"),
        (("", "", 0), "ended with 0"),
        ((NEW, "", 1), "ended with 1"),
        (("something else\n", "", 0), "something else"),
    ],
)
def test_an_srun_that_fails(node: Node, answer: tuple[str, str, int], told: str) -> None:
    node.says("srun", *answer)
    found = tools(node.machine()).mpi
    assert isinstance(found, Unreadable) and told in found.reason


def test_without_a_configuration_or_a_job_srun_is_not_asked(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.environment["SLURM_CONF"] = "/nowhere"
    node.program("srun", f"touch '{node.directory}/started'")
    assert (tools(node.machine()).expected, pyxis(node.machine()).expected) == (False, False)
    assert not (node.directory / "started").exists()
    node.environment["SLURM_JOB_ID"] = "7"
    assert tools(node.machine()).expected and (node.directory / "started").exists()


ONE_LINE = (
    "NodeName=gb300-01 Arch=aarch64 CoresPerSocket=72 State={state} ThreadsPerCore=1 Partitions=main "
    "CurrentWatts=0 AveWatts=0{reason}\n"
)


@pytest.mark.parametrize(
    ("state", "reason", "wanted"),
    [
        ("IDLE", "", ""),
        ("IDLE+DRAIN", " Reason=k3env: gpu.count = 3 [root@2026-08-01T00:00:00]", "k3env: gpu.count = 3"),
        ("DOWN*", " Reason=Not responding [slurm@2026-08-01T00:00:00]", "Not responding"),
        ("MIXED", " Comment=x", ""),
    ],
)
def test_a_nodes_state(node: Node, state: str, reason: str, wanted: str) -> None:
    node.file("/proc/sys/kernel/hostname", "gb300-01.example\n")
    node.says("scontrol", ONE_LINE.format(state=state, reason=reason))
    found = known(slurm.node(node.machine()))
    assert (found.name, found.state, found.reason) == ("gb300-01", state, wanted)


@pytest.mark.parametrize(
    "answer", [("", "Node gb300-01 not found\n", 1), ("", "", 0), (ONE_LINE, "", 1), ("\xff", "", 0)]
)
def test_a_node_that_nobody_knows(node: Node, answer: tuple[str, str, int]) -> None:
    node.environment["SLURMD_NODENAME"] = "gb300-01"
    node.says("scontrol", *answer)
    assert isinstance(slurm.node(node.machine()), Unreadable)


def test_a_munge_that_makes_but_does_not_believe(node: Node) -> None:
    node.says("munge", "MUNGE:secret:\n")
    node.program("unmunge", "read line; echo 'unmunge: Error: Rewound credential' >&2; exit 16")
    found = known(munge(node.machine()))
    assert (found.works, found.reason) == (False, "unmunge: Error: Rewound credential")
    assert "secret" not in str(found)
    node.program("unmunge", 'read line; [ "$line" = MUNGE:secret: ]')
    assert known(munge(node.machine())).works


def test_a_configuration_with_includes_comments_and_continued_lines(node: Node) -> None:
    node.file(
        "/etc/slurm/slurm.conf",
        "# PluginDir=/no\nPluginDir=/usr/lib64/slurm # here\nSchedulerParameters=a,\\\nb\ninclude more.conf\n"
        "NodeName=a CPUs=4\nInclude gone.conf\n",
    )
    node.file("/etc/slurm/more.conf", 'JobContainerType="job_container/tmpfs"\ninclude slurm.conf\n')
    found = slurm_config.config(node.machine())
    assert found is not None
    values = [found.get(key) for key in ("plugindir", "SchedulerParameters", "JobContainerType", "CPUs")]
    assert values == ["/usr/lib64/slurm", "a,b", "job_container/tmpfs", ""]


@pytest.mark.parametrize(
    ("files", "plugin", "directories"),
    [
        ({"slurm.conf": "JobContainerType=job_container/none\n"}, None, ()),
        ({"slurm.conf": "NamespaceType=namespace/tmpfs\n"}, "namespace/tmpfs", ("/tmp", "/dev/shm")),
        (
            {
                "slurm.conf": "JobContainerType=job_container/tmpfs\n",
                "job_container.conf": "# Dirs=/no\nAutoBasePath=true BasePath=/x Dirs=/tmp,/var/tmp\n",
            },
            "job_container/tmpfs",
            ("/tmp", "/var/tmp"),
        ),
        (
            {"slurm.conf": "NamespaceType=namespace/tmpfs\n", "namespace.yaml": 'defaults:\n  dirs: "/tmp"\n'},
            "namespace/tmpfs",
            ("/tmp",),
        ),
    ],
)
def test_private_directories(
    node: Node, files: dict[str, str], plugin: str | None, directories: tuple[str, ...]
) -> None:
    for name, text in files.items():
        node.file(f"/etc/slurm/{name}", text)
    found = private(node.machine())
    assert (found.configured, found.plugin, found.directories) == (True, plugin, directories)


def test_a_plugin_that_lies_where_plugins_lie(node: Node) -> None:
    node.file("/etc/slurm/slurm.conf", "PluginDir=/opt/slurm:/opt/more\nPlugStackConfig=/etc/slurm/stack.conf\n")
    node.file("/etc/slurm/stack.conf", "optional other.so\ninclude stack.d/*\n")
    node.file("/etc/slurm/stack.d/1", "required spank_pyxis.so importer=/x\n")
    node.says("srun", "--container-image=IMAGE\n")
    found = pyxis(node.machine())
    assert (found.line, found.missing) == (
        "required spank_pyxis.so importer=/x",
        "spank_pyxis.so in /opt/slurm:/opt/more",
    )
    node.file("/opt/more/spank_pyxis.so")
    found = pyxis(node.machine())
    assert (found.missing, found.offered) == (None, True)


def test_a_plugin_of_another_slurm_is_told(node: Node) -> None:
    said = "srun: error: spank_pyxis.so: Incompatible plugin version\nsrun: fatal: bad plugin stack\n"
    node.says("srun", stderr=said, exit_code=1)
    found = pyxis(node.machine())
    assert isinstance(found.offered, Unreadable)
    assert "Incompatible plugin version" in found.source[-1].excerpt


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, (None, None, None, (), None, None)),
        ({"NUM_NODES": "2"}, (None, None, None, (), None, None)),
        ({"JOB_ID": "7"}, ("7", None, None, (), None, None)),
        (
            {"JOB_ID": "7", "JOB_NUM_NODES": "4", "NTASKS": "16", "TASKS_PER_NODE": "4(x4)", "GPUS_ON_NODE": "4"},
            ("7", 4, 16, (4, 4, 4, 4), 4, None),
        ),
        ({"JOB_ID": "7", "NNODES": "2", "NTASKS_PER_NODE": "4"}, ("7", 2, 8, (4, 4), None, None)),
        ({"JOB_ID": "7", "TASKS_PER_NODE": "4(x2),3"}, ("7", None, None, (4, 4, 3), None, None)),
        ({"JOB_ID": "7", "GPUS_PER_NODE": "gb300:3,b:1"}, ("7", None, None, (), 4, None)),
        ({"JOB_ID": "7", "SEGMENT_SIZE": "4"}, ("7", None, None, (), None, 4)),
        (
            {"JOB_ID": "7", "NTASKS": "x", "TASKS_PER_NODE": "4(x", "GPUS_PER_NODE": "a:b"},
            ("7", None, None, (), None, None),
        ),
        ({"JOB_ID": "7", "TASKS_PER_NODE": "1(x99999999)"}, ("7", None, None, (), None, None)),
    ],
)
def test_the_environment_of_a_job(node: Node, environment: dict[str, str], wanted: tuple[object, ...]) -> None:
    node.environment.update({f"SLURM_{name}": value for name, value in environment.items()})
    found = shape(node.machine())
    assert (found.job, found.nodes, found.tasks, found.per_node, found.gpus, found.segment) == wanted
