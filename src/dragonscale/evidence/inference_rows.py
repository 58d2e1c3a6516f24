"""What a row of measured inference runs means: model, slice, plan, engine, how requests came, and
what was measured.

Conventions of the published files: `output_tok_s_total` counts all chips of a run and
`output_tok_s_per_chip` one of them; `batch` is the number of sequences in the whole run (also where
attention is split by batch), except that a serving row of JetStream states its decode slots there;
a TPU7x chip is two JAX devices, so `tp` counts devices; `attention-DP` in the notes means that `tp`
chips each serve their own sequences and share only the experts."""

import re
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.evidence.described import Described, chip_of, described, hint, machine, meaning, model_of, words
from dragonscale.evidence.rows import Form, Row, Skip, count, needed, number, skip_if, typed
from dragonscale.models.load import load_model
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.serving.engine.engine import Engine, load_engine
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan

LATENCIES, RATES = (tuple[str, ...](words("inference")[name]) for name in ("latencies", "rates"))
"""Scenarios that are measured in seconds, and in tokens per second."""


class InferenceRow(Described, frozen=True, kw_only=True):
    """A typed row. `measured` is seconds for latencies and tokens per second of the whole run for
    rates. `plan` is empty where the source does not say how the model was split and the planner
    must choose. `prompt` and `output` are mean lengths; `spread` is the half-width of their uniform
    distribution as a part of the mean. `slots` caps the sequences decoded at once, `cache_length`
    is the fixed length of every slot's cache, `clients` the requests in flight, `requests` how many
    there were in all (without clients: all of them queued from the start), `tokens_per_pass` the most tokens of an
    iteration, `sequences` the most at once, `memory_share` the part of the memory in use (0: the engine's).
    `ttft_limit` and `tpot_limit` are what 99 of 100 requests must keep. `memory_bytes` were in use on a chip."""

    scenario: str
    engine: str
    plan: str = ""
    weights: str
    compute: str
    kv: str
    batch: int = 0
    prompt: int
    output: int
    measured: float
    clients: int = 0
    requests: int = 0
    slots: int = 0
    cache_length: int = 0
    spread: float = 0.0
    tokens_per_pass: int = 0
    ttft_limit: float = 0.0
    tpot_limit: float = 0.0
    memory_bytes: float = 0.0
    sequences: int = 0
    memory_share: float = 0.0


@dataclass(frozen=True)
class InferenceCase:
    """A typed row in the model's terms; `plan` is None where the planner must choose."""

    row: InferenceRow
    model: Transformer
    piece: Slice
    plan: ServingPlan | None
    engine: Engine


def case_of(row: InferenceRow) -> InferenceCase:
    """A typed row as a case."""
    skip_if(row.scenario not in LATENCIES + RATES, f"no model of the scenario {row.scenario[:40]!r}")
    plan = parse_serving_plan(row.plan) if row.plan else None
    model, seeing = model_of(row), meaning(words("inference")["towers"], row.model)
    if seeing:
        model = replace(model, extras=model.extras + load_model(seeing).extras)
    return InferenceCase(row, model, row.slice, plan, load_engine(row.engine))


def published_case(row: Row, place: int) -> InferenceRow:
    """A row of published runs as a typed one."""
    scenario = row["scenario"]
    if scenario not in LATENCIES + RATES:
        raise Skip(f"no model of the scenario {scenario[:40]!r}" if scenario else "scenario not stated")
    latency = scenario in LATENCIES
    engine, guessed = engine_of(row["source"], row["notes"], latency and count(row, "n_chips") == 1)
    if not latency:
        engine = words("inference")["throughput"].get(engine, engine)
    shared = _model_columns(row, place)
    chips = needed(row, "n_chips")
    formats = dtypes_of(row)
    plan, assumed = plan_of(row, chips, formats, latency)
    chip = chip_of(row["chip"])
    prompt, output, more = _lengths(row)
    skip_if(hint(row, "suspect"), "the source's labels are suspected to be wrong")
    skip_if(hint(row, "cache_hits"), "throughput includes prompts found in a cache")
    where = machine(row, chip, chips)
    first, each = limits_of(row["model"], scenario)
    noted: dict[str, Any] = {
        name: int(hint(row, name) or 0) for name in ("requests", "cache_length", "tokens_per_pass")
    }
    noted = {name: value or _launched(row, scenario, prompt, output).get(name, 0) for name, value in noted.items()}
    batch = needed(row, "batch") if latency else count(row, "batch")
    run: dict[str, Any] = {"scenario": scenario, "engine": engine, "plan": str(plan or ""), "batch": batch}
    run |= {"prompt": prompt, "output": output, "clients": count(row, "concurrency")}
    return InferenceRow(
        **shared,
        **where,
        **formats,
        **noted,
        **run,
        inferred="; ".join((*guessed, *assumed, *more)),
        measured=_measured(row, chips),
        slots=batch if scenario == "serving" and engine == "jetstream" else 0,
        spread=float(hint(row, "spread") or 0.0),
        ttft_limit=first,
        tpot_limit=each,
        memory_bytes=(number(row.get("mem_gb")) or 0.0) * 1e9,
    )


FORMS = (
    Form(words("inference")["columns"], published_case),
    typed(InferenceRow, ("scenario", "engine", "measured", "weights")),
)


def _model_columns(row: Row, place: int) -> dict[str, Any]:
    """The model of a row. Its embedding is tied if that fits the stated number of parameters
    better; blocks whose halves run side by side are known by the model's name or said in the
    notes."""
    shared: dict[str, Any] = described(row, place) | {"tied": False}
    model, stated = model_of(Described(**shared)), number(row.get("total_params"))
    if stated:
        own, tied = (abs(count_parameters(one).total - stated) for one in (model, replace(model, tied=True)))
        shared["tied"] = tied < own
    return shared | {"parallel": bool(hint(row, "parallel_model") or hint(row, "parallel_notes"))}


