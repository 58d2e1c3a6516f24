"""What a row of measured inference runs means: model, slice, plan, engine, how requests came, and what was measured.

Conventions of the sources: `output_tok_s_total` counts all chips of a run and `output_tok_s_per_chip` one of them;
`batch` is the number of sequences in the whole run (also where attention is split by batch), except that a serving row
of JetStream states its decode slots there; a TPU7x chip is two JAX devices, so `tp` counts devices; `attention-DP` in the
notes means that `tp` chips each serve their own sequences and share only the experts. A row that lacks what a prediction
needs raises `Skip` with the reason; what could be assumed is named in `assumed`.
"""

import re
from dataclasses import dataclass

from dragonscale.evidence.collective_case import Skip, count, identity
from dragonscale.evidence.inference_choices import SHAREGPT, Target, target_of
from dragonscale.evidence.inference_model import dtypes_of, plan_of, served_model
from dragonscale.evidence.interconnect import read_wires
from dragonscale.evidence.score import number
from dragonscale.evidence.training_model import Row
from dragonscale.evidence.training_rows import chip_of, slice_of
from dragonscale.hardware import Slice
from dragonscale.models.transformer import Transformer
from dragonscale.serving.plan import ServingPlan

COLUMNS = (
    "chip", "source", "n_chips", "interconnect", "model", "layers", "d_model", "d_ff", "n_heads", "n_kv_heads", "head_dim",
    "vocab", "experts", "topk", "shared_experts", "moe_d_ff", "dense_layers", "gated_mlp", "attention", "mla",
    "weight_dtype", "act_dtype", "kv_dtype", "tp", "pp", "ep", "dp", "scenario", "batch", "concurrency", "isl", "osl",
    "total_latency_s", "ttft_ms", "tpot_ms", "output_tok_s_total", "output_tok_s_per_chip", "input_tok_s_total",
    "input_tok_s_per_chip", "notes",
)  # fmt: skip

ENGINES = (
    (r"FasterTransformer", "fastertransformer"),
    (r"(?i)vllm", "vllm"),
    (r"TensorRT-LLM.*(?:v1\.\d|v0\.(?:1[89]|2\d))|mlcommons", "trtllm"),
    (r"TensorRT-LLM.*v0\.[0-5]\b", "trtllm-0.5"),
    (r"TensorRT-LLM.*v0\.[6-9]a?\b", "trtllm-0.9"),
    (r"TensorRT-LLM", "trtllm-0"),
    (r"lm-sys", "sglang-ep"),
    (r"(?i)jetstream", "jetstream"),
    (r"Pope et al", "pax"),
    (r"deepseek-ai", "sglang-ep"),
)  # fmt: skip
"""Which engine a source ran, by a pattern of its name; the first that fits. TensorRT-LLM's PyTorch engine is the one of
its releases from 0.18 on, and the one of submissions to MLPerf since then."""

