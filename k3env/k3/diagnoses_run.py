"""What the output of TensorRT LLM means that does not start, or not on all ranks."""

from __future__ import annotations

from k3env.k3.diagnosis import Diagnosis

RUN = (
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
        r"lib(th_common|tensorrt_llm)\.so: undefined symbol",
        "another PyTorch is seen than the one that was built against: from ~/.local, or from PyPI in the environment",
        "set PYTHONNOUSERSITE=1 (<repo>/.k3env/rank_env.sh does); see the check venv.shadowed",
        "#808, #7665; examples/kimi_k3/README.md",
    ),
    Diagnosis(
        "run.flashinfer_versions",
        r"flashinfer-(cubin|jit-cache) version .*does not match",
        "FlashInfer and its cubins or its JIT cache are of different versions",
        "install all of one version, or uninstall flashinfer-cubin and flashinfer-jit-cache; see venv.flashinfer_trio",
        "flashinfer-ai/flashinfer#4337",
    ),
    Diagnosis(
        "run.cubins",
        r"(?i)(failed|could not|unable) to (get|download|fetch).*cubin|cubin.*(checksum|download) (failed|mismatch)",
        "FlashInfer can't download its cubins",
        "fill FLASHINFER_CUBIN_DIR beforehand, on a host with egress; see the check cache.cubins",
        "flashinfer-ai/flashinfer#1462, #1852, #1918; sgl-project/sglang#10933",
    ),
    Diagnosis(
        "run.stale_handle",
        r"Stale file handle|Errno 116\b",
        "ranks share a cache on a network filesystem",
        "source <repo>/.k3env/rank_env.sh in each rank: its caches are the node's own",
        "pytorch#173679; sgl-project/sglang#472; opendatahub-io/distributed-workloads#844",
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
        r"opal_init failed|MPI_INIT(_THREAD)? failed|ompi_mpi_init: .*failed|OPAL ERROR|PMIX? ERROR"
        r"|An error occurred in MPI_Init",
        "MPI can't start: the ranks were not started with PMIx, or mpi4py is of another MPI than the image's",
        "start them by `srun --mpi=pmix`; see the checks slurm.tools and system.container_libs",
        "#1294, #2316, #2405, #2801, #8961; open-mpi/ompi#7949",
    ),
    Diagnosis(
        "run.nccl",
        r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError|NCCL WARN .*(?i:fail|error)"
        r"|UCC +(?i:error)",
        "NCCL or UCC can't connect the ranks",
        "set NCCL_DEBUG=INFO and run it again; see the checks nvlink.* and system.net_rank0_port; NCCL 2.26.2 or later",
        "#4238, #4668",
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
        "run.time_limit",
        r"DUE TO TIME LIMIT",
        "the job's time was over: loading the weights alone takes 10 to 15 minutes, longer when cold",
        "ask for more time (--time), and stage the weights before",
        "examples/kimi_k3/README.md, troubleshooting",
    ),
)
