"""The text of rank_env.sh: POSIX sh, sourced by ranks; `return`, never `exit`, and its helpers are unset at the end.

Sources of the variables: examples/kimi_k3 of TensorRT LLM (open files, Triton, FlashInfer, HF modules,
PYTHONNOUSERSITE, PYTHONPATH, log level); each library's own documents for the others.
"""

from __future__ import annotations

from k3env.node.leases.marking import PROGRAM

SCRIPT = r"""# Written by k3env's module rank_env: change the play, not this file.
# Each rank sources it inside its container. Where something is not as it must be it returns 1, with a message.

@VALUES@
k3env_say() {
    printf 'k3env: rank_env: %s\n' "$1" >&2
}

# Open files: weights come in many shards, ranks talk over many sockets. The hard limit is never lowered.
k3env_limits() {
    k3env_now=$(ulimit -Sn)
    if [ "$k3env_now" = unlimited ] || [ "$k3env_now" -ge "$k3env_open_files" ]; then
        return 0
    fi
    ulimit -Sn "$k3env_open_files" 2>/dev/null && return 0
    k3env_say "open files: expected $k3env_open_files, found a hard limit of $(ulimit -Hn); raise LimitNOFILE of \
slurmd.service (or --ulimit nofile of the container)"
    return 1
}

# The rank on this node; where a launcher tells only the global one, that serves as well.
k3env_find_rank() {
    k3env_rank=${SLURM_LOCALID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${PMI_LOCAL_RANK:-}}}}
    k3env_rank=${k3env_rank:-${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}}}
    case $k3env_rank in
    *[!0-9]*)
        k3env_say "the launcher's rank is no number: $k3env_rank"
        return 1
        ;;
    esac
}

k3env_find_base() {
    if [ -L "$k3env_base" ]; then
        k3env_say "$k3env_base is a symbolic link; expected the directory that 'invoke caches' made"
    elif [ ! -d "$k3env_base" ]; then
        k3env_say "$k3env_base is missing: run 'invoke caches' on this node, and mount it into the container at the \
same path (--container-mounts=$k3env_base:$k3env_base)"
    elif [ ! -O "$k3env_base" ]; then
        k3env_say "$k3env_base belongs to somebody else than $(id -un 2>/dev/null || id -u); expected a base of the \
ranks' user"
    elif [ ! -w "$k3env_base" ] || [ ! -x "$k3env_base" ]; then
        k3env_say "$k3env_base can't be written to; is it mounted read-only into the container?"
    else
        return 0
    fi
    return 1
}

k3env_find_venv() {
    if [ -z "$k3env_venv" ]; then
        k3env_count=0
        for k3env_each in "$k3env_repo"/.venv-*; do
            if [ -d "$k3env_each" ]; then
                k3env_venv=$k3env_each
                k3env_count=$((k3env_count + 1))
            fi
        done
        if [ "$k3env_count" -gt 1 ]; then
            k3env_venv=$k3env_repo/.venv-$(python3 -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        fi
    fi
    if [ -z "$k3env_venv" ]; then
        k3env_say "there is no virtual environment in $k3env_repo: run 'invoke build', and mount the checkout into the \
container at the same path"
        return 1
    fi
    [ -x "$k3env_venv/bin/python" ] && return 0
    k3env_say "$k3env_venv has no Python that runs here; was it made in another image? Run 'invoke build' with this one"
    return 1
}

# The process that will be the server. In a subshell, $$ is another one.
k3env_find_self() {
    read -r k3env_self k3env_each 2>/dev/null </proc/self/stat || k3env_self=$$
}

# What the caches belong to: FlashInfer names its directory by version, not by commit, and a compiled kernel that was
# made by another Triton or CUDA is worse than none. The same Python marks the checkout as in use.
k3env_find_fingerprint() {
    k3env_fingerprint=$("$k3env_venv/bin/python" -I - "$k3env_repo" "$k3env_base" "$k3env_image" \
        "$k3env_self" "$k3env_rank" <<'K3ENV'
import hashlib, json, os, sys
from importlib import metadata

repo, base, image, pid, rank = sys.argv[1:]
if os.statvfs(base).f_flag & os.ST_NOEXEC:
    sys.exit(f"k3env: rank_env: {base} is mounted noexec: compiled kernels can't be loaded from there")


def read(*names):
    try:
        with open(os.path.join(*names), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def head(git):
    # A worktree's .git is a file that names its directory, whose refs are in the common one.
    if os.path.isfile(git):
        git = os.path.join(os.path.dirname(git), read(git).partition("gitdir: ")[2])
    name = read(git, "HEAD")
    if not name.startswith("ref: "):
        return name
    name = name[5:]
    common = os.path.join(git, read(git, "commondir"))
    packed = [line.split() for line in read(common, "packed-refs").splitlines()]
    return read(git, name) or read(common, name) or next((row[0] for row in packed if row[1:] == [name]), "")


def package(name):
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return [found.version, found.read_text("direct_url.json") or ""]


def build(name, path):
    try:
        return read(str(metadata.distribution(name).locate_file(path)))
    except metadata.PackageNotFoundError:
        return ""


names = ("tensorrt_llm", "flashinfer-python", "triton", "torch", "nvidia-cutlass-dsl")
parts = {name: package(name) for name in names}
parts["FlashInfer's build"] = build("flashinfer-python", "flashinfer/_build_meta.py")
parts["checkout"] = head(os.path.join(repo, ".git"))
parts["image"] = [image, *(os.environ.get(key, "") for key in ("NVIDIA_BUILD_ID", "CUDA_VERSION"))]
parts["Python"] = sys.version
print(hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16], flush=True)
@MARK@
why = mark(repo, int(pid), rank)
if why and rank == "0":
    print(f"k3env: rank_env: {repo} can't be marked as in use, and may be rebuilt meanwhile: {why}", file=sys.stderr)
K3ENV
    ) && [ -n "$k3env_fingerprint" ] && return 0
    k3env_say "$k3env_venv/bin/python can't tell what is installed; run 'invoke verify'"
    return 1
}

k3env_make_dirs() {
    k3env_shared=$k3env_base/$k3env_fingerprint
    k3env_own=$k3env_shared/rank$k3env_rank
    for k3env_each in triton flashinfer hf_modules inductor torch_extensions cuda cute_dsl deep_gemm trtllm_deep_gemm \
        tilelang tvm_ffi; do
        if ! (umask 077 && mkdir -p "$k3env_own/$k3env_each"); then
            k3env_say "$k3env_own/$k3env_each can't be made; run 'invoke caches' on this node"
            return 1
        fi
    done
}

# Cubins are shared and filled beforehand, JIT is local. An empty directory would be worse than none: it hides those of
# the package flashinfer-cubin, and without a way out of the cluster a rank that has to fetch them hangs.
k3env_find_cubins() {
    if [ -n "${FLASHINFER_CUBIN_DIR:-}" ]; then
        return 0
    fi
    for k3env_each in "$k3env_repo/.k3env/cubins"/*; do
        if [ -e "$k3env_each" ]; then
            export FLASHINFER_CUBIN_DIR="$k3env_repo/.k3env/cubins"
            return 0
        fi
    done
    for k3env_each in "$k3env_venv"/lib/python3*/site-packages/flashinfer_cubin-*.dist-info; do
        if [ -d "$k3env_each" ]; then
            return 0
        fi
    done
    # Fetched once a node, under FlashInfer's own lock, instead of once a rank.
    export FLASHINFER_CUBIN_DIR="$k3env_shared/cubins"
}

k3env_export() {
    export TRITON_CACHE_DIR="$k3env_own/triton"
    export FLASHINFER_WORKSPACE_BASE="$k3env_own/flashinfer"
    export TRTLLM_FLASHINFER_WORKSPACE_PER_PROCESS=0 # its slots lie in the home directory, and are never removed
    export HF_MODULES_CACHE="$k3env_own/hf_modules"
    export TORCHINDUCTOR_CACHE_DIR="$k3env_own/inductor"
    export TORCH_EXTENSIONS_DIR="$k3env_own/torch_extensions"
    export CUDA_CACHE_PATH="$k3env_own/cuda"
    export CUTE_DSL_CACHE_DIR="$k3env_own/cute_dsl"
    export DG_JIT_CACHE_DIR="$k3env_own/deep_gemm"
    export TRTLLM_DG_CACHE_DIR="$k3env_own/trtllm_deep_gemm"
    export TILELANG_CACHE_DIR="$k3env_own/tilelang"
    export TVM_FFI_CACHE_DIR="$k3env_own/tvm_ffi"
    export PYTHONNOUSERSITE=1 # a mounted home directory brings another torch along
    export TLLM_LOG_LEVEL="${TLLM_LOG_LEVEL:-info}"
    case ${PATH:-}: in
    "$k3env_venv/bin:"*) ;;
    *) export PATH="$k3env_venv/bin${PATH:+:$PATH}" ;;
    esac
    case ${PYTHONPATH:-}: in
    "$k3env_repo:"*) ;;
    *) export PYTHONPATH="$k3env_repo${PYTHONPATH:+:$PYTHONPATH}" ;;
    esac
}

k3env_rank_env() {
    case $- in
    *f*) k3env_noglob=yes ;;
    *) k3env_noglob= ;;
    esac
    set +f
    k3env_limits && k3env_find_rank && k3env_find_base && k3env_find_venv && k3env_find_self &&
        k3env_find_fingerprint && k3env_make_dirs && k3env_find_cubins && k3env_export
}

k3env_forget() {
    if [ -n "$k3env_noglob" ]; then
        set -f
    fi
    unset k3env_repo k3env_base k3env_venv k3env_image k3env_open_files k3env_now k3env_rank k3env_count k3env_each \
        k3env_fingerprint k3env_shared k3env_own k3env_noglob k3env_self
    unset -f k3env_say k3env_limits k3env_find_rank k3env_find_base k3env_find_venv k3env_find_self \
        k3env_find_fingerprint k3env_make_dirs k3env_find_cubins k3env_export k3env_rank_env k3env_forget
}

if k3env_rank_env; then
    k3env_forget
else
    k3env_forget
    return 1
fi
""".replace("@MARK@\n", PROGRAM.lstrip())
