"""What it means when GPUs, or what connects their ranks, fail a run."""

from __future__ import annotations

from k3env.k3.diagnosis import Diagnosis

GPU = (
    Diagnosis(
        "run.driver",
        r"CUDA driver version is insufficient|driver on your system is too old|cudaErrorInsufficientDriver"
        r"|unsupported display driver / cuda driver combination"
        r"|provided PTX was compiled with an unsupported toolchain",
        "the NVIDIA driver is too old for the image's CUDA",
        "upgrade the driver: CUDA 13 needs 580 or later; see the check gpu.driver.version",
        "CUDA's own words: errors 35, 803, 222",
    ),
    Diagnosis(
        "run.fabric",
        r"(?i:system not yet initialized)|cudaErrorSystemNotReady|CUDA error 802|Error 802",
        "the NVLink fabric is not up: the fabric manager, or IMEX, does not run or has not finished",
        "see the checks nvlink.fabric_manager, nvlink.state and nvlink.imex_daemon; `systemctl status "
        "nvidia-fabricmanager`",
        "CUDA's own words: error 802",
    ),
    Diagnosis(
        "run.driver_mismatch",
        r"Driver/library version mismatch|NVML library version",
        "the driver's library is newer than its loaded kernel module: it was upgraded, and the node not rebooted",
        "reboot the node, or stop all that uses the GPUs and load the module anew; see gpu.driver.mismatch",
        "NVML's own words",
    ),
    Diagnosis(
        "run.no_gpu",
        r"no CUDA-capable device is detected|No CUDA GPUs are available|Failed to initialize NVML|CUDA_ERROR_NO_DEVICE"
        r"|Found no NVIDIA driver|invalid device ordinal|NVML: (Driver Not Loaded|Unknown Error"
        r"|Insufficient Permissions)",
        "no GPU is seen: none was asked for, the container has none, or the driver is not loaded",
        "see `nvidia-smi -L` on the node and in the job; ask for them (--gpus-per-node, --gres=gpu:4); see gpu.count "
        "and "
        "system.toolkit",
        "CUDA's and NVML's own words",
    ),
    Diagnosis(
        "run.ecc",
        r"uncorrectable ECC error|(GPU is lost|fallen off the bus)",
        "a GPU has failed",
        "drain the node, and see the checks gpu.ecc, gpu.rowremap, gpu.xid and gpu.repair",
        "CUDA's own words: error 214",
    ),
    Diagnosis(
        "run.not_supported",
        r"CUDA .*operation not supported",
        "the GPU, or the slice of one, can't do what is asked: a vGPU or MIG has no memory pools or peers",
        "use whole GPUs; see gpu.mig",
        "#1861; triton-inference-server/tensorrtllm_backend#363",
    ),
    Diagnosis(
        "run.nvls",
        r"NVLink SHARP|NVLS.*(fail|error)|CUDA error 401|cannot be performed in the present state",
        "NCCL can't set up multicast over NVLink: the fabric manager or a switch is in a wrong state",
        "see the checks nvlink.fabric_manager and nvlink.state; until it is mended set NCCL_NVLS_ENABLE=0",
        "pytorch/pytorch#177472",
    ),
    Diagnosis(
        "run.no_kernel",
        r"no kernel image is available for execution|Arch unsupported for|cudaErrorNoKernelImageForDevice"
        r"|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|not compiled (with|for) (SM|sm_?|compute capability) ?\d"
        r"|is not compatible with the current PyTorch installation"
        r"|Unsupported SM|sm_?1\d\d\w* is not (supported|compatible)",
        "a library has no kernels for this GPU",
        "build for it: trtllm_arch is 103-real for GB300 and B300, 100-real for GB200 and B200; see gpu.arch_built and "
        "trtllm.kernels",
        "CUDA's own words: error 209",
    ),
    Diagnosis(
        "run.domain",
        r"invalid resource handle",
        "GPUs of different NVLink domains can't map each other's memory",
        "allocate all nodes in one NVL72 domain (--segment); see the check across.nvlink_domain",
        "examples/kimi_k3, MEGAMOE_CUTEDSL",
    ),
    Diagnosis(
        "run.gpu_memory",
        r"CUDA runtime error in .*out of memory|Cuda failure \d+ 'out of memory'|CUBLAS_STATUS_ALLOC_FAILED"
        r"|CUDA out of memory"
        r"|CUDA error: out of memory|cudaErrorMemoryAllocation|torch\.(cuda\.)?OutOfMemoryError",
        "the GPU's memory does not hold weights, cache and graphs",
        "take a recipe for this GPU (model.recipe), lower free_gpu_memory_fraction or max_batch_size; "
        "Kimi K3 does not fit on an H200",
        "deployment guide, memory table; vllm-project/recipes#698; srt-slurm#125",
    ),
)
RANKS = (
    Diagnosis(
        "run.mpi",
        r"(opal_init|orte_init|ompi_init|MPI_INIT(_THREAD)?|PMIx|MPI runtime init|ompi_rte_init) failed"
        r"|ompi_mpi_init: .*failed"
        r"|OPAL ERROR|PMIX? ERROR|An error occurred in MPI_Init|PMI support and therefore cannot execute"
        r"|cannot load MPI library"
        r"|libmpi\S*\.so\S*: cannot open|PMII?_singinit|mpi/pmix\S*: .*(error|ERROR)|specified plugin name for mpi/",
        "MPI can't start: the ranks were not started with PMIx, or mpi4py is of another MPI than the image's",
        "start them by `srun --mpi=pmix`; see the checks slurm.tools and system.container_libs",
        "#167, #1294, #2286, #2316, #2405, #2801, #8961; open-mpi/ompi #7949, #8090, #9030; mpi4py/mpi4py#141",
    ),
    Diagnosis(
        "run.nccl",
        r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError|NCCL WARN .*(?i:fail|error"
        r"|wrong type|no socket interface|mismatch|timed? ?out|abort)"
        r"|UCC +(?i:error)|NCCL (error|failure)|ncclInvalidUsage",
        "NCCL or UCC can't connect the ranks",
        "set NCCL_DEBUG=INFO and run it again; see the checks nvlink.* and system.net_rank0_port; NCCL 2.26.2 or later",
        "#4238, #4668; NVIDIA/nccl #799, #925; NVIDIA/nccl-tests #166, #185, #188, #227",
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
