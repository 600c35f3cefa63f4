"""model.*: real files of a checkpoint in small, and configurations of the server."""

from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from k3env.k3 import recipes
from k3env.node import checks
from k3env.node.facts import Facts, model, read
from k3env.node.facts.model import CONFIG, INDEX
from k3env.node.machine import READ_BYTES, Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Model, Paths, Profile

TENSOR_BYTES = 64
SHARDS = [f"model-{number:05d}-of-000003.safetensors" for number in (1, 2, 3)]
IDENTITY = {
    "model_type": "kimi_k3",
    "architectures": ["KimiK3ForConditionalGeneration"],
    "auto_map": {"AutoConfig": "configuration_kimi_k3.KimiK3Config", "AutoModel": ["modeling_kimi_k3.X", None]},
    "text_config": {
        "num_hidden_layers": 93,
        "hidden_size": 7168,
        "vocab_size": 163840,
        "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
    },
}
DEP16 = {
    "tensor_parallel_size": 16,
    "moe_expert_parallel_size": 16,
    "enable_attention_dp": True,
    "max_batch_size": 32,
    "max_num_tokens": 8192,
    "max_seq_len": 8192,
    "trust_remote_code": True,
    "disable_overlap_scheduler": False,
    "enable_chunked_prefill": True,
    "cuda_graph_config": {"enable_padding": True, "max_batch_size": 32},
    "moe_config": {"max_num_tokens": 33024, "use_low_precision_moe_combine": True},
    "kv_cache_config": {"enable_block_reuse": False, "free_gpu_memory_fraction": 0.25, "tokens_per_block": 64},
}


def shard(path: Path, tensors: int = 1) -> None:
    """Write a safetensors file."""
    spans = {f"t{at}": {"dtype": "U8", "shape": [64], "data_offsets": [64 * at, 64 * at + 64]} for at in range(tensors)}
    header = json.dumps({"__metadata__": {"format": "pt"}, **spans}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (TENSOR_BYTES * tensors))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkpoint like Kimi K3's, its weights a few bytes."""
    root = tmp_path / "Kimi-K3"
    root.mkdir()
    (root / CONFIG).write_text(json.dumps(IDENTITY))
    for name in (*recipes.TOKENIZER, *recipes.REMOTE_CODE):
        (root / name).write_text("x")
    for name in SHARDS:
        shard(root / name)
    weights = {f"layer.{at}": name for at, name in enumerate(SHARDS)}
    (root / INDEX).write_text(json.dumps({"metadata": {"total_size": 3 * TENSOR_BYTES}, "weight_map": weights}))
    return root


def judged(id: str, profile: Profile, number: int = 0) -> Finding:
    """Read the facts of a check from real files, and judge."""
    (rule,) = checks.select((id,))
    return checks.judge(rule, Facts(Machine(number=number), profile).collect(rule.facts), profile)


def of(root: Path, **more: Any) -> Profile:
    return Profile(paths=Paths(checkpoint=str(root)), **more)


STATIC = ("model.identity", "model.complete", "model.files", "model.links", "model.links_in_container")


@pytest.mark.parametrize("id", [*STATIC, "model.readable"])
def test_a_whole_checkpoint_passes(root: Path, id: str) -> None:
    finding = judged(id, of(root))
    assert finding.status == "pass", finding
    assert judged(id, Profile()).status == "skip", "without a checkpoint in the play there is nothing to judge"


def test_the_index_of_another_size_is_told(root: Path) -> None:
    finding = judged("model.total", of(root))
    assert (finding.status, finding.expected) == ("warn", "1453.7 GiB, as moonshotai/Kimi-K3 has")


STAGED = {"kind": "models", "id": "someone/Kimi-K3-copy", "revision": "a" * 40, "files": [], "proven": {}, "format": 1}


