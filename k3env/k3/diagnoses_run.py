"""What the output of TensorRT LLM means that does not start, or not on all ranks."""

from __future__ import annotations

from k3env.k3.diagnosis import Diagnosis

RANK_ENV = "source <repo>/.k3env/rank_env.sh in each rank: its caches are the node's own"

RUN = (
    Diagnosis(
        "run.memory",
        r"^Killed$|oom[-_]kill|Out Of Memory|died with <Signals\.SIGKILL: 9>|exitcode: -9|Exited with exit code 137"
        r"|terminated by signal (9|Killed)|signal 9 \(Killed\)",
        "a rank was killed: memory of the node, or of the job, ran out",
        "ask for all the node's memory (--mem=0), load the weights on fewer ranks of a node at once, and see the "
        "checks "
        "system.mem_cgroup and gpu.procs",
        "Slurm's own words",
    ),
    Diagnosis(
        "run.shared_memory",
        r"Bus error|/dev/shm\S*.*(No space left|Cannot allocate|failed)|insufficient shared memory"
        r"|shared memory.*No space left",
        "shared memory is full, or too small in this container",
        "give the container more (--shm-size, --ipc=host), and remove what dead jobs left in /dev/shm; see system.shm",
        "NCCL, troubleshooting; torch, multiprocessing",
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
        r"system not yet initialized|cudaErrorSystemNotReady|CUDA error 802|Error 802",
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
        "run.no_kernel",
        r"no kernel image is available for execution|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|not compiled (with|for) (SM|sm_?|compute capability) ?\d"
        r"|is not compatible with the current PyTorch installation"
        r"|Unsupported SM|sm_?1\d\d\w* is not (supported|compatible)",
        "a library has no kernels for this GPU",
        "build for it: trtllm_arch is 103-real for GB300 and B300, 100-real for GB200 and B200; see gpu.arch_built and "
        "trtllm.kernels",
        "CUDA's own words: error 209",
    ),
    Diagnosis(
        "run.devel_image",
        r"No module named '(transformers|fastapi|uvicorn|openai)'",
        "the image lacks what TensorRT LLM needs to run: it is a devel image, not a release-style one",
        "use a release-style image (nvcr.io/nvidia/tensorrt-llm/release), or one in which requirements.txt is "
        "installed",
        "examples/kimi_k3/README.md, newest; #17456",
    ),
    Diagnosis(
        "run.path",
        r"No module named 'tensorrt_llm'",
        "Python does not find TensorRT LLM: it is not the checkout's, or the checkout is not mounted at its own path",
        "source <repo>/.k3env/rank_env.sh in each rank, and mount the checkout at the path at which it was built",
        "examples/kimi_k3/README.md",
    ),
    Diagnosis(
        "run.extras",
        r"No module named '(fla|einops)'",
        "fla-core or einops is missing in the environment",
        "run the tag `deps`",
        "deployment guide, troubleshooting",
    ),
    Diagnosis(
        "run.torch",
        r"lib(th_common|tensorrt_llm)\.so: undefined symbol"
        r"|undefined symbol: \w*(3c10|2at\d|5torch|c10_|at_)",
        "another PyTorch is seen than the one that was built against: from ~/.local, or from PyPI in the environment",
        "set PYTHONNOUSERSITE=1 (<repo>/.k3env/rank_env.sh does); see the check venv.shadowed",
        "#808, #7665; examples/kimi_k3/README.md",
    ),
    Diagnosis(
        "run.flashinfer_versions",
        r"flashinfer-(cubin|jit-cache) version .*(does not|doesn't) match",
        "FlashInfer and its cubins or its JIT cache are of different versions",
        "install all of one version, or uninstall flashinfer-cubin and flashinfer-jit-cache; see venv.flashinfer_trio",
        "flashinfer-ai/flashinfer#4337",
    ),
    Diagnosis(
        "run.cubins",
        r"(?i)(failed|could not|unable) to (get|download|fetch|load).*cubin|cubin.*(checksum|download|sha256) (failed"
        r"|mismatch)"
        r"|(?i:flashinfer.*artifact.*(fail|error))",
        "FlashInfer can't download its cubins",
        "fill FLASHINFER_CUBIN_DIR beforehand, on a host with egress; see the check cache.cubins",
        "flashinfer-ai/flashinfer#1462, #1852, #1918; sgl-project/sglang#10933",
    ),
    Diagnosis(
        "run.stale_handle",
        r"Stale file handle|Errno 116\b",
        "ranks share a cache on a network filesystem",
        RANK_ENV,
        "pytorch#173679; sgl-project/sglang#472; opendatahub-io/distributed-workloads#844; databricks/megablocks#106",
    ),
    Diagnosis(
        "run.cache_race",
        r"(No such file or directory|Device or resource busy|Directory not empty|File exists).*"
        r"(\.triton|triton|torchinductor|torch_extensions|flashinfer|deep_gemm|tensorrt_llm|\.cache)[/_]"
        r"\S*(tmp|cache|\.(json|so|ttir|cubin|lock|o|cu)\b)",
        "ranks write one cache at once, on a filesystem that is not made for it",
        RANK_ENV,
        "triton-lang/triton #2688, #4002, #11512",
    ),
    Diagnosis(
        "run.cache_permission",
        r"(Permission denied|Read-only file system).*(\.?triton|torchinductor|torch_extensions|flashinfer|deep_gemm"
        r"|\.cache"
        r"|\.tensorrt_llm|huggingface)\b",
        "a cache belongs to another user, or can't be written",
        RANK_ENV,
        "triton-lang/triton#518",
    ),
    Diagnosis(
        "run.home_cache",
        r"FileExistsError.*/\.cache\b",
        "~/.cache is a link to nothing, or ranks make it at once",
        "source <repo>/.k3env/rank_env.sh in each rank: it sets HF_MODULES_CACHE and the others",
        "examples/kimi_k3: HF_MODULES_CACHE",
    ),
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
        "run.domain",
        r"invalid resource handle",
        "GPUs of different NVLink domains can't map each other's memory",
        "allocate all nodes in one NVL72 domain (--segment); see the check across.nvlink_domain",
        "examples/kimi_k3, MEGAMOE_CUTEDSL",
    ),
    Diagnosis(
        "run.gpu_memory",
        r"CUDA out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation|torch\.(cuda\.)?OutOfMemoryError",
        "the GPU's memory does not hold weights, cache and graphs",
        "take a recipe for this GPU (model.recipe), lower free_gpu_memory_fraction or max_batch_size; "
        "Kimi K3 does not fit on an H200",
        "deployment guide, memory table; vllm-project/recipes#698; srt-slurm#125",
    ),
    Diagnosis(
        "run.remote_code",
        r"trust_remote_code=True|requires you to execute the configuration file",
        "the checkpoint brings code of its own, and the server is not told to run it",
        "give --trust_remote_code to trtllm-serve, or trust_remote_code: true in its configuration",
        "transformers' own words",
    ),
    Diagnosis(
        "run.hub",
        r"(huggingface\.co|hf\.co|HF_HUB_OFFLINE|LocalEntryNotFoundError|HfHubHTTPError|GatedRepoError"
        r"|RepositoryNotFoundError)",
        "a model or data set is asked of the Hugging Face hub, which is not reached or does not give it",
        "name the checkpoint by its directory; stage what is missing (playbooks/stage.yml), and set HF_HUB_OFFLINE=1",
        "huggingface_hub's own words",
        also=r"Error|error|couldn't connect|Cannot find|Max retries",
    ),
    Diagnosis(
        "run.shard",
        r"SafetensorError|Error while deserializing header|MetadataIncompleteBuffer|InvalidHeader|HeaderTooLarge"
        r"|unexpected end of file.*safetensors|size mismatch for ",
        "a file of weights is cut off, or is the pointer of one",
        "compare its size with the index's: see the checks model.total and model.files; run hf_snapshot again",
        "safetensors' own words",
    ),
    Diagnosis(
        "run.weights",
        r"No weight files found in",
        "there are no weights where the server looks",
        "see the checkpoint's path and mounts: links of the Hugging Face cache leave its snapshot; see model.files",
        "TensorRT LLM, weight loader",
    ),
    Diagnosis(
        "run.openssl",
        r"openssl: (command )?not found",
        "trtllm-llmapi-launch makes its key by openssl, which is missing",
        "install openssl in the image",
        "tensorrt_llm/llmapi/trtllm-llmapi-launch",
    ),
    Diagnosis(
        "run.python",
        r"\bpython: (command )?not found",
        "trtllm-llmapi-launch calls `python`, which is missing",
        "put the environment's bin first in PATH: source <repo>/.k3env/rank_env.sh in each rank",
        "tensorrt_llm/llmapi/trtllm-llmapi-launch",
    ),
    Diagnosis(
        "run.account",
        r"Invalid account or account/partition combination",
        "Slurm knows no such account: the scripts' `${account}` is not replaced by anybody",
        "give sbatch --account=NAME before the script's path",
        "examples/kimi_k3/*.sbatch",
    ),
    Diagnosis(
        "run.inherited",
        r"set by two different environment variables|CPU binding outside of job step allocation"
        r"|Unable to satisfy cpu bind request",
        "an srun within a step took over the outer one's SLURM_ variables",
        "unset SLURM_CPU_BIND, SLURM_CPU_BIND_LIST, SLURM_CPU_BIND_TYPE, SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK "
        "before it",
        "Slurm's own words; ishandhanani/srt-slurm#125",
    ),
    Diagnosis(
        "run.argument",
        r"(?i)\bunknown argument:? ",
        "options behind the script's path are the script's, not sbatch's",
        "put sbatch's options before the script's path",
        "examples/kimi_k3/perf_sweep",
    ),
    Diagnosis(
        "run.port",
        r"Address already in use|Errno 98\b|EADDRINUSE",
        "the port is taken: another server, or one of yours that did not end, listens there",
        "see who it is (`ss -ltnp`), or take another port; see the check system.net_rank0_port",
        "bind(2), EADDRINUSE",
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
    Diagnosis(
        "run.disk",
        r"(?i:no space left on device)|Disk quota exceeded|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        "make room where the named file lies; see `df -h`, `df -i`, and the check cache.space",
        "write(2), ENOSPC and EDQUOT",
    ),
    Diagnosis(
        "run.time_limit",
        r"DUE TO TIME LIMIT",
        "the job's time was over: loading the weights alone takes 10 to 15 minutes, longer when cold",
        "ask for more time (--time), and stage the weights before",
        "examples/kimi_k3/README.md, troubleshooting",
    ),
)
