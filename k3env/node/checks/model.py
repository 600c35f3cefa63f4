"""What the checkpoint and the server's configuration must be."""

from __future__ import annotations

from typing import Optional

from k3env.k3 import recipes
from k3env.node.checks import check, fail, passed, skip
from k3env.node.checks._serve_rules import broken, doubtful
from k3env.node.facts.model import NAMED, Config, Files, Sample, Shards, config, files, sample, shards
from k3env.node.facts.serve import Serve, Switches, serve, switches
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

GIB = 1 << 30
TEP16_RANKS = recipes.named("tep16").ranks
SEPARATED = "TLLM_TRTLLMGEN_FORCE_SEPARATED_ROUTING"
NO_CHECKPOINT, NO_SERVE = "no checkpoint in this play", "no serve_config in this play"
STAGE = "invoke stage --tags checkpoint, on a host with egress; or set checkpoint to where it is"


@check("model.identity", config, scope="static", severity="fail")
def identity(config: Optional[Config], profile: Profile) -> Finding:
    """The checkpoint says that it is Kimi K3, whole."""
    wanted = recipes.CHECKPOINT
    if config is None:
        return skip(NO_CHECKPOINT)
    if not config.there:
        return fail(expected=f"{config.path}/config.json", found="no such file", remedy=_stage(config.staged))
    told, architectures = config.values.get("model_type"), config.values.get("architectures")
    if told != wanted.model_type or not isinstance(architectures, list) or wanted.architecture not in architectures:
        return fail(
            expected=f"model_type {wanted.model_type}, architecture {wanted.architecture}",
            found=f"model_type {told}, architectures {architectures}",
            remedy="set checkpoint to the directory of moonshotai/Kimi-K3",
            subject=config.path,
        )
    other = [(key, config.values.get(key), value) for key, value in wanted.text if config.values.get(key) != value]
    if other:
        return fail(
            expected=", ".join(f"{key} {value}" for key, _, value in other),
            found=", ".join(f"{key} {value}" for key, value, _ in other),
            remedy="this is another model, or one that was cut short for tests; set checkpoint to the whole one",
            subject=config.path,
        )
    return passed(f"{told}, {config.quantization or 'not quantized'}")


@check("model.complete", shards, scope="static", severity="fail")
def complete(shards: Optional[Shards], profile: Profile) -> Finding:
    """Every shard that the index names is there, as large as index and headers say."""
    if shards is None:
        return skip(NO_CHECKPOINT)
    if not shards.indexed:
        return fail(expected=f"an index of shards in {shards.path}", found="none", remedy=_stage(shards.staged))
    if shards.missing or shards.misfits:
        return fail(
            expected=f"{shards.indexed} shards, each as large as its header says",
            found="; ".join(filter(None, (_missing(shards.missing), _several(shards.misfits)))),
            remedy="copy these again: invoke stage --tags checkpoint, on a host with egress, goes on where it stopped",
            subject=shards.path,
        )
    if not shards.looked:
        return passed(f"{shards.indexed} shards", "the first node of the job looks at their sizes and headers")
    if shards.total_bytes is not None and shards.bytes_there < shards.total_bytes:
        return fail(
            expected=f"at least {shards.total_bytes} bytes in {shards.indexed} shards, as the index has it",
            found=f"{shards.bytes_there} bytes",
            remedy="stage it again: a copy was cut off",
            subject=shards.path,
        )
    told = f"{shards.indexed} shards, {shards.bytes_there / GIB:.1f} GiB"
    if shards.read < shards.indexed:
        return passed(told, f"there was time to look into the headers of {shards.read}")
    return passed(told)


