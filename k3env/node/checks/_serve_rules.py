"""What a configuration of trtllm-serve must and should say for Kimi K3.

Source: examples/kimi_k3 of TensorRT LLM (README, the evaluation's and the sweep's configurations, disagg) and its
deployment guide. What a configuration leaves out, the command line or a default says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from k3env.k3 import recipes
from k3env.node.facts.model import Config
from k3env.node.facts.serve import Serve

Problem = tuple[str, str, str]
"""What was expected, what was found, what to do."""


BOUNCE_MIB = 1024
"""A request of 8k tokens takes 649 MiB: 433 of state, 27 KB a token. Source: examples/kimi_k3/disagg."""


def broken(serve: Serve, config: Optional[Config]) -> tuple[Problem, ...]:
    """Return what keeps Kimi K3 from being served, or makes its answers wrong."""
    quantization = (config.quantization if config is not None else None) or ""
    return tuple(
        problem
        for rule in (_plain, _parallel, _batches, _speculation, _experts, _disaggregated)
        for problem in rule(serve, quantization.lower())
    )


def doubtful(serve: Serve) -> tuple[Problem, ...]:
    """Return what has no effect, or costs speed."""
    return tuple(problem for rule in (_reuse, _graphs) for problem in rule(serve))


def _plain(serve: Serve, quantization: str) -> Iterator[Problem]:
    blocks = serve.get("kv_cache_config", "tokens_per_block")
    if blocks not in (None, recipes.TOKENS_PER_BLOCK):
        yield _problem("kv_cache_config.tokens_per_block", recipes.TOKENS_PER_BLOCK, blocks, "set it, or leave it out")
    if serve.get("trust_remote_code") not in (None, True):
        yield _problem("trust_remote_code", True, serve.get("trust_remote_code"), "the tokenizer is remote code")
    if serve.get("max_beam_width") not in (None, 1):
        yield _problem("max_beam_width", 1, serve.get("max_beam_width"), "beams are not supported")
    backend = serve.get("backend")
    if backend not in (None, "pytorch"):
        yield _problem("backend", "pytorch", backend, "Kimi K3 has no other backend")


def _parallel(serve: Serve, quantization: str) -> Iterator[Problem]:
    for key in ("tensor_parallel_size", "moe_expert_parallel_size", "pipeline_parallel_size"):
        value = serve.get(key)
        if value is not None and (serve.number(key) is None or int(value) < 1):
            yield _problem(key, "a whole number above 0", value, "count ranks")
    ranks, experts = serve.ranks, serve.number("moe_expert_parallel_size")
    if (serve.number("pipeline_parallel_size") or 1) > 1:
        found = serve.get("pipeline_parallel_size")
        yield _problem("pipeline_parallel_size", 1, found, "Kimi K3 is not split by layers")
    if experts is not None and experts > 0 and recipes.EXPERTS % experts:
        yield _problem("moe_expert_parallel_size", f"a divisor of {recipes.EXPERTS}", experts, "take 8 or 16")
    if ranks is not None and experts is not None and experts > ranks > 0:
        yield _problem("moe_expert_parallel_size", f"at most tensor_parallel_size {ranks}", experts, "take as many")


def _batches(serve: Serve, quantization: str) -> Iterator[Problem]:
    for key in ("max_batch_size", "max_num_tokens", "max_seq_len"):
        value = serve.get(key)
        if value is not None and (serve.number(key) is None or int(value) < 1):
            yield _problem(key, "a whole number above 0", value, "see the recipe's")
    fraction = serve.get("kv_cache_config", "free_gpu_memory_fraction")
    fits = isinstance(fraction, (int, float)) and 0 < fraction < 1
    if fraction is not None and not fits:
        yield _problem("kv_cache_config.free_gpu_memory_fraction", "between 0 and 1", fraction, "the guide has 0.25")


def _speculation(serve: Serve, quantization: str) -> Iterator[Problem]:
    kind = serve.get("speculative_config", "decoding_type")
    if kind not in ("SA", "DFlash"):
        return
    batch = serve.number("max_batch_size")
    if batch is not None and batch > recipes.SA_BATCH:
        yield _problem("max_batch_size", f"at most {recipes.SA_BATCH} with {kind}", batch, "lower it")
    if serve.get("disable_overlap_scheduler") is not True:
        found = serve.get("disable_overlap_scheduler")
        yield _problem("disable_overlap_scheduler", f"true with {kind}", found, "set it to true")
    if kind == "SA" and serve.get("enable_chunked_prefill") is True:
        yield _problem("enable_chunked_prefill", "false with SA", True, "set it to false")
    if kind == "DFlash" and not serve.get("speculative_config", "speculative_model"):
        yield _problem("speculative_config.speculative_model", "a path with DFlash", None, "name the drafter")


def _experts(serve: Serve, quantization: str) -> Iterator[Problem]:
    backend, tokens = serve.get("moe_config", "backend"), serve.get("moe_config", "max_num_tokens")
    if backend == "MEGAMOE_CUTEDSL" and tokens is not None:
        yield _problem("moe_config.max_num_tokens", "absent with MEGAMOE_CUTEDSL", tokens, "leave it out")
    if "nvfp4" in quantization and backend != "CUTLASS":
        remedy = "set it: AUTO takes TRTLLM, whose kernels for this activation are MXFP4's alone"
        yield _problem("moe_config.backend", "CUTLASS for an NVFP4 checkpoint", backend, remedy)


def _disaggregated(serve: Serve, quantization: str) -> Iterator[Problem]:
    transceiver = serve.get("cache_transceiver_config")
    if not isinstance(transceiver, dict) or not transceiver:
        return
    runtime = transceiver.get("transceiver_runtime")
    if runtime != "PYTHON":
        remedy = "set it: the C++ transceiver refuses Kimi K3's cache manager"
        yield _problem("cache_transceiver_config.transceiver_runtime", "PYTHON", runtime, remedy)
    if serve.get("trust_remote_code") is None:
        remedy = "without it each request with a text ends in HTTP 400"
        yield _problem("trust_remote_code", "true on disaggregated servers", None, remedy)


def _reuse(serve: Serve) -> Iterator[Problem]:
    interval = serve.get("kv_cache_config", "mamba_state_config", "periodic_snapshot_interval")
    if serve.get("kv_cache_config", "enable_block_reuse") is True and not interval:
        key = "kv_cache_config.mamba_state_config.periodic_snapshot_interval"
        yield _problem(key, "such as 256, with enable_block_reuse", interval, "without it nothing is reused")
    dtype = serve.get("kv_cache_config", "dtype")
    if isinstance(dtype, str) and "fp8" in dtype.lower():
        yield _problem("kv_cache_config.dtype", "auto", dtype, "the README of Kimi K3 does not support FP8 here")


def _graphs(serve: Serve) -> Iterator[Problem]:
    graphs, batch = serve.number("cuda_graph_config", "max_batch_size"), serve.number("max_batch_size")
    if graphs is not None and batch is not None and graphs != batch:
        remedy = "larger batches run without graphs, smaller ones leave graphs unused"
        yield _problem("cuda_graph_config.max_batch_size", f"max_batch_size {batch}", graphs, remedy)
    bounce = serve.number("cache_transceiver_config", "kv_cache_bounce_size_mb")
    if bounce is not None and bounce < BOUNCE_MIB:
        remedy = "one request does not fit, and goes at 0.4 GB/s, without a word"
        yield _problem("cache_transceiver_config.kv_cache_bounce_size_mb", f"at least {BOUNCE_MIB}", bounce, remedy)


def _problem(key: str, expected: object, found: object, remedy: str) -> Problem:
    return (f"{key} {_shown(expected)}", f"{key} {_shown(found)}", f"{key}: {remedy}")


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
