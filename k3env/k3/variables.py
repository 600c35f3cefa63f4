"""The variables of the shipped plays: names, types, defaults, and where each default comes from."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Optional, Union

from k3env.k3.build import MAX_JOBS, arch_problem
from k3env.protocol.container import Container
from k3env.protocol.egress import Egress

GUIDE = "TensorRT LLM's deployment guide for Kimi K3"
SITE = "the site decides"
OURS = "k3env"
HUB = "Hugging Face's hub, as of 2026-09"

_AUTO = "auto"
_REFERRED_TO = "secret"
"""What validation sees in the place of a secret."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""The name of one host, and no pattern."""
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?")
"""A user's name as passwd(5), Samba and sssd allow it, also with a domain; sudo must not take it for an option."""
_GIT_URL = re.compile(r"(?:https?|ssh|git|file)://(?!-)[^\s;#\x00-\x1f\x7f]+")
"""A repository as it stands in a requirement: pip takes no path and no user@host:path; `;` begins a marker."""
_DOTTED = re.compile(r"[0-9]+(\.[0-9]+)*")


def _variable(default: Any, source: str, give: str = "") -> Any:
    """Declare a variable; one with `give`, an example of its value, has no default and must be given to be used."""
    return field(default=default, metadata={"source": source, "give": give})