@pytest.mark.parametrize(
    ("id", "file"),
    [("model.identity", CONFIG), ("model.complete", INDEX), ("model.total", ""), ("model.readable", "*.safetensors")],
)
def test_what_was_just_staged_is_not_advised_to_be_staged(root: Path, id: str, file: str) -> None:
    if file:
        for path in root.glob(file):
            path.unlink()
    else:
        index = json.loads((root / INDEX).read_text())
        (root / INDEX).write_text(json.dumps({"weight_map": index["weight_map"]}))
    before = judged(id, of(root))
    assert before.status in ("fail", "warn") and ("invoke stage" in (before.remedy or "")) is bool(file)
    (root / ".k3env").mkdir()
    (root / ".k3env/snapshot.json").write_text(json.dumps(STAGED))
    after = judged(id, of(root))
    assert "invoke stage" not in (after.remedy or "") and "someone/Kimi-K3-copy at aaaaaaaaaaaa" in (after.remedy or "")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def edit(key: str, value: Any) -> Any:
    def change(root: Path) -> None:
        values = json.loads((root / CONFIG).read_text())
        (values["text_config"] if key in values["text_config"] else values)[key] = value
        (root / CONFIG).write_text(json.dumps(values))

    return change


BROKEN = [
    ("no directory", "model.identity", lambda root: os.rename(root, f"{root}.away"), "fail", "no such file"),
    ("no directory", "model.complete", lambda root: os.rename(root, f"{root}.away"), "fail", "none"),
    ("another model", "model.identity", edit("model_type", "kimi_k2"), "fail", "model_type kimi_k2"),
    ("no architecture", "model.identity", edit("architectures", None), "fail", "architectures None"),
    ("a short one", "model.identity", edit("num_hidden_layers", 4), "fail", "num_hidden_layers 4"),
    ("no JSON", "model.identity", lambda root: (root / CONFIG).write_text("{"), "unknown", "is no JSON"),
    ("a list", "model.identity", lambda root: (root / CONFIG).write_text("[]"), "unknown", "holds no object"),
    ("no shard", "model.complete", lambda root: (root / SHARDS[1]).unlink(), "fail", f"{SHARDS[1]} missing"),
    ("a dangling link", "model.complete", lambda root: dangling(root / SHARDS[2]), "fail", f"{SHARDS[2]} missing"),
    ("a short shard", "model.complete", lambda root: cut(root / SHARDS[1]), "fail", "its header says"),
    ("a long shard", "model.complete", lambda root: grow(root / SHARDS[1]), "fail", "its header says"),
    ("an empty shard", "model.complete", lambda root: (root / SHARDS[1]).write_bytes(b""), "fail", "says nothing"),
    (
        "a pointer",
        "model.complete",
        lambda root: (root / SHARDS[0]).write_text("version https"),
        "fail",
        "says nothing",
    ),
    ("no index", "model.complete", lambda root: (root / INDEX).unlink(), "fail", "none"),
    ("a cut index", "model.complete", lambda root: cut(root / INDEX), "unknown", "is no index"),
    ("a strange index", "model.complete", lambda root: (root / INDEX).write_text("[1]"), "unknown", "is no index"),
    ("no tokenizer", "model.files", lambda root: (root / "tiktoken.model").unlink(), "fail", "tiktoken.model missing"),
    ("no code", "model.files", lambda root: (root / "modeling_kimi_k3.py").unlink(), "fail", "modeling_kimi_k3.py"),
    ("no weights", "model.readable", lambda root: [(root / n).unlink() for n in SHARDS], "fail", "no *.safetensors"),
]


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone")


@pytest.mark.parametrize(("name", "id", "broken", "status", "told"), BROKEN, ids=[f"{r[0]}-{r[1]}" for r in BROKEN])
def test_what_is_broken_is_told(root: Path, name: str, id: str, broken: Any, status: str, told: str) -> None:
    broken(root)
    finding = judged(id, of(root))
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding
    if status == "fail":
        assert finding.expected and finding.remedy and finding.evidence


def test_an_index_that_leads_elsewhere_is_not_followed(root: Path) -> None:
    (root / INDEX).write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    assert judged("model.complete", of(root)).status == "unknown"


def test_all_but_the_first_node_only_see_that_shards_are_there(root: Path) -> None:
    cut(root / SHARDS[1])
    assert judged("model.complete", of(root), number=0).status == "fail"
    (root / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"a": SHARDS[1]}}))
    finding = judged("model.complete", of(root), number=1)
    assert (finding.status, finding.message) == ("pass", "the first node of the job looks at their sizes and headers")


