"""What it means when GPUs fail a run."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

GPU = (
    Diagnosis(
        "run.illegal_access",
        r"an illegal memory access|cudaErrorIllegalAddress|unspecified launch failure|misaligned address"
        r"|device-side assert|CUDA_ERROR_ILLEGAL_ADDRESS|Warp (Illegal|Out-of-range)",
        "a kernel read or wrote where it may not: a fault of the code, or of the GPU",
        "see gpu.xid and gpu.ecc on that node; run it again with CUDA_LAUNCH_BLOCKING=1 to see which "
        "kernel; try another node",
        "CUDA's own words: errors 700, 719, 716",
    ),
    Diagnosis(
        "run.gpu_busy",
        r"CUDA-capable device\(s\) is/are busy|devices? (is|are) busy or unavailable"
        r"|cudaErrorDevicesUnavailable|exclusive[- ]process",
        "a GPU is taken by another process, or does not come up",
        "see who uses it (gpu.procs) and its compute mode (`nvidia-smi -q -d COMPUTE`); then gpu.xid",
        "CUDA's own words: error 46",
    ),
    Diagnosis(
        "run.compat",
        r"forward compatibility was attempted|cudaErrorCompatNotSupported|error 804\b",
        "the image brings a compatibility driver that this GPU or node does not take",
        "let nothing of /usr/local/cuda/compat stand in LD_LIBRARY_PATH; upgrade the driver: CUDA 13 needs "
        "580 or later; see gpu.driver.version",
        "CUDA's own words: error 804",
    ),
    Diagnosis(
        "run.triton_driver",
        r"active drivers \(\[\]\)|libcuda\.so cannot found|no CUDA driver found",
        "Triton sees no GPU, or no driver library",
        "run it on a GPU node, in a container that has its GPUs (gpu.count, system.toolkit); "
        "TRITON_LIBCUDA_PATH names another directory of libcuda.so",
        "triton, runtime/driver.py",
    ),
    Diagnosis(
        "run.triton_resources",
        r"out of resource: (shared memory|threads|tensor memory)|OutOfResources",
        "a kernel asks for more shared memory than this GPU has: it is tuned for another one",
        "see that GPU and recipe fit (model.recipe), and the versions of Triton and of the kernels' "
        "package (venv.pins)",
        "triton, compiler/errors.py",
    ),
    Diagnosis(
        "run.cuda_mixed",
        r"undefined symbol: (__nvJitLink\w+|cublas\w+|cudnn\w+|cusparse\w+|cufft\w+|nvrtc\w+)|lib(nvJitLink"
        r"|cublas\w*|cudnn\w*|cudart|nvrtc)\S*: version `[^']*' not found",
        "libraries of two CUDA versions are mixed",
        "keep the image's own: nothing of the host's CUDA, of conda or of pip's nvidia-* may come before "
        "it in LD_LIBRARY_PATH; see system.container_libs",
        "pytorch/pytorch#111469",
    ),
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
        r"|Found no NVIDIA driver|NVML: (Driver Not Loaded|Unknown Error"
        r"|Insufficient Permissions)"
        r"|couldn't communicate with the NVIDIA driver|No devices were found",
        "no GPU is seen: none was asked for, the container has none, or the driver is not loaded",
        "see `nvidia-smi -L` on the node and in the job; ask for them (--gpus-per-node, --gres=gpu:4); see gpu.count "
        "and "
        "system.toolkit",
        "CUDA's and NVML's own words",
    ),
    Diagnosis(
        "run.gpu_unknown",
        r"CUDA (runtime )?error.*: unknown error|cudaErrorUnknown|CUDA_ERROR_UNKNOWN|CUDA unknown error"
        r"|CUDA error: unknown error",
        "the driver does not answer as it should: a device file is missing in the container, a module is not "
        "loaded, or a GPU hangs",
        "see `nvidia-smi` and the kernel's log (NVRM: Xid) on the node, that nvidia_uvm is loaded, and gpu.xid; "
        "then system.toolkit",
        "CUDA's own words: error 999",
    ),
    Diagnosis(
        "run.too_few_gpus",
        r"Only \d+ GPUs? (are|is) available|(required|requested) GPUs? .*(exceed|more than)"
        r"|larger than the (number of )?available GPUs|[Nn]ot enough (GPUs|devices)|world.?size .*(larger"
        r"|greater|exceeds).*(GPU|device)|only \d+ (GPUs?|devices) (are|is|were) (available|found|visible)"
        r"|invalid device ordinal|cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE|Requested MNNVL"
        r"|device index out of range",
        "a GPU is asked for that this rank does not see: more are wanted than there are, or each rank sees its "
        "own alone",
        "see tensor_parallel_size and the like beside the GPUs of the job (`nvidia-smi -L`); over several nodes "
        "start all ranks by `srun --mpi=pmix` and trtllm-llmapi-launch; see gpu.count",
        "TensorRT LLM, llmapi; #2594",
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
        near=r"(?i)nvlink|imex|fabric|mnnvl|multicast|megamoe|symm|cuMem|ipc",
    ),
    Diagnosis(
        "run.fabric_memory",
        r"(?i:error|fail|invalid|warn)(?!.*out of memory).*\bcuMem(Import|Export|SetAccess|Create|Map"
        r"|AddressReserve)\w*|\bcuMem(Import|Export|SetAccess|Create|Map"
        r"|AddressReserve)\w*(?!.*out of memory).*(?i:error|fail|invalid)|MNNVL.*([Ff]ail|not (supported"
        r"|available)|[Ee]rror)|[Ii][Mm][Ee][Xx] .*(not running|[Ff]ail|[Ee]rror|no channel|not found)",
        "GPUs can not share memory over NVLink: IMEX, its channel in the container, or the fabric is not as it must be",
        "see the checks nvlink.imex_daemon, nvlink.state and across.nvlink_domain, and that the container has "
        "/dev/nvidia-caps-imex-channels; until it is mended set NCCL_MNNVL_ENABLE=0",
        "CUDA, virtual memory management; dra-driver-nvidia-gpu#1417, nvbandwidth#44",
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