LATENCIES = ("static_batch", "prefill_only", "decode_only")
RATES = (
    "prefill_throughput", "decode_throughput", "max_throughput", "serving", "mlperf_offline", "mlperf_server",
    "mlperf_interactive",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A measured run in the model's terms. `measured` is seconds for latencies and tokens per second of the whole run for
    rates. `plan` is None where the source does not say how the model was split and the planner must choose. `prompt` and
    `output` are mean lengths; `spread` is the half-width of their uniform distribution as a part of the mean. `slots` caps
    the sequences decoded at once, `cache_length` is the fixed length of every slot's cache, `clients` the requests in
    flight, `requests` how many there were in all; 0 where not stated. `memory` is the bytes in use on a chip."""

    id: str
    source: str
    scenario: str
    engine: str
    model: Transformer
    piece: Slice
    plan: ServingPlan | None
    dtypes: tuple[str, str, str]
    batch: int
    prompt: int
    output: int
    measured: float
    clients: int = 0
    requests: int = 0
    slots: int = 0
    cache_length: int = 0
    spread: float = 0.0
    tokens_per_pass: int = 0
    target: Target | None = None
    overlapped: bool = False
    transport: str = "ib"
    memory: float | None = None
    assumed: tuple[str, ...] = ()

    @property
    def is_rate(self) -> bool:
        """Whether tokens per second were measured, not seconds."""
        return self.scenario in RATES


def case_of(row: Row, place: int) -> Case:
    """A row as a case."""
    scenario = row["scenario"]
    if scenario not in LATENCIES + RATES:
        raise Skip(f"no model of the scenario {scenario[:40]!r}" if scenario else "scenario not stated")
    alone = scenario in LATENCIES and count(row, "n_chips") == 1
    engine, guessed = engine_of(row["source"], row["notes"], alone)
    if engine == "trtllm" and scenario in RATES:
        engine = "trtllm-bench"  # measured for throughput by its own program, with no server in front
    model = served_model(row)
    chips = _needed(row, "n_chips")
    dtypes = dtypes_of(row)
    plan, assumed = plan_of(row, chips, dtypes, scenario in LATENCIES)
    chip = chip_of(row)
    prompt, output, more = _lengths(row)
    if "SUSPECT" in row["notes"]:
        raise Skip("the source's labels are suspected to be wrong")
    if "cache hits" in row["notes"] or "cache_hits" in row["notes"]:
        raise Skip("throughput includes prompts found in a cache")
    notes = row["notes"]
    return Case(
        id=identity(row, place),
        source=row["source"],
        scenario=scenario,
        engine=engine,
        model=model,
        piece=slice_of(row, chip, chips),
        plan=plan,
        dtypes=dtypes,
        batch=_batch(row),
        prompt=prompt,
        output=output,
        measured=_measured(row, chips),
        clients=count(row, "concurrency") or 0,
        requests=_noted(notes, r"(\d+) prompts"),
        slots=(count(row, "batch") or 0) if scenario == "serving" and engine == "jetstream" else 0,
        cache_length=_noted(notes, r"cache length (\d+)"),
        spread=float(found[1]) if (found := re.search(r"range[- ]ratio (\d?\.\d+)", notes)) else 0.0,
        tokens_per_pass=_noted(notes, r"(\d+) tokens per device per batch"),
        target=target_of(row["model"], scenario),
        overlapped="batch overlap" in notes,
        transport=read_wires(row["interconnect"]).transport or "ib",
        memory=(number(row.get("mem_gb")) or 0.0) * 1e9 or None,
        assumed=(*guessed, *assumed, *more),
    )


def _needed(row: Row, column: str) -> int:
    found = count(row, column)
    if not found:
        raise Skip(f"{column} not stated")
    return found


def _noted(notes: str, pattern: str) -> int:
    found = re.search(pattern, notes)
    return int(found[1]) if found else 0


SCRIPTS = (
    (r"(?i)\btorch.*(?:compile|inductor|fused|triton)", "torch-compiled"),
    (r"(?i)\bjax\b|\bxla\b", "jax"),
    (r"(?i)\b(?:py)?torch\b.*\beager|\beager\b.*torch", "torch-eager"),
    (r"(?i)torch", "torch"),
)  # fmt: skip
"""Somebody's own loop, by what source and notes say: pointwise work compiled, one operation after the other, or nothing."""


def engine_of(source: str, notes: str = "", alone: bool = False) -> tuple[str, tuple[str, ...]]:
    """The engine of a source, and what was assumed: steps on a chip `alone` are taken to be somebody's own loop, anything
    else a well-run server."""
    for pattern, engine in ENGINES:
        if re.search(pattern, source):
            return engine, ()
    for pattern, engine in SCRIPTS:
        if re.search(pattern, f"{source} {notes}"):
            return engine, ()
    return ("torch" if alone else "generic"), ("the engine",)


def _lengths(row: Row) -> tuple[int, int, tuple[str, ...]]:
    """Mean tokens of a prompt and of an answer, and what was assumed about them."""
    prompt, output, scenario = count(row, "isl"), count(row, "osl"), row["scenario"]
    if "ShareGPT" in row["notes"] and prompt is None and output is None:
        limit = _noted(row["notes"], r"max in/out (\d+)") or 1024
        if limit not in SHAREGPT:
            raise Skip("lengths of ShareGPT cut at this limit not known")
        return *SHAREGPT[limit], ("lengths as in ShareGPT",)
    if prompt is None:
        raise Skip("isl not stated")
    if output is None:
        if scenario in ("decode_throughput", "decode_only"):
            return prompt, 1, ("a cache no longer than the prompt",)
        if scenario not in ("prefill_throughput", "prefill_only"):
            raise Skip("osl not stated")
    return prompt, output or 1, ()


def _batch(row: Row) -> int:
    if row["scenario"] in LATENCIES:
        return _needed(row, "batch")
    return count(row, "batch") or 0


def _measured(row: Row, chips: int) -> float:
    """Seconds or tokens per second of the whole run."""
    scenario = row["scenario"]
    if scenario in LATENCIES:
        return _latency(row)
    side = "input" if scenario == "prefill_throughput" else "output"
    total, one = number(row[f"{side}_tok_s_total"]), number(row[f"{side}_tok_s_per_chip"])
    if total is None and one is None:
        raise Skip(f"{side} tokens per second not stated")
    return total if total is not None else (one or 0.0) * chips


def _latency(row: Row) -> float:
    total, first, each = (number(row[column]) for column in ("total_latency_s", "ttft_ms", "tpot_ms"))
    found = {
        "static_batch": total,
        "prefill_only": first / 1e3 if first else total,
        "decode_only": each / 1e3 if each else (total / (count(row, "osl") or 1) if total else None),
    }[row["scenario"]]
    if found is None:
        raise Skip("latency not stated")
    return found