def test_fewer_bytes_than_the_index_tells_are_a_cut_copy(root: Path) -> None:
    index = json.loads((root / INDEX).read_text())
    index["metadata"]["total_size"] = 10**9
    (root / INDEX).write_text(json.dumps(index))
    finding = judged("model.complete", of(root))
    assert finding.status == "fail" and "at least 1000000000 bytes" in (finding.expected or "")
    assert judged("model.complete", of(root), number=1).status == "pass"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOENT])
def test_weights_that_can_not_be_read_are_a_failure(root: Path, number: int) -> None:
    class Refusing(Machine):
        def read(self, path: str, limit: int = READ_BYTES) -> bytes:
            if path.endswith(SHARDS[2]):
                raise OSError(number, os.strerror(number), path)
            return super().read(path, limit)

    (rule,) = checks.select(("model.readable",))
    finding = checks.judge(rule, Facts(Refusing(), of(root)).collect(rule.facts), of(root))
    assert (finding.status, finding.found) == ("fail", f"{SHARDS[2]}: {os.strerror(number)}") and finding.remedy
    (rule,) = checks.select(("model.read_speed",))
    assert checks.judge(rule, Facts(Refusing(), of(root)).collect(rule.facts), of(root)).status == "skip"


@pytest.mark.parametrize("broken", [lambda path: path.unlink(), lambda path: _dangle(path)], ids=["gone", "dangles"])
def test_every_node_misses_a_shard(root: Path, broken: Any) -> None:
    broken(root / SHARDS[1])
    finding = judged("model.complete", of(root), number=7)
    assert finding.status == "fail" and f"{SHARDS[1]} missing" in (finding.found or "")


def _dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/blobs/abc")


class Counting(Machine):
    """Counts what a file server would feel."""

    def __init__(self, number: int) -> None:
        super().__init__(number=number)
        self.calls = 0

    def stat(self, path: str, follow: bool = True) -> os.stat_result | None:
        self.calls += 1
        return super().stat(path, follow)

    def readlink(self, path: str) -> str | None:
        self.calls += 1
        return super().readlink(path)

    def realpath(self, path: str) -> str:
        self.calls += 1
        return super().realpath(path)


@pytest.mark.parametrize("linked", [False, True])
def test_all_but_the_first_node_spare_the_file_server(root: Path, linked: bool) -> None:
    names = [f"model-{number:05d}-of-000096.safetensors" for number in range(96)]
    for name in names:
        if linked:
            (root / name).symlink_to(SHARDS[0])
        else:
            shard(root / name)
    weights = {f"layer.{at}": name for at, name in enumerate(names)}
    (root / INDEX).write_text(json.dumps({"metadata": {"total_size": 96 * TENSOR_BYTES}, "weight_map": weights}))
    machine = Counting(number=1)
    for fact in (model.config, model.shards, model.files, model.sample):
        assert not isinstance(read(fact, machine, of(root)), Unreadable)
    assert machine.calls <= 50


@pytest.mark.parametrize(
    "header",
    [
        b'{"a": {"data_offsets": [0, Infinity]}}',
        b'{"a": {"data_offsets": [0, 1e999]}}',
        b'{"a": {"data_offsets": [0, NaN]}}',
        b"[" * 100_000,
        b"null",
    ],
    ids=["infinity", "large", "nan", "deep", "null"],
)
def test_a_header_that_says_nothing_is_that_shards_alone(root: Path, header: bytes) -> None:
    (root / SHARDS[1]).write_bytes(struct.pack("<Q", len(header)) + header)
    finding = judged("model.complete", of(root))
    assert finding.status == "fail" and SHARDS[1] in (finding.found or "") and SHARDS[0] not in (finding.found or "")


@pytest.mark.parametrize("name", [CONFIG, INDEX])
def test_json_without_an_end_of_its_depth_is_no_defect_of_ours(root: Path, name: str) -> None:
    (root / name).write_bytes(b"[" * 100_000)
    finding = judged("model.identity" if name == CONFIG else "model.complete", of(root))
    assert finding.status == "unknown" and "itself failed" not in finding.message and name in finding.message