def engine_of(source: str, notes: str = "", alone: bool = False) -> tuple[str, tuple[str, ...]]:
    """The engine of a source, and what was assumed: steps on a chip `alone` are taken to be
    somebody's own loop, anything else a well-run server."""
    known = words("inference")
    engine = meaning(known["engines"], source) or meaning(known["scripts"], f"{source} {notes}")
    return (engine, ()) if engine else ("torch" if alone else "generic", ("the engine",))


def _launched(row: Row, scenario: str, prompt: int, output: int) -> dict[str, int]:
    """What sources say in one place of all their runs: how many requests were queued, and the tokens
    of an iteration."""
    known = words("inference")
    if scenario == "max_throughput" and re.search(known["queued"]["source"], row["source"]):
        return {"requests": known["queued"].get(f"{prompt}/{output}", 0)}
    if scenario.startswith("mlperf") and "trtllm" in engine_of(row["source"])[0]:
        return {"tokens_per_pass": known["passes"].get(_benchmark(row["model"]), 0)}
    return {}


def limits_of(model: str, scenario: str) -> tuple[float, float]:
    """MLPerf's limits of a model's scenario on the first token and on each further one; zeros if it
    has none."""
    return words("limits").get(f"{_benchmark(model)} {scenario}", (0.0, 0.0))


def _benchmark(model: str) -> str:
    """A model as MLPerf calls it, without its accuracy."""
    return re.sub(r"-99(\.9)?$", "", model.lower()).replace("llama3_1", "llama3.1")


def dtypes_of(row: Row) -> dict[str, Any]:
    """Formats of the stored weights, of the matmuls and of the cache; what follows wide ones
    without being stated is as wide. DeepSeek and its kin scale fp8 by blocks."""
    found: list[str] = []
    for column in ("weight_dtype", "act_dtype", "kv_dtype"):
        text = row[column].lower() or ("bf16" if found and found[-1] == "bf16" else "")
        name = words("inference")["dtypes"].get(text, text)
        skip_if(not text, f"{column} not stated")
        skip_if(name not in DTYPE_BYTES, f"no model of serving in {text[:20]!r}")
        found.append(name)
    block = row["mla"] and row["act_dtype"].lower() == "fp8"
    return {"weights": found[0], "compute": "fp8_block" if block else found[1], "kv": found[2]}


def plan_of(
    row: Row, chips: int, formats: dict[str, Any], latency: bool = False
) -> tuple[ServingPlan | None, tuple[str, ...]]:
    """How the model was split, or None if the source does not say, and what was assumed. A measured
    latency is taken to be that of all chips together."""
    if hint(row, "stationary"):
        # A hidden dim of four times the width is cut into 2√n parts and the width into √n/2 (the paper's section
        # 3.2.2).
        width = 1
        while width * width * 4 < chips:
            width *= 2
        spread = "batch" if hint(row, "batch_sharded") else "copy"
        plan = ServingPlan(tensor=chips // width, width=width, spread=spread, **formats)
        return plan, ("how the chips are split in two",)
    if hint(row, "gathered"):
        return ServingPlan(data=chips, **formats), ("gathering the weights overlaps with the matmuls",)
    tensor, pipe, expert, data = (count(row, column) for column in ("tp", "pp", "ep", "dp"))
    if not tensor and not data and chips > 1:
        if not latency:
            return None, ("how the model is split",)
        return ServingPlan(tensor=chips, **formats), ("tensor parallelism",)
    devices = 2 if row["chip"].lower() == "tpu7x" else 1
    tensor, pipe, expert, data = tensor or 1, pipe or 1, expert or 1, data or 1
    if tensor % devices == 0:
        tensor //= devices
    if hint(row, "attention_data"):
        tensor, data = 1, tensor * data
    plan = ServingPlan(tensor=tensor, data=data, expert=expert, pipe=pipe, **formats)
    skip_if(plan.chips != chips, "parallel sizes do not multiply to the number of chips")
    return plan, ("tensor parallelism",) if hint(row, "presumed") else ()


def _lengths(row: Row) -> tuple[int, int, tuple[str, ...]]:
    """Mean tokens of a prompt and of an answer, and what was assumed about them."""
    prompt, output, scenario = count(row, "isl"), count(row, "osl"), row["scenario"]
    if hint(row, "conversations") and not prompt and not output:
        known = words("inference")["conversations"].get(hint(row, "longest") or "1024")
        skip_if(not known, "lengths of ShareGPT cut at this limit not known")
        return *known, ("lengths as in ShareGPT",)
    prompt = needed(row, "isl")
    if not output and scenario in ("decode_throughput", "decode_only"):
        return prompt, 1, ("a cache no longer than the prompt",)
    skip_if(not output and scenario not in ("prefill_throughput", "prefill_only"), "osl not stated")
    return prompt, output or 1, ()


def _measured(row: Row, chips: int) -> float:
    """Seconds or tokens per second of the whole run, from the first column of its scenario that
    states them."""
    scales = {"chips": chips, "outputs": 1 / (count(row, "osl") or 1)}
    for column, scale in words("inference")["measured"].get(row["scenario"], words("inference")["measured"]["rate"]):
        value = number(row[column])
        if value is not None:
            return value * scales.get(scale, scale)
    skip_if(row["scenario"] in LATENCIES, "latency not stated")
    side = "input" if row["scenario"] == "prefill_throughput" else "output"
    raise Skip(f"{side} tokens per second not stated")