@check("model.total", shards, scope="static", severity="warn")
def total(shards: Optional[Shards], profile: Profile) -> Finding:
    """The index tells of as many bytes as Kimi K3 has."""
    wanted = recipes.CHECKPOINT.total_bytes
    if shards is None or not shards.indexed:
        return skip(NO_CHECKPOINT if shards is None else "no index of shards")
    if shards.total_bytes is None:
        return fail(
            expected=f"{wanted / GIB:.1f} GiB, as moonshotai/Kimi-K3 has",
            found="no total_size in the index",
            remedy=f"that index is the one of {shards.staged}, which was staged: see whether that is the one to serve"
            if shards.staged
            else "compare the index with the hub's: another tool has written it; model.complete looks at the shards",
            subject=shards.path,
        )
    if shards.total_bytes != wanted:
        return fail(
            expected=f"{wanted / GIB:.1f} GiB, as moonshotai/Kimi-K3 has",
            found=f"{shards.total_bytes / GIB:.1f} GiB",
            remedy="see whether another quantization, or another revision, is what you want to serve",
            subject=shards.path,
        )
    return passed(f"{shards.total_bytes / GIB:.1f} GiB")


@check("model.files", files, scope="static", severity="fail")
def small_files(files: Optional[Files], profile: Profile) -> Finding:
    """Tokenizer and remote code are beside the weights."""
    if files is None:
        return skip(NO_CHECKPOINT)
    if files.missing:
        return fail(
            expected="tokenizer and remote code beside the weights",
            found=_missing(files.missing),
            remedy="copy these too: a filter for *.safetensors leaves them out",
            subject=files.path,
        )
    return passed("tokenizer and remote code are there")


@check("model.links", files, scope="static", severity="fail")
def links(files: Optional[Files], profile: Profile) -> Finding:
    """No link leads off the filesystem that the checkpoint is mounted from."""
    if files is None:
        return skip(NO_CHECKPOINT)
    if files.outside:
        return fail(
            expected="links that stay on the checkpoint's filesystem",
            found=_several(files.outside),
            remedy="mount where they lead in the container too, or copy the files: cp -rL",
            subject=files.path,
        )
    return passed("no link leads off it")


@check("model.links_in_container", files, scope="static", severity="warn")
def links_in_container(files: Optional[Files], profile: Profile) -> Finding:
    """A container that mounts only the checkpoint's directory finds all files in it."""
    if files is None or not files.beside:
        return skip(NO_CHECKPOINT) if files is None else passed("no link leads out of the directory")
    if profile.container.engine == "none":
        return passed(f"{len(files.beside)} links lead out of the directory", "no container is used")
    return fail(
        expected="files, not links, in the mounted directory",
        found=_several(files.beside),
        remedy="mount where the links lead too: of Hugging Face's cache models--…, not its snapshots/…",
        subject=files.path,
    )


@check("model.readable", sample, scope="node", severity="fail", contexts=("job", "login"))
def readable(sample: Optional[Sample], profile: Profile) -> Finding:
    """This node can read the weights."""
    if sample is None:
        return skip(NO_CHECKPOINT)
    if sample.refused is not None:
        return fail(
            expected="weights that who serves can read",
            found=sample.refused,
            remedy="see who owns them, and ls -lL of that file: chmod -R a+rX, or mount the filesystem again",
            subject=sample.path,
        )
    if sample.mib_per_s is None:
        return fail(expected=f"weights in {sample.path}", found="no *.safetensors", remedy=_stage(sample.staged))
    return passed(f"{sample.mib_per_s:.0f} MiB/s")


@check("model.read_speed", sample, scope="node", severity="warn", contexts=("job",))
def read_speed(sample: Optional[Sample], profile: Profile) -> Finding:
    """Reading is fast enough to load 1.5 TB before people give up."""
    wanted = profile.model.read_mib_per_s
    if sample is None or sample.mib_per_s is None:
        return skip(NO_CHECKPOINT if sample is None else "no weights")
    if sample.mib_per_s < wanted:
        return fail(
            expected=f"at least {wanted:g} MiB/s",
            found=f"{sample.mib_per_s:.1f} MiB/s",
            remedy="see who else loads the server, or stage the checkpoint to a disk of each node",
            subject=sample.path,
        )
    return passed(f"{sample.mib_per_s:.0f} MiB/s")