@dataclass(frozen=True)
class Variables:
    """What the shipped plays can be told, by inventory, play or --extra-vars."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "use_attribute_docstrings": True}
    SECRETS: ClassVar[tuple[str, ...]] = ("egress", "hf_token", "image_credentials")

    trtllm_repo: Optional[str] = _variable(None, SITE, give="/shared/TensorRT-LLM")
    """Absolute path of the TensorRT LLM checkout, the same on every node and in the container."""
    trtllm_url: str = _variable("https://github.com/NVIDIA/TensorRT-LLM.git", "the public repository")
    """Git repository of TensorRT LLM; a mirror, for nodes without the internet."""
    trtllm_commit: Optional[str] = _variable(None, SITE, give="0123456789abcdef0123456789abcdef01234567")
    """Full commit of TensorRT LLM, 40 hexadecimal digits."""
    trtllm_arch: str = _variable("103-real", f"{GUIDE}: GB300; B200 and GB200 want 100-real")
    """Architectures that TensorRT LLM is built for, as build_wheel.py takes them."""
    trtllm_jobs: Union[int, Literal["auto"]] = _variable("auto", OURS)
    """Compilers at a time, at most 4096; auto: by the CPUs and the memory of the building node."""
    trtllm_build_root: Optional[str] = _variable(None, OURS)
    """Directory on the building node's own disk for what is compiled; unset: cpp/build in the checkout."""
    trtllm_on_login_node: bool = _variable(False, OURS)
    """Build also where Slurm is configured and no slurmd runs, as on a login node or a host that only builds."""
    trtllm_venv: str = _variable("auto", "scripts/build_wheel.py: .venv-X.Y in the checkout")
    """Path of the virtual environment; auto: found in the checkout by the interpreter."""
    flashinfer_step: Literal["auto", "fork", "pin", "none"] = _variable("auto", GUIDE)
    """FlashInfer: fork installs flashinfer_commit, auto does where the checkout asks for it, none leaves it alone;
    pin keeps what requirements.txt pins, which the build installs, and checks it.
    """
    flashinfer_url: str = _variable("https://github.com/PerkzZheng/flashinfer-k3.git", GUIDE)
    """Git repository of the FlashInfer that Kimi K3 uses; or a mirror."""
    flashinfer_commit: str = _variable("b6cc594918baf76c40c3a6236fd53f0f8fb9d2dc", GUIDE)
    """Full commit of that FlashInfer."""
    fla_core_version: Optional[str] = _variable(None, f"{GUIDE} names no version")
    """Exact version of fla-core; unset: any."""
    einops_version: Optional[str] = _variable(None, f"{GUIDE} names no version")
    """Exact version of einops; unset: any."""
    driver_min: Union[str, int] = _variable("580", f"{GUIDE}: CUDA driver 580 or later")
    """Lowest NVIDIA driver, compared number by number."""
    gpus_per_node: int = _variable(4, f"{GUIDE}: four GPUs in a node")
    """GPUs that each node must have."""
    # /tmp is cleaned by age, and private in a container; /var/tmp is local and outlives a reboot. Users of one node
    # must not meet in one directory, and no uid is known where plans are made, so the name has the user's.
    cache_base: str = _variable("/var/tmp/k3env-cache-{{ k3_user or connecting_user }}", OURS)  # noqa: S108
    """Absolute path of the node-local base of all caches, or `~/…`; the ranks' containers mount it."""
    checkpoint: Optional[str] = _variable(None, SITE)
    """Path of the Kimi K3 checkpoint."""
    checkpoint_repo: str = _variable("moonshotai/Kimi-K3", HUB)
    """The model on Hugging Face's hub that `invoke stage` puts at checkpoint."""
    checkpoint_revision: str = _variable("9f62e4e9fffbd0a83ddd60e1c209d828994b3569", HUB)
    """Its full commit."""
    image_source: Optional[str] = _variable(None, SITE)
    """What `invoke stage` imports into the .sqsh file that container names: docker://[USER@][REGISTRY#]IMAGE[:TAG]."""
    image_arch: Literal["aarch64", "x86_64"] = _variable("aarch64", "Grace, the CPU of GB300 and GB200 trays")
    """CPUs that this image is for: of the nodes, not of the host that imports it."""
    image_sha256: Optional[str] = _variable(None, SITE)
    """SHA-256 of a .sqsh file that was imported elsewhere and carried to where container names it: it is compared once,
    and nothing is imported."""
    image_credentials: Optional[str] = _variable(None, SITE)
    """Lines as in enroot's .credentials, as a reference: `{secret: file:PATH}`; unset: the user's own file."""
    cubins_source: Optional[str] = _variable(None, "FlashInfer's own server")
    """From where `invoke stage` fills FlashInfer's cubins: a mirror's URL, or the path of a directory or .tar file."""
    dataset: Optional[str] = _variable(None, SITE)
    """Directory that `invoke stage` puts the data set of the evaluation in; trtllm-eval's --dataset_path."""
    dataset_repo: str = _variable("openai/gsm8k", HUB)
    """The data set on Hugging Face's hub."""
    dataset_revision: str = _variable("e53f048856ff4f594e959d75785d2c2d37b678ee", HUB)
    """Its full commit."""
    hf_endpoint: Optional[str] = _variable(None, SITE)
    """URL of a mirror of Hugging Face's hub; unset: the node's HF_ENDPOINT, else the hub itself."""
    hf_token: Optional[str] = _variable(None, SITE)
    """A token for the hub, as a reference: `{secret: env:HF_TOKEN}`; unset: the node's HF_TOKEN, else none."""
    serve_config: Optional[str] = _variable(None, SITE)
    """Path of the YAML file that trtllm-serve gets."""
    container: Optional[Container] = _variable(None, OURS)
    """Image in which the checkout's Python runs; unset: on the node itself."""
    builder: Optional[str] = _variable(None, OURS)
    """The one host that builds, of the play or elsewhere in the inventory: it goes first, and when it has finished well
    the others are contacted; also with --limit. Unset: the first that needs a build makes it, and the others wait.
    """
    egress: Optional[Egress] = _variable(None, SITE)
    """Proxies, certificates and package index of the nodes: https_proxy, http_proxy, no_proxy, ca, index_url,
    extra_index_url, netrc. Every command gets them in its environment, also as another user and in containers.
    """
    offline_dir: Optional[str] = _variable(None, SITE)
    """Absolute path on the nodes of what `invoke fetch` has made: wheels, git mirrors, sources. Where it is set, pip
    and git use nothing else; containers see it.
    """
    k3_user: Optional[str] = _variable(None, OURS)
    """Owner of checkout, virtual environment and caches; unset: the connecting user."""
    k3env_state_dir: Optional[str] = _variable(None, OURS)
    """Absolute path of k3env's own directory on a node; unset: /var/tmp/k3env-UID."""

    def __post_init__(self) -> None:
        for name in ("trtllm_commit", "flashinfer_commit", "checkpoint_revision", "dataset_revision"):
            value = getattr(self, name)
            if value is not None and not _COMMIT.fullmatch(value):
                raise ValueError(f"{name} must be a full commit, 40 hexadecimal digits, found {value!r}")
        if self.k3_user is not None and not _USER.fullmatch(self.k3_user):
            raise ValueError(f"k3_user must be the name of a user, found {self.k3_user!r}")
        if not _GIT_URL.fullmatch(self.flashinfer_url):
            raise ValueError(
                "flashinfer_url must be an https, ssh, git or file URL, as pip takes it, found "
                + repr(self.flashinfer_url)
            )
        for name in (
            "trtllm_repo",
            "trtllm_build_root",
            "trtllm_venv",
            "cache_base",
            "checkpoint",
            "dataset",
            "serve_config",
            "offline_dir",
            "k3env_state_dir",
        ):
            _check_path(name, getattr(self, name))
        whole = (name for name in self.SECRETS if name != "egress")
        open_one = next((name for name in whole if getattr(self, name) not in (None, _REFERRED_TO)), None)
        if open_one is not None:
            raise ValueError(
                f"{open_one} must be a reference, {{secret: env:NAME}}, file:PATH or prompt, in the inventory or in"
                " what --extra-vars @FILE names: anything else would be seen in plans and files"
            )
        for name in ("fla_core_version", "einops_version"):
            _check_version(name, getattr(self, name))
        if not _DOTTED.fullmatch(str(self.driver_min)):
            raise ValueError(f"driver_min must be a dotted number such as 580 or 580.105.08, found {self.driver_min!r}")
        for name in ("gpus_per_node", "trtllm_jobs"):
            value = getattr(self, name)
            if value != _AUTO and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if isinstance(self.trtllm_jobs, int) and self.trtllm_jobs > MAX_JOBS:
            raise ValueError(f"trtllm_jobs must be at most {MAX_JOBS}, found {self.trtllm_jobs}; or auto")
        problem = arch_problem(self.trtllm_arch)
        if problem is not None:
            raise ValueError(f"trtllm_arch: {problem}")
        if self.builder is not None and not HOST.fullmatch(self.builder):
            raise ValueError(f"builder must be the name of one host, found {self.builder!r}")


