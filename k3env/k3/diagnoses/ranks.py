"""What it means when the ranks of a run can't find or reach each other."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

RANKS = (
    Diagnosis(
        "run.duplicate_gpu",
        r"Duplicate GPU detected",
        "two ranks use one GPU",
        "start one rank per GPU: see --ntasks-per-node, --gpus-per-task and CUDA_VISIBLE_DEVICES in each rank",
        "NCCL, init.cc",
    ),
    Diagnosis(
        "run.ib_link",
        r"Got completion .*(error|status=?) ?1[02]\b|[Tt]ransport retry (count|counter) exceeded"
        r"|IBV_WC_RETRY_EXC_ERR|local work queue .*error|ibv_modify_qp failed|remote access error",
        "a connection over InfiniBand or RoCE broke, or could not be made",
        "see the links (`ibstat`, `ibdiagnet`), the other node, NCCL_IB_HCA and NCCL_IB_GID_INDEX; see system.net_ib",
        "NVIDIA/nccl, net_ib.cc; openucx/ucx",
    ),
    Diagnosis(
        "run.interface",
        r"[Nn]o socket interface|[Uu]nable to find address for|no usable (network )?interface"
        r"|gloo.*(Unable to resolve|no matching)|makeDeviceForHostname|makeDeviceForInterface",
        "no network interface of that name is found on a node",
        "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to one that all nodes have (`ip -br a`), or leave "
        "them unset; see system.net_rank0_port",
        "NCCL, bootstrap.cc; gloo",
        near=r"(?i)nccl|gloo|ucc|ucx",
    ),
    Diagnosis(
        "run.nccl_version",
        r"undefined symbol: nccl\w+|NCCL (library )?version mismatch|ncclInvalidUsage.*version"
        r"|version mismatch.*nccl|NCCL WARN .*[Mm]ismatch",
        "NCCL is of different versions: on the ranks, or than PyTorch was built with",
        "use the image's own NCCL on all nodes: nothing of pip (nvidia-nccl-cu13), of ~/.local or "
        "LD_LIBRARY_PATH may come before it",
        "NCCL's and PyTorch's own words",
    ),
    Diagnosis(
        "run.pmix",
        r"PMIx?_Init failed|PMIX? ERROR|pmix_\w+ failed|[Uu]nable to connect to (the )?PMI"
        r"|MPI_INIT has failed|selected pml \w+, but peer|OPAL ERROR|ORTE was unable|PRTE"
        r"|UCX: runtime_init failed"
        r"|An ORTE daemon has (unexpectedly )?failed|PRTE daemon"
        r"|daemon (on node .*)?(has )?(unexpectedly )?failed after launch|plm_rsh_agent|Could not find .*(rsh"
        r"|ssh) agent|unable to reliably start",
        "ranks of MPI can't find each other: PMIx, or the network that they choose, differs between them "
        "or is not there",
        "start all by `srun --mpi=pmix` from one image; set UCX_TLS and OMPI_MCA_* alike on all nodes or "
        "not at all; see slurm.tools and system.container_libs",
        "NVIDIA/pyxis#88; openucx/ucx#4224; charm#2683",
        follows=True,
    ),
    Diagnosis(
        "run.mpi_program",
        r"mpi(run|exec) was unable to (find|launch)|unable to (find|access) the specified (executable"
        r"|working directory)|HYDU_create_process|execvp error on file",
        "mpirun does not find the program on a node, or in the container",
        "name it by its whole path, which all nodes have; start the ranks inside the container",
        "Open MPI's and Hydra's own words",
    ),
    Diagnosis(
        "run.gloo",
        r"(?i)gloo.*(connect\w* (failed|refused|timed|reset)|timed out|refused|closed by peer)|connectFullMesh failed",
        "ranks can't connect each other over TCP",
        "set GLOO_SOCKET_IFNAME to the interface that all nodes share; see across.ranks and system.net_rank0_port",
        "gloo; pytorch",
    ),
    Diagnosis(
        "run.mpi",
        r"(opal_init|orte_init|ompi_init|MPI_INIT(_THREAD)?|PMIx|MPI runtime init|ompi_rte_init) failed"
        r"|ompi_mpi_init: .*failed"
        r"|OPAL ERROR: (Unreachable|Error|Not)|An error occurred in MPI_Init|PMI support and therefore cannot execute"
        r"|cannot load MPI library"
        r"|libmpi\S*\.so\S*: cannot open|PMII?_singinit|mpi/pmix\S*: .*(error|ERROR)|specified plugin name for mpi/",
        "MPI can't start: the ranks were not started with PMIx, or mpi4py is of another MPI than the image's",
        "start them by `srun --mpi=pmix`; see the checks slurm.tools and system.container_libs",
        "#167, #1294, #2286, #2316, #2405, #2801, #8961; open-mpi/ompi #7949, #8090, #9030; mpi4py/mpi4py#141",
    ),
    Diagnosis(
        "run.nccl",
        r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError"
        r"|NCCL WARN (?!.*Failed to open lib).*(?i:fail|error|wrong type|no socket interface|mismatch"
        r"|timed? ?out|abort)|UCC +(?i:error)|NCCL (error|failure)|ncclInvalidUsage",
        "NCCL or UCC can't connect the ranks",
        "set NCCL_DEBUG=INFO and run it again; see the checks nvlink.* and system.net_rank0_port; NCCL 2.26.2 or later",
        "#4238, #4668; NVIDIA/nccl #799, #925; NVIDIA/nccl-tests #166, #185, #188, #227",
        follows=True,
    ),
    Diagnosis(
        "run.ucx",
        r"UCX +(ERROR|FATAL)|UCP API version is incompatible|undefined symbol: uc[pstm]_",
        "UCX can't start, or is of another version than what was built with it",
        "use the image's own UCX: nothing of the host's HPC-X may be mounted or stand in LD_LIBRARY_PATH; see "
        "system.container_libs, system.net_ib and system.memlock",
        "openucx/ucx's own words",
    ),
    Diagnosis(
        "run.nixl",
        r"NIXL_ERR_\w+|nixl\w*Error",
        "NIXL can not use its back end: UCX is another than its own, has no CUDA, or no device to reach others by",
        "use the image's own UCX and NIXL; run it again with UCX_LOG_LEVEL=info; see system.container_libs, "
        "system.net_ib and system.memlock",
        "ai-dynamo/nixl #149, #177, #334",
        follows=True,
    ),
    Diagnosis(
        "run.memlock",
        r"(ibv_|RLIMIT|memlock|register).*(Cannot allocate memory|memlock)|memlock limit",
        "memory can't be pinned for InfiniBand: the limit is too low",
        "raise it: `ulimit -l unlimited`, in Slurm PropagateResourceLimits, in a container --ulimit memlock=-1; see "
        "system.memlock",
        "libibverbs' and UCX's own words",
    ),
    Diagnosis(
        "run.rank_missing",
        r"(collective operation|Watchdog).*time(out|d out)|DistNetworkError|TCPStore.*(timed? ?out|failed)"
        r"|Timed out .*waiting for (clients|\d+)|Socket Timeout",
        "a rank did not come: it failed before, or its node is not reached",
        "look for the first error among the other ranks' output; see the checks across.ranks and system.net_rank0_port",
        "torch.distributed's own words",
        follows=True,
    ),
    Diagnosis(
        "run.as_root",
        r"mpirun has detected an attempt to run as root",
        "mpirun does not run as root by itself",
        "give it --allow-run-as-root, or start the ranks by srun",
        "Open MPI's own words",
    ),
    Diagnosis(
        "run.slots",
        r"There are not enough slots available",
        "mpirun was asked for more ranks than it knows places for",
        "start the ranks by `srun --mpi=pmix`, or give mpirun --oversubscribe or a hostfile",
        "Open MPI's own words",
    ),
)