@check("model.serve_config", serve, config, scope="static", severity="fail")
def serve_config(serve: Optional[Serve], config: Optional[Config], profile: Profile) -> Finding:
    """Nothing in the server's configuration keeps Kimi K3 from being served, or makes its answers wrong."""
    if serve is None:
        return skip(NO_SERVE)
    if serve.missing:
        return fail(expected=serve.path, found="no such file", remedy="set serve_config to the YAML of trtllm-serve")
    if serve.problem:
        return fail(expected="a mapping", found=serve.problem, remedy="see the recipes in examples/kimi_k3")
    return _told(serve, broken(serve, config))


@check("model.serve_advice", serve, scope="static", severity="warn")
def serve_advice(serve: Optional[Serve], profile: Profile) -> Finding:
    """Nothing in the server's configuration has no effect, or costs speed."""
    if serve is None or serve.missing or serve.problem:
        return skip(NO_SERVE if serve is None else "see model.serve_config")
    return _told(serve, doubtful(serve))


@check("model.recipe", serve, scope="static", severity="warn")
def recipe(serve: Optional[Serve], profile: Profile) -> Finding:
    """The configuration is one of the recipes that were measured."""
    if serve is None or serve.missing or serve.problem:
        return skip(NO_SERVE if serve is None else "see model.serve_config")
    if serve.ranks is None:
        return skip("tensor_parallel_size stands on the command line of trtllm-serve")
    found = serve.recipe
    if found is None:
        attention = "data parallel" if serve.attention_dp else "not data parallel"
        return fail(
            expected=" or ".join(item.name for item in recipes.RECIPES),
            found=f"{serve.ranks} ranks, experts over {serve.experts}, attention {attention}",
            remedy="see the recipes in examples/kimi_k3; this one was not validated",
            subject=serve.path,
        )
    return passed(found.name)


@check("model.switches", serve, switches, scope="rank", severity="fail")
def rank_switches(serve: Optional[Serve], switches: Switches, profile: Profile) -> Finding:
    """No variable of the rank's environment spoils the answers of the recipe."""
    if not _is_on(switches.values.get(SEPARATED, "")):
        return passed(f"{SEPARATED} is not set")
    if serve is None or serve.missing or serve.problem or serve.ranks is None:
        return skip(f"{SEPARATED} is set; which recipe it is for can't be seen")
    if serve.ranks == TEP16_RANKS and serve.get("enable_attention_dp") is not True:
        return fail(
            expected=f"{SEPARATED} not set at tep16",
            found=f"{SEPARATED}={switches.values[SEPARATED]}",
            remedy=f"unset {SEPARATED}: with it, GSM8K falls to 94 %, and with KIMI_K3_FP8_WEIGHT_READ_GATE_UP to 9 %",
        )
    return passed(f"{SEPARATED}={switches.values[SEPARATED]}", "it belongs to tep8")


def _is_on(value: str) -> bool:
    return value not in ("", "0")


def _told(serve: Serve, problems: tuple[tuple[str, str, str], ...]) -> Finding:
    """Return all problems, each expected, found, and what to do, as one finding."""
    if not problems:
        return passed(serve.path)
    return fail(
        expected="; ".join(expected for expected, _, _ in problems),
        found="; ".join(found for _, found, _ in problems),
        remedy="; ".join(dict.fromkeys(remedy for _, _, remedy in problems)),
        subject=serve.path,
    )


def _missing(names: tuple[str, ...]) -> str:
    return f"{_several(names)} missing" if names else ""


def _several(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _stage(staged: str) -> str:
    """Return what to do where something lacks: to stage once more what was staged brings the same again."""
    if not staged:
        return STAGE
    return f"{staged} was staged there, and has none: see checkpoint_repo and checkpoint_revision, and what was removed"
