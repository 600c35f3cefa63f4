"""What the output of TensorRT LLM means that does not start, or not on all ranks."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis
from k3env.k3.diagnoses.gpu import GPU
from k3env.k3.diagnoses.ranks import RANKS
from k3env.k3.diagnoses.slurm import SLURM

RANK_ENV = "source <repo>/.k3env/rank_env.sh in each rank: its caches are the node's own"

RUN = (
    Diagnosis(
        "run.shared_memory",
        r"Bus error|check that /dev/shm|/dev/shm\S*.*(No space left|Cannot allocate|failed)|insufficient shared memory"
        r"|shared memory.*No space left",
        "shared memory is full, or too small in this container",
        "give the container more (--shm-size, --ipc=host), and remove what dead jobs left in /dev/shm; see system.shm",
        "NCCL, troubleshooting; torch, multiprocessing",
    ),
    Diagnosis(
        "run.memory",
        r"^Killed$|oom[-_]kill|Out Of Memory|died with <Signals\.SIGKILL: 9>|exitcode: -9|Exited with exit code 137"
        r"|terminated by signal (9|Killed)|signal 9 \(Killed\)|Killed \(signal 9\)",
        "a rank was killed: memory of the node, or of the job, ran out",
        "ask for all the node's memory (--mem=0), end what else runs on the node, and see the "
        "checks "
        "system.mem_cgroup and gpu.procs",
        "Slurm's own words",
    ),
    *GPU,
    Diagnosis(
        "run.no_compiler",
        r"Failed to find C compiler|Cannot find ptxas|ptxas. failed with error",
        "Triton finds no compiler to make its launcher with",
        "have gcc and the image's own ptxas in PATH; keep CC unset, or let it name a compiler that is in the image",
        "triton's own words",
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
        "run.unknown_model",
        r"model architecture \w+ is not supported|Unknown architecture for|does not recognize this architecture"
        r"|Unrecognized model in",
        "this TensorRT LLM, or its transformers, is too old for the checkpoint, or the directory is not one",
        "see trtllm_commit, and which tensorrt_llm is imported; see the check model.identity",
        "#2845",
    ),
    Diagnosis(
        "run.versions",
        r"cannot import name '\w+' from '(transformers|torch|flashinfer|triton|tensorrt_llm|huggingface_hub|numpy)"
        r"|has no attribute '\w+'.*(flashinfer|triton|transformers)",
        "a package is of another version than this checkout is written for",
        "see the checks venv.pins and venv.requirements; run the tag `deps`",
        "requirements.txt",
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
        r"(?i:stale (nfs )?file handle)|Errno 116\b",
        "ranks share a cache on a network filesystem",
        RANK_ENV,
        "pytorch#173679; sgl-project/sglang#472; opendatahub-io/distributed-workloads#844; databricks/megablocks#106",
    ),
    Diagnosis(
        "run.cache_race",
        r"(No such file or directory|Device or resource busy|Directory not empty|File exists).*"
        r"(\.triton|/triton_\w+|torchinductor|torch_extensions|/flashinfer|deep_gemm|\.tensorrt_llm"
        r"|\.cache/\w*(triton|vllm|inductor))[/_]"
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
    *RANKS,
    *SLURM,
    Diagnosis(
        "run.remote_code",
        r"trust_remote_code=True|requires you to execute the configuration file",
        "the checkpoint brings code of its own, and the server is not told to run it",
        "give --trust_remote_code to trtllm-serve, or trust_remote_code: true in its configuration",
        "transformers' own words",
    ),
    Diagnosis(
        "run.hub",
        r"LocalEntryNotFoundError|HfHubHTTPError|GatedRepoError|RepositoryNotFoundError|OfflineModeIsEnabled"
        r"|(huggingface\.co|\bhf\.co)\S* ?.*(Max retries|timed out|refused|NameResolution|ConnectionError)"
        r"|(Client|Server) Error.*(huggingface\.co|\bhf\.co)|couldn't connect to '?https://(huggingface|hf)\.co"
        r"|[Cc]annot (find|reach) .*offline|HF_HUB_OFFLINE.*(is set|enabled)",
        "a model or data set is asked of the Hugging Face hub, which is not reached or does not give it",
        "name the checkpoint by its directory; stage what is missing (playbooks/stage.yml), and set HF_HUB_OFFLINE=1",
        "huggingface_hub's own words",
    ),
    Diagnosis(
        "run.shard",
        r"SafetensorError|Error while deserializing header|MetadataIncompleteBuffer|InvalidHeader|HeaderTooLarge"
        r"|unexpected end of file.*safetensors",
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
        "run.port",
        r"Address already in use|Errno 98\b|EADDRINUSE",
        "the port is taken: another server, or one of yours that did not end, listens there",
        "see who it is (`ss -ltnp`), or take another port; see the check system.net_rank0_port",
        "bind(2), EADDRINUSE",
    ),
    Diagnosis(
        "run.disk",
        r"(?i:no space left on device|disk quota exceeded)|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        "make room where the named file lies; see `df -h`, `df -i`, and the check cache.space",
        "write(2), ENOSPC and EDQUOT",
    ),
)
