"""Weights and KV cache as vLLM and SGLang print them when they start.

`data/startup_logs.csv` has published starts. `settings` are those of the release that was started: the part of the
memory (`share`, or SGLang's `static`), tokens of an iteration and sequences at most, how its profiling run samples
(`sort`: whole rows are sorted; `none`: it does not), whether captured graphs are counted, whether the CUDA context is
counted as memory outside of PyTorch, and the kernels of four-bit experts where they are not what the chip takes.

`use` is `fit` where a constant of `serving/engine/engines.toml` was read off the row, `held` where none was, and `out` where
the source leaves out what decides the cache (`notes` says what).
"""

import statistics
from dataclasses import dataclass

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import Number
from dragonscale.serving.engine.engine import adjust
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import deploy
from tests.evidence.measured import by_id

GIB = 2.0**30
LOGS = by_id("startup_logs")
WEIGHTS = [name for name, row in LOGS.items() if row["weights_gib"] and row["use"] != "out"]
CACHES = [name for name, row in LOGS.items() if (row["kv_gib"] or row["kv_tokens"]) and row["use"] != "out"]

OUTSIDE = 1.4e8
"""Bytes outside of PyTorch on one GPU: 0.13 GiB in all starts of 0.11."""
CONTEXT = 4.8e8
GRAPHS = 4.8e8
LOGIT_BYTES = {"sort": 38.3, "triton": 22.0, "none": 6.0}


@dataclass(frozen=True)
class Start:
    """A start as predicted, and the cache that was printed, in GiB."""

    room: Capacity
    printed_gib: float | None

    @property
    def cache_gib(self) -> float:
        return number(self.room.cache) / GIB


def number(value: Number) -> float:
    return float(numpy.ravel(value)[0])


def start(name: str) -> Start:
    row = LOGS[name]
    said: dict[str, str] = {}
    for part in row["settings"].split():
        word, _, value = part.partition("=")
        said[word] = value
    piece, model = parse_slice(row["chips"]), load_model(row["model"])
    limits = LaunchLimits(
        max_seqs=int(said["seqs"]) if "seqs" in said else None,
        token_budget=int(said["tokens"]) if "tokens" in said else None,
        memory_fraction=float(said.get("share") or said["static"]),
    )
    engine = engine_on(row["engine"], piece.chip, model, limits)
    if row["engine"] == "vllm":
        reserve = OUTSIDE
        reserve += CONTEXT if said.get("context") == "yes" else 0.0
        reserve += GRAPHS if said["graphs"] == "yes" else 0.0
        memory = {
            "reserve_bytes": reserve,
            "logit_bytes": LOGIT_BYTES[said["sampler"]],
            "sampled_apart": said["sampler"] != "none",
            "expert_kernels": said.get("kernels", ""),
        }
        engine = adjust(engine, memory=memory)
    room = capacity(deploy(model, piece, row["plan"], engine))
    if row["kv_gib"]:
        return Start(room, float(row["kv_gib"]))
    if row["kv_tokens"]:
        return Start(room, float(row["kv_tokens"]) * number(room.per_token) / GIB)
    return Start(room, None)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_take_what_the_log_says(name: str) -> None:
    """Within 1%, or the tables of rotary embeddings and the like, which are 0.15 GiB at most."""
    printed = float(LOGS[name]["weights_gib"])
    assert number(start(name).room.weights) / GIB == pytest.approx(printed, rel=0.01, abs=0.2)


def test_the_cache_is_as_large_as_engines_print() -> None:
    """Half of the starts within 1%, nine of ten within 5% of the cache or half a GiB."""
    apart: dict[str, float] = {}
    errors: dict[str, float] = {}
    for name in CACHES:
        begun = start(name)
        printed = begun.printed_gib
        assert printed is not None
        apart[name] = begun.cache_gib - printed
        if printed > 0:
            errors[name] = abs(apart[name]) / printed
    assert statistics.median(errors.values()) < 0.01
    close = [name for name, gap in apart.items() if abs(gap) < 0.5 or errors[name] < 0.05]
    assert len(close) >= 0.9 * len(apart), sorted(set(apart) - set(close))
    held = [error for name, error in errors.items() if LOGS[name]["use"] == "held"]
    assert statistics.median(held) < 0.03
    assert max(held) < 0.15


def test_what_did_not_start_has_no_cache() -> None:
    for name in CACHES:
        printed = start(name).printed_gib
        if printed is not None and printed < 0:
            assert start(name).cache_gib < 0, name


def test_tokens_of_the_cache_with_the_defaults_of_today() -> None:
    """The two that need no setting of an older release: 22,096 and 367,404 tokens."""
    for name, engine, share in (
        ("vllm-12569-llama31-70b-w8a8", "vllm", 0.98),
        ("sglang-21348-qwen3-235b-tp4", "sglang", 0.93),
    ):
        row = LOGS[name]
        piece, model = parse_slice(row["chips"]), load_model(row["model"])
        launched = engine_on(engine, piece.chip, model, LaunchLimits(memory_fraction=share))
        tokens = number(capacity(deploy(model, piece, row["plan"], launched)).tokens)
        assert tokens == pytest.approx(float(row["kv_tokens"]), rel=0.04)


@pytest.mark.parametrize(
    ("on", "kernels", "gib"),
    [("h100:1", "", 64.38), ("h100:1", "marlin", 65.97), ("a100:1", "", 65.97)],
)
def test_layouts_of_four_bit_experts(on: str, kernels: str, gib: float) -> None:
    piece, model = parse_slice(on), load_model("gpt-oss-120b")
    plan = "weights=mxfp4,compute=bf16,attention=bf16"
    engine = adjust(engine_on("vllm", piece.chip, model), memory={"expert_kernels": kernels})
    assert number(capacity(deploy(model, piece, plan, engine)).weights) / GIB == pytest.approx(gib, rel=0.005)


def test_each_ranks_part_of_experts_is_filled_up() -> None:
    """Eight ways leave 360 of 2,880 columns to a rank; Marlin's kernels take 384, and 3,072 of the hidden dim."""
    model, plan = load_model("gpt-oss-120b"), "tensor=8,weights=mxfp4,compute=bf16,attention=bf16"
    engine = engine_on("vllm", parse_slice("a100:8").chip, model)
    padded = capacity(deploy(model, "a100:8", plan, engine)).weights
    plain = capacity(deploy(model, "a100:8", plan, adjust(engine, memory={"expert_kernels": "none"}))).weights
    values = 36 * 128 * 3 * 2880 * 360 * 0.53125
    assert number(padded) - number(plain) == pytest.approx(values * (384 / 360 * 3072 / 2880 - 1), rel=1e-6)