def test_links_that_lead_off_the_filesystem(root: Path) -> None:
    other = Path("/dev/shm") / f"k3env-test-{os.getpid()}"
    shard(other)
    try:
        (root / SHARDS[0]).unlink()
        (root / SHARDS[0]).symlink_to(other)
        finding = judged("model.links", of(root))
        assert finding.status == "fail" and str(other) in (finding.found or "")
    finally:
        other.unlink()


def test_links_into_the_cache_of_the_hub_matter_in_a_container(root: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    os.rename(root / SHARDS[0], tmp_path / "blobs" / "abc")
    (root / SHARDS[0]).symlink_to("../blobs/abc")
    assert judged("model.links", of(root)).status == "pass"
    assert judged("model.links_in_container", of(root)).status == "pass"
    inside = of(root, container=Container(engine="enroot", image="/images/k3.sqsh"))
    finding = judged("model.links_in_container", inside)
    assert finding.status == "warn" and "blobs/abc" in (finding.found or "")


def test_slow_reading_is_a_warning(root: Path) -> None:
    assert judged("model.read_speed", of(root, model=Model(read_mib_per_s=1e12))).status == "warn"
    assert judged("model.read_speed", of(root, model=Model(read_mib_per_s=1e-9))).status == "pass"


def served(tmp_path: Path, id: str, values: Any, checkpoint: Path | None = None) -> Finding:
    path = tmp_path / "serve.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return judged(id, Profile(paths=Paths(serve_config=str(path), checkpoint=checkpoint and str(checkpoint))))


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in DEP16.items() if name != key}


KV = DEP16["kv_cache_config"]
SA = {"speculative_config": {"decoding_type": "SA"}, "max_batch_size": 8, "disable_overlap_scheduler": True}
SERVED: list[tuple[str, Any, str, str]] = [
    ("model.serve_config", DEP16, "pass", ""),
    ("model.serve_config", without("kv_cache_config"), "pass", ""),
    ("model.serve_config", without("trust_remote_code"), "pass", ""),
    ("model.serve_config", {}, "pass", ""),
    ("model.serve_config", {**DEP16, "kv_cache_config": {**KV, "tokens_per_block": 32}}, "fail", "tokens_per_block 32"),
    ("model.serve_config", {**DEP16, "trust_remote_code": False}, "fail", "trust_remote_code false"),
    ("model.serve_config", {**DEP16, "moe_expert_parallel_size": 6}, "fail", "moe_expert_parallel_size 6"),
    ("model.serve_config", {**DEP16, "moe_expert_parallel_size": 32}, "fail", "moe_expert_parallel_size 32"),
    ("model.serve_config", {**DEP16, "pipeline_parallel_size": 2}, "fail", "pipeline_parallel_size 2"),
    ("model.serve_config", {**DEP16, "tensor_parallel_size": "16 GPUs"}, "fail", "16 GPUs"),
    ("model.serve_config", {**DEP16, "tensor_parallel_size": 0}, "fail", "tensor_parallel_size 0"),
    ("model.serve_config", {**DEP16, "max_beam_width": 4}, "fail", "max_beam_width 4"),
    ("model.serve_config", {**DEP16, "backend": "tensorrt"}, "fail", "backend tensorrt"),
    ("model.serve_config", {**DEP16, "kv_cache_config": {"free_gpu_memory_fraction": 25}}, "fail", "fraction 25"),
    ("model.serve_config", {**DEP16, **SA, "enable_chunked_prefill": False}, "pass", ""),
    ("model.serve_config", {**DEP16, **SA}, "fail", "enable_chunked_prefill true"),
    ("model.serve_config", {**DEP16, **SA, "max_batch_size": 32}, "fail", "max_batch_size 32"),
    ("model.serve_config", {**DEP16, **SA, "max_batch_size": 9}, "fail", "max_batch_size 9"),
    ("model.serve_config", {**DEP16, "speculative_config": {"decoding_type": "DFlash"}}, "fail", "speculative_model"),
    ("model.serve_config", {**DEP16, "moe_config": {"backend": "MEGAMOE_CUTEDSL"}}, "pass", ""),
    (
        "model.serve_config",
        {**DEP16, "moe_config": {"backend": "MEGAMOE_CUTEDSL", "max_num_tokens": 1}},
        "fail",
        "max_num_tokens 1",
    ),
    ("model.serve_config", {**DEP16, "cache_transceiver_config": {"transceiver_runtime": "auto"}}, "fail", "auto"),
    ("model.serve_config", {**DEP16, "cache_transceiver_config": {"transceiver_runtime": "PYTHON"}}, "pass", ""),
    ("model.serve_config", "- a\n", "fail", "list"),
    ("model.serve_config", "a: &x 1\n", "unknown", "line 1"),
    ("model.serve_advice", DEP16, "pass", ""),
    ("model.serve_advice", {"kv_cache_config": {"enable_block_reuse": True}}, "warn", "not set"),
    (
        "model.serve_advice",
        {"kv_cache_config": {"enable_block_reuse": True, "mamba_state_config": {"periodic_snapshot_interval": 256}}},
        "pass",
        "",
    ),
    ("model.serve_advice", {"kv_cache_config": {"dtype": "fp8"}}, "warn", "fp8"),
    ("model.serve_advice", {**DEP16, "cuda_graph_config": {"max_batch_size": 8}}, "warn", "max_batch_size 8"),
    ("model.serve_advice", {**DEP16, "cuda_graph_config": None}, "pass", ""),
    ("model.serve_advice", {"cache_transceiver_config": {"kv_cache_bounce_size_mb": 512}}, "warn", "512"),
    ("model.recipe", DEP16, "pass", "dep16"),
    ("model.recipe", {**DEP16, "enable_attention_dp": False}, "pass", "tep16"),
    ("model.recipe", {"tensor_parallel_size": 8, "moe_expert_parallel_size": 8}, "pass", "tep8"),
    ("model.recipe", {"tensor_parallel_size": 4}, "warn", "4 ranks"),
    ("model.recipe", {}, "skip", ""),
]