def _check_path(name: str, path: Optional[str]) -> None:
    """Raise ValueError for a path that means something else in each directory; a cache base may be in the home."""
    if path is None or (name, path) == ("trtllm_venv", _AUTO):
        return
    if any(char < " " or char == "\x7f" for char in path):
        raise ValueError(f"{name} must hold no line end and no other control character, found {path!r}")
    if path.startswith("/"):
        if not path.strip("/"):
            raise ValueError(f"{name} must be a path below /, found {path!r}")
        return
    if name != "cache_base":
        raise ValueError(f"{name} must be an absolute path, found {path!r}")
    if not path.startswith("~/"):
        raise ValueError(f"{name} must be an absolute path, or begin with ~/, found {path!r}")


def _check_version(name: str, version: Optional[str]) -> None:
    from packaging.version import InvalidVersion, Version

    try:
        Version(version or "0")
    except InvalidVersion:
        raise ValueError(f"{name} must be a version such as 0.8.1, found {version!r}") from None


def names() -> tuple[str, ...]:
    """Return the names of all variables."""
    return tuple(item.name for item in dataclasses.fields(Variables))


def defaults() -> dict[str, Any]:
    """Return the defaults, without the variables that must be given."""
    return {item.name: item.default for item in dataclasses.fields(Variables) if not item.metadata["give"]}


def remedies() -> dict[str, str]:
    """Return, for each variable without a default, how to give it."""
    return {
        item.name: f"set it in the inventory, or --extra-vars {item.name}={item.metadata['give']}"
        for item in dataclasses.fields(Variables)
        if item.metadata["give"]
    }


def sources() -> dict[str, str]:
    """Return where each default comes from."""
    return {item.name: item.metadata["source"] for item in dataclasses.fields(Variables)}
