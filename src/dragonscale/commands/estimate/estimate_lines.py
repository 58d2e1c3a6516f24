"""The lines of an estimate: of a training run (FLOPs, days and dollars, the state, the activations, the chips that hold
them), of fine-tuning and of serving.

Bytes of state for a parameter are conventions, and each line says its own:

- 10: bf16 weights and two fp32 moments of Adam, as the book counts.
- 16: bf16 weights and gradients beside fp32 master weights and moments (Rajbhandari et al. 2020,
  ZeRO, arXiv:1910.02054, section 3.1); also fp32 weights, gradients and moments, as FSDP keeps them.
- 18: the same with fp32 gradients, as Megatron-LM accumulates them (Korthikanti et al. 2022,
  arXiv:2205.05198, and its distributed optimizer).
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dragonscale.commands.estimate.estimate_question import EstimateAsked
from dragonscale.commands.estimate.estimate_records import Paper, Parts
from dragonscale.course.closed_forms import decode_floor
from dragonscale.course.closed_forms.rules_of_thumb import run_cost, run_seconds, state_bytes
from dragonscale.course.closed_forms.serving_fleet import largest_batch
from dragonscale.models.activations import activation_bytes
from dragonscale.models.count import cache_bytes, cache_growth, parameters
from dragonscale.models.flops import Workload, forward_flops, training_flops
from dragonscale.models.lora import adapted_parameters, adapter_parameters
from dragonscale.models.program import Section
from dragonscale.models.scaling_laws import chinchilla_tokens
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.routing import route
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines import Rates
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.serving.steady.economics import usd_per_million

TRAINING_MEMORY = "training memory"
MOMENTS = ("fp32", "fp32")
# By bytes a parameter: the format of the weights, and of what there is beside two fp32 moments (master weights,
# gradients).
STATES: dict[int, tuple[str, tuple[str, ...]]] = {
    10: ("bf16", ()),
    16: ("bf16", ("fp32", "bf16")),
    18: ("bf16", ("fp32", "fp32")),
}
SAID = (
    "State for a parameter: 10 bytes are bf16 weights and fp32 moments of Adam; 16 add bf16 gradients and an fp32 "
    "master copy (or are fp32 weights, gradients and moments); 18 have fp32 gradients beside the master copy."
)
# The convention that chips are counted by.
STATE = 16
KEPT = {"no recompute": "none", "selective recompute": "selective", "full recompute": "block"}


def write_run(job: EstimateAsked, paper: Paper) -> None:
    """FLOPs of the run; with a chip its time and its price."""
    paper.group = "training run"
    total, active = letters_of(job, paper)
    paper.write("Chinchilla tokens", chinchilla_tokens(total), "count")
    tokens = paper.let("tokens", job.tokens)
    dense = paper.write("training FLOPs (6ND)", model_flops(active, tokens), "FLOP")
    attention = 0.0
    if job.model is not None:
        seq = paper.let("T", job.seq)
        attention = paper.count(
            "attention FLOPs",
            "FLOP",
            "F",
            lambda all_: scores(training_flops(all_, Workload(1, seq, seq)), tokens / seq),
        )
    if job.chip is None:
        return
    flops, chips, peak = paper.let("FLOPs", dense + attention), chips_of(job, paper), peak_of(job, paper)
    mfu = paper.let("mfu", job.mfu)
    if job.piece is not None:
        paper.write("run time", run_seconds(flops, chips, peak, mfu), "s")
    alone = run_seconds(flops, 1, peak, mfu)
    paper.write("chip-hours", alone / 3600, "count")
    if job.chip.price is not None:
        price = paper.let("price", job.chip.price)
        paper.write("cost of the run", run_cost(1, alone, price), "USD")


def write_state(job: EstimateAsked, paper: Paper) -> None:
    """What training must hold, and the fewest chips that do."""
    paper.group = TRAINING_MEMORY
    total, _ = letters_of(job, paper)
    sizes: dict[int, float] = {}
    for each, (weights, more) in STATES.items():
        size = state_bytes(total, weights, MOMENTS, *more)
        sizes[each] = paper.write(f"state, {each} bytes a parameter", size, "bytes")
    if job.model is not None:
        for name, policy in KEPT.items():
            read = functools.partial(activation_bytes, work=Workload(1, 1, 1), policy=policy)
            paper.count(f"activations a token, {name}", "bytes", policy, read, blocks=True)
    if job.chip is not None:
        state = paper.let("state", sizes[STATE])
        paper.write(
            f"fewest chips for {STATE} bytes a parameter", chips_to_hold(held_by(job.chip, paper), state), "count"
        )


def scores(flops: Parts, times: Number) -> Parts:
    """The FLOPs of what mixes tokens alone."""
    return {"scores": flops.get("scores", 0) * times}


def letters_of(job: EstimateAsked, paper: Paper) -> tuple[Any, Any]:
    """P, the parameters, and those that a token uses, under a name of their own where they are fewer."""
    total = paper.let("P", job.total)
    return total, total if job.active == job.total else paper.let("P_active", job.active)


def chips_of(job: EstimateAsked, paper: Paper) -> Any:
    """The chips of the slice."""
    if job.piece is None:
        return 1
    return paper.let("chips", job.piece.chips)


def peak_of(job: EstimateAsked, paper: Paper) -> Any:
    """C, the peak of the format that is multiplied."""
    assert job.chip is not None
    return paper.let("C", job.chip.peak(job.question.dtype))


def held_by(chip: Chip, paper: Paper) -> Any:
    """The chip with a letter for its memory."""
    capacity: Any = paper.let("HBM", chip.hbm.capacity)
    return replace(chip, memory=chip.memory | {"hbm": replace(chip.hbm, capacity=capacity)})


# The memory of fine-tuning: of all weights, with LoRA, and with LoRA over 4-bit weights (QLoRA).
#
# An estimate of memory only, and without activations: frozen weights, and 16 bytes for each parameter that is trained.
# QLoRA (Dettmers et al. 2023, arXiv:2305.14314) stores the matmuls of the blocks in 4 bits with their scales, which
# come to 4.127 bits in its NF4 with double quantization and to 4.125 in the int4 of `kernels/formats.toml` (a 16-bit
# scale for 128 weights), which is counted; embeddings, norms and the head stay in bf16.


FINE_TUNING = "fine-tuning memory"
BESIDE = "An estimate of memory alone, and without activations."


def write_finetuning(job: EstimateAsked, paper: Paper) -> None:
    """Bytes held by each way of fine-tuning; with a chip, the fewest that hold them."""
    assert job.model is not None
    assert job.question.lora_rank is not None
    paper.group = FINE_TUNING
    total, _ = letters_of(job, paper)
    blocks, rank = job.model.program().sections[1:-1], paper.let("rank", job.question.lora_rank)
    weights, more = STATES[STATE]
    sizes = {"full": paper.write("full: 16 bytes a parameter", state_bytes(total, weights, MOMENTS, *more), "bytes")}
    adapters = functools.partial(adapter_parameters, rank=rank)

    def in_attention(sections: Sequence[Section]) -> Parts:
        return {"attention": adapters(sections).get("attention", 0)}

    paper.count("LoRA parameters, attention only", "count", "lora", in_attention, blocks=True)
    many = paper.count("LoRA parameters, all matmuls", "count", "lora", adapters, blocks=True)
    trained = state_bytes(paper.let("P_lora", many), weights, MOMENTS, *more)
    sizes["LoRA"] = paper.write("LoRA: bf16 weights, adapters", state_bytes(total, "bf16", ()) + trained, "bytes")
    narrow = paper.let("P_4bit", float(adapted_parameters(blocks)))
    # the matmuls of the blocks in 4 bits, everything else in bf16
    frozen = narrow * FORMATS[format_name("int4")].weight + state_bytes(total - narrow, "bf16", ())
    sizes["QLoRA"] = paper.write("QLoRA: 4-bit weights, adapters", frozen + trained, "bytes")
    if job.chip is not None:
        chip = held_by(job.chip, paper)
        for name, size in sizes.items():
            paper.write(f"fewest chips, {name}", chips_to_hold(chip, paper.let(f"held_{name}", size)), "count")


# The lines of serving: weights and KV bytes, the floor of a decode step, prefill, and where decode turns compute-bound.
#
# Everything is split evenly over the chips and nothing is spent on communication, workspace or launch gaps: `dscale
# serve` puts these in.


# The formats of weights; block-scaled ones count their scales.
WEIGHT_FORMATS = ("bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4")
# Sequences that reach every expert of any model.
LARGE = 1e12


def write_weights(job: EstimateAsked, paper: Paper) -> None:
    """The parameters, and their bytes by format."""
    paper.group = "weights"
    if job.model is None:
        total, _ = letters_of(job, paper)
        paper.write("parameters", total, "count")
    else:
        paper.count("parameters", "count", "P", parameters)
        if job.active != job.total:
            used = functools.partial(parameters, active=True)
            paper.count("parameters that a token uses", "count", "P_active", used)
        total, _ = letters_of(job, paper)
    formats = (*WEIGHT_FORMATS, *(dtype for dtype in [job.question.weights] if dtype not in WEIGHT_FORMATS))
    for dtype in formats:
        paper.write(f"weights in {dtype}", state_bytes(total, dtype, ()), "bytes")
    if job.model is not None and job.model.weight_dtypes:
        _write_published(job.model, paper)


def _write_published(model: Transformer, paper: Paper) -> None:
    """The checkpoint as it is: each part in its own format."""
    parts = parameters(model.program().sections)
    sizes = [
        state_bytes(paper.let(f"P_{part}", many), model.weight_dtypes.get(part, model.dtype), ())
        for part, many in parts.items()
    ]
    paper.write("weights as published", sum(sizes), "bytes")


def write_cache(job: EstimateAsked, paper: Paper) -> None:
    """Bytes of the KV cache for a token and for a sequence."""
    if job.model is None:
        return
    paper.group = "KV cache"
    dtype = job.question.kv_dtype
    paper.count("KV bytes a token", "bytes", "kv", lambda sections: {"token": cache_growth(sections, dtype)})
    context = paper.let("context", job.context)
    paper.count("KV bytes a sequence", "bytes", "cache", lambda sections: cache_bytes(sections, context, dtype))


def write_serving(job: EstimateAsked, paper: Paper) -> None:
    """The floors of decode and prefill on the chips, and how many sequences these hold."""
    assert job.chip is not None
    paper.group = "serving"
    weights = paper.let("weights", float(state_bytes(job.total, job.question.weights, ())))
    cache, batch = _cache(job, paper), paper.let("batch", job.batch)
    chip = held_by(job.chip, paper)
    fewest = paper.write("fewest chips", chips_to_hold(chip, weights + batch * cache), "count")
    # without a slice, as many as it takes
    chips = paper.let("chips", fewest if job.piece is None else job.piece.chips)
    rates = Rates({("matrix", job.question.dtype): peak_of(job, paper)}, {"hbm": _width(job.chip, paper)})
    _write_step(job, paper, "", job.batch, (cache, chips, rates))
    active = letters_of(job, paper)[1]
    if job.sparse:
        sparse = paper.let("P_all", _all_loaded(job)) / active
    else:
        sparse = 1
    formats = {"weights": job.question.weights, "compute": job.question.dtype}
    paper.write("batch that is compute-bound", decode_floor.critical_batch(rates, sparsity=sparse, **formats), "count")
    if cache:
        largest = paper.write("largest batch", largest_batch(chips * chip.hbm.capacity, weights, cache), "count")
        if largest > job.batch:
            _write_step(job, paper, "largest batch: ", largest, (cache, chips, rates))
        _write_plateau(job, paper, cache, rates)
    _write_prefill(job, paper, active, chips)


def _write_plateau(job: EstimateAsked, paper: Paper, cache: Any, rates: Rates) -> None:
    """Where the KV cache decides, and the tokens a second that no batch exceeds."""
    (total, active), question = letters_of(job, paper), job.question
    assert job.model is not None
    token = float(cache_growth(job.model.program().sections, question.kv_dtype))
    if token:
        kv = paper.let("kv", token)
        passing = decode_floor.cache_over_flops(kv, active, rates, question.dtype)
        paper.write("context where KV reads pass matmuls", passing, "count")
        paper.write(
            "cached tokens as large as weights", decode_floor.cache_over_weights(kv, total, question.weights), "count"
        )
    paper.write("max tokens/s a chip", decode_floor.plateau(cache, active, rates, question.dtype), "count/s")


def loaded(sections: Iterable[Section], batch: Number) -> dict[str, Number]:
    """Parameters that a decode step reads: of an MoE the experts that the batch is routed to, evenly."""
    reached = []
    for section in sections:
        dims: dict[str, Any] = dict(section.dims)
        if "e" in dims and "x" in dims:
            dims["x"] = route(batch, dims["x"], dims["e"], 1, "balanced").active
        reached.append(replace(section, dims=dims))
    return dict(parameters(reached, active=True))


def _all_loaded(job: EstimateAsked) -> float:
    """Parameters that a large batch reads."""
    if job.model is None:
        return job.total
    return float(sum(loaded(job.model.program().sections, LARGE).values()))


def _cache(job: EstimateAsked, paper: Paper) -> Any:
    """Bytes that a sequence keeps; 0 where no architecture is known."""
    if job.model is None:
        return 0
    cached = sum(cache_bytes(job.model.program(), job.context, job.question.kv_dtype).values())
    if cached:
        return paper.let("cache", float(cached))
    return 0


def _width(chip: Chip, paper: Paper) -> Any:
    return paper.let("W_hbm", chip.bandwidth("hbm"))


def _write_step(job: EstimateAsked, paper: Paper, where: str, size: float, machine: tuple[Any, Any, Rates]) -> None:
    """A decode step by what takes it, the tokens it gives, and what they cost."""
    (cache, chips, rates), mark, question = machine, "_most" if where else "", job.question
    batch, (_, active) = paper.let(f"batch{mark}", size), letters_of(job, paper)
    read = active
    if job.model is not None and job.sparse:
        name = f"{where}parameters that a step reads"
        size = paper.count(name, "count", f"read{mark}", lambda sections: loaded(sections, batch))
        read = paper.let(f"P_read{mark}", size)
    elif job.sparse:
        read = letters_of(job, paper)[0]
    formats = {"weights": question.weights, "compute": question.dtype}
    times = decode_floor.decode_times(batch, cache, read, chips, rates, active=active, **formats)
    if not where:
        paper.write("decode: weights", times.weights, "s")
        paper.write("decode: matmuls", times.math, "s")
        paper.write("decode: KV cache", times.cache, "s")
    step = paper.let(f"step{mark}", paper.write(f"{where}decode step", times.lower, "s"))
    rate = paper.write(f"{where}output tokens/s", decode_floor.throughput(batch, step), "count/s")
    if job.chip is not None and job.chip.price is not None:
        price, rated = paper.let("price", job.chip.price), paper.let(f"rate{mark}", rate)
        paper.write(f"{where}cost of 1M output tokens", usd_per_million(rated, chips, price), "USD")


def _write_prefill(job: EstimateAsked, paper: Paper, active: Any, chips: Any) -> None:
    prompt = paper.let("prompt", job.prompt)
    flops = paper.write("prefill FLOPs", model_flops(active, prompt, training=False), "FLOP")
    if job.model is not None:
        whole = Workload(1, prompt, prompt)
        flops += paper.count("prefill attention FLOPs", "FLOP", "F", lambda all_: scores(forward_flops(all_, whole), 1))
    work, mfu = paper.let("F_prefill", flops), paper.let("mfu", job.mfu)
    paper.write("prefill time", run_seconds(work, chips, peak_of(job, paper), mfu), "s")