@pytest.mark.parametrize(("id", "values", "status", "told"), SERVED)
def test_configurations(tmp_path: Path, id: str, values: Any, status: str, told: str) -> None:
    finding = served(tmp_path, id, values)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    profile = Profile(paths=Paths(serve_config=str(tmp_path / "none.yaml")))
    assert judged("model.serve_config", profile).status == "fail"
    assert judged("model.serve_advice", profile).status == "skip"


def test_an_nvfp4_checkpoint_wants_cutlass(tmp_path: Path, root: Path) -> None:
    edit("quantization_config", {"format": "nvfp4-pack-quantized"})(root)
    assert served(tmp_path, "model.serve_config", DEP16, root).status == "fail"
    right = {**DEP16, "moe_config": {"backend": "CUTLASS"}}
    assert served(tmp_path, "model.serve_config", right, root).status == "pass"


@pytest.mark.parametrize(
    ("attention_dp", "ranks", "value", "status"),
    [(False, 16, "1", "fail"), (False, 8, "1", "pass"), (True, 16, "1", "pass"), (False, 16, "0", "pass")],
)
def test_separated_routing_spoils_tep16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attention_dp: bool, ranks: int, value: str, status: str
) -> None:
    monkeypatch.setenv("TLLM_TRTLLMGEN_FORCE_SEPARATED_ROUTING", value)
    values = {"tensor_parallel_size": ranks, "enable_attention_dp": attention_dp}
    assert served(tmp_path, "model.switches", values).status == status


def test_every_check_passes_and_speaks_up_in_some_row() -> None:
    rules = {rule.id for rule in checks.select(("model.*",))}
    spoken = {row[1] for row in BROKEN} | {row[0] for row in SERVED if row[2] != "pass"}
    assert rules - spoken == {
        "model.total",
        "model.switches",
        "model.links",
        "model.links_in_container",
        "model.read_speed",
    }
    assert all(rule.doc for rule in checks.select(("model.*",)))


@pytest.mark.parametrize(("gib", "fitting"), [(277, {"dep16", "tep16", "tep8"}), (185, {"tep16"}), (140, {"tep16"})])
def test_what_fits_which_gpu(gib: float, fitting: set[str]) -> None:
    """GB300 takes all, GB200 only what spreads attention too."""
    assert {item.name for item in recipes.RECIPES if item.needs_gib <= gib} == fitting
