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
STATES: dict[int, tuple[str, tuple[str, ...]]] = {
    10: ("bf16", ()),
    16: ("bf16", ("fp32", "bf16")),
    18: ("bf16", ("fp32", "fp32")),
}
"""By bytes a parameter: the format of the weights, and of what there is beside two fp32 moments
(master weights, gradients)."""
SAID = (
    "State for a parameter: 10 bytes are bf16 weights and fp32 moments of Adam; 16 add bf16 gradients and an fp32 "
    "master copy (or are fp32 weights, gradients and moments); 18 have fp32 gradients beside the master copy."
)
STATE = 16
"""The convention that chips are counted by."""
KEPT = {"no recompute": "none", "selective recompute": "selective", "full recompute": "block"}


def write_run(asked: EstimateAsked, paper: Paper) -> None:
    """FLOPs of the run; with a chip its time and its price."""
    paper.group = "training run"
    total, active = letters_of(asked, paper)
    paper.write("Chinchilla tokens", chinchilla_tokens(total), "count")
    tokens = paper.let("tokens", asked.tokens)
    dense = paper.write("training FLOPs (6ND)", model_flops(active, tokens), "FLOP")
    attention = 0.0
    if asked.model is not None:
        seq = paper.let("T", asked.seq)
        attention = paper.count(
            "attention FLOPs",
            "FLOP",
            "F",
            lambda all_: scores(training_flops(all_, Workload(1, seq, seq)), tokens / seq),
        )
    if asked.chip is None:
        return
    flops, chips, peak = paper.let("FLOPs", dense + attention), chips_of(asked, paper), peak_of(asked, paper)
    mfu = paper.let("mfu", asked.mfu)
    if asked.piece is not None:
        paper.write("run time", run_seconds(flops, chips, peak, mfu), "s")
    alone = run_seconds(flops, 1, peak, mfu)
    paper.write("chip-hours", alone / 3600, "count")
    if asked.chip.price is not None:
        price = paper.let("price", asked.chip.price)
        paper.write("cost of the run", run_cost(1, alone, price), "USD")


def write_state(asked: EstimateAsked, paper: Paper) -> None:
    """What training must hold, and the fewest chips that do."""
    paper.group = TRAINING_MEMORY
    total, _ = letters_of(asked, paper)
    held: dict[int, float] = {}
    for each, (weights, more) in STATES.items():
        size = state_bytes(total, weights, MOMENTS, *more)
        held[each] = paper.write(f"state, {each} bytes a parameter", size, "bytes")
    if asked.model is not None:
        for name, policy in KEPT.items():
            read = functools.partial(activation_bytes, work=Workload(1, 1, 1), policy=policy)
            paper.count(f"activations a token, {name}", "bytes", policy, read, blocks=True)
    if asked.chip is not None:
        state = paper.let("state", held[STATE])
        paper.write(
            f"fewest chips for {STATE} bytes a parameter", chips_to_hold(held_by(asked.chip, paper), state), "count"
        )


def scores(flops: Parts, times: Number) -> Parts:
    """The FLOPs of what mixes tokens alone."""
    return {"scores": flops.get("scores", 0) * times}


def letters_of(asked: EstimateAsked, paper: Paper) -> tuple[Any, Any]:
    """P, the parameters, and those that a token uses, under a name of their own where they are fewer."""
    total = paper.let("P", asked.total)
    return total, total if asked.active == asked.total else paper.let("P_active", asked.active)


def chips_of(asked: EstimateAsked, paper: Paper) -> Any:
    """The chips of the slice."""
    return 1 if asked.piece is None else paper.let("chips", asked.piece.chips)


def peak_of(asked: EstimateAsked, paper: Paper) -> Any:
    """C, the peak of the format that is multiplied."""
    assert asked.chip is not None
    return paper.let("C", asked.chip.peak(asked.question.dtype))


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


def write_finetuning(asked: EstimateAsked, paper: Paper) -> None:
    """Bytes held by each way of fine-tuning; with a chip, the fewest that hold them."""
    assert asked.model is not None
    assert asked.question.lora_rank is not None
    paper.group = FINE_TUNING
    total, _ = letters_of(asked, paper)
    blocks, rank = asked.model.program().sections[1:-1], paper.let("rank", asked.question.lora_rank)
    weights, more = STATES[STATE]
    held = {"full": paper.write("full: 16 bytes a parameter", state_bytes(total, weights, MOMENTS, *more), "bytes")}
    adapters = functools.partial(adapter_parameters, rank=rank)

    def in_attention(every: Sequence[Section]) -> Parts:
        return {"attention": adapters(every).get("attention", 0)}

    paper.count("LoRA parameters, attention only", "count", "lora", in_attention, blocks=True)
    many = paper.count("LoRA parameters, all matmuls", "count", "lora", adapters, blocks=True)
    trained = state_bytes(paper.let("P_lora", many), weights, MOMENTS, *more)
    held["LoRA"] = paper.write("LoRA: bf16 weights, adapters", state_bytes(total, "bf16", ()) + trained, "bytes")
    narrow = paper.let("P_4bit", float(adapted_parameters(blocks)))
    frozen = narrow * FORMATS[format_name("int4")].weight + state_bytes(total - narrow, "bf16", ())
    held["QLoRA"] = paper.write("QLoRA: 4-bit weights, adapters", frozen + trained, "bytes")
    if asked.chip is not None:
        chip = held_by(asked.chip, paper)
        for name, size in held.items():
            paper.write(f"fewest chips, {name}", chips_to_hold(chip, paper.let(f"held_{name}", size)), "count")


# The lines of serving: weights and KV bytes, the floor of a decode step, prefill, and where decode turns compute-bound.
#
# Everything is split evenly over the chips and nothing is spent on communication, workspace or launch gaps: `dscale
# serve` puts these in.


WEIGHT_FORMATS = ("bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4")
"""The formats of weights; block-scaled ones count their scales."""
LARGE = 1e12
"""Sequences that reach every expert of any model."""


def write_weights(asked: EstimateAsked, paper: Paper) -> None:
    """The parameters, and their bytes by format."""
    paper.group = "weights"
    if asked.model is None:
        total, _ = letters_of(asked, paper)
        paper.write("parameters", total, "count")
    else:
        paper.count("parameters", "count", "P", parameters)
        if asked.active != asked.total:
            used = functools.partial(parameters, active=True)
            paper.count("parameters that a token uses", "count", "P_active", used)
        total, _ = letters_of(asked, paper)
    every = (*WEIGHT_FORMATS, *(one for one in [asked.question.weights] if one not in WEIGHT_FORMATS))
    for dtype in every:
        paper.write(f"weights in {dtype}", state_bytes(total, dtype, ()), "bytes")
    if asked.model is not None and asked.model.weight_dtypes:
        _write_published(asked.model, paper)


def _write_published(model: Transformer, paper: Paper) -> None:
    """The checkpoint as it is: each part in its own format."""
    parts = parameters(model.program().sections)
    sizes = [
        state_bytes(paper.let(f"P_{part}", many), model.weight_dtypes.get(part, model.dtype), ())
        for part, many in parts.items()
    ]
    paper.write("weights as published", sum(sizes), "bytes")


def write_cache(asked: EstimateAsked, paper: Paper) -> None:
    """Bytes of the KV cache for a token and for a sequence."""
    if asked.model is None:
        return
    paper.group = "KV cache"
    dtype = asked.question.kv_dtype
    paper.count("KV bytes a token", "bytes", "kv", lambda every: {"token": cache_growth(every, dtype)})
    context = paper.let("context", asked.context)
    paper.count("KV bytes a sequence", "bytes", "cache", lambda every: cache_bytes(every, context, dtype))


def write_serving(asked: EstimateAsked, paper: Paper) -> None:
    """The floors of decode and prefill on the chips, and how many sequences these hold."""
    assert asked.chip is not None
    paper.group = "serving"
    weights = paper.let("weights", float(state_bytes(asked.total, asked.question.weights, ())))
    cache, batch = _cache(asked, paper), paper.let("batch", asked.batch)
    chip = held_by(asked.chip, paper)
    fewest = paper.write("fewest chips", chips_to_hold(chip, weights + batch * cache), "count")
    chips = paper.let("chips", fewest if asked.piece is None else asked.piece.chips)
    rates = Rates({("matrix", asked.question.dtype): peak_of(asked, paper)}, {"hbm": _width(asked.chip, paper)})
    _write_step(asked, paper, "", asked.batch, (cache, chips, rates))
    active = letters_of(asked, paper)[1]
    sparse = paper.let("P_all", _all_loaded(asked)) / active if asked.sparse else 1
    formats = {"weights": asked.question.weights, "compute": asked.question.dtype}
    paper.write("batch that is compute-bound", decode_floor.critical_batch(rates, sparsity=sparse, **formats), "count")
    if cache:
        most = paper.write("largest batch", largest_batch(chips * chip.hbm.capacity, weights, cache), "count")
        if most > asked.batch:
            _write_step(asked, paper, "largest batch: ", most, (cache, chips, rates))
        _write_plateau(asked, paper, cache, rates)
    _write_prefill(asked, paper, active, chips)


def _write_plateau(asked: EstimateAsked, paper: Paper, cache: Any, rates: Rates) -> None:
    """Where the KV cache decides, and the tokens a second that no batch exceeds."""
    (total, active), question = letters_of(asked, paper), asked.question
    assert asked.model is not None
    token = float(cache_growth(asked.model.program().sections, question.kv_dtype))
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


def _all_loaded(asked: EstimateAsked) -> float:
    """Parameters that a large batch reads."""
    return asked.total if asked.model is None else float(sum(loaded(asked.model.program().sections, LARGE).values()))


def _cache(asked: EstimateAsked, paper: Paper) -> Any:
    """Bytes that a sequence keeps; 0 where no architecture is known."""
    if asked.model is None:
        return 0
    kept = sum(cache_bytes(asked.model.program(), asked.context, asked.question.kv_dtype).values())
    return paper.let("cache", float(kept)) if kept else 0


def _width(chip: Chip, paper: Paper) -> Any:
    return paper.let("W_hbm", chip.bandwidth("hbm"))


def _write_step(asked: EstimateAsked, paper: Paper, where: str, size: float, machine: tuple[Any, Any, Rates]) -> None:
    """A decode step by what takes it, the tokens it gives, and what they cost."""
    (cache, chips, rates), mark, question = machine, "_most" if where else "", asked.question
    batch, (_, active) = paper.let(f"batch{mark}", size), letters_of(asked, paper)
    read = active
    if asked.model is not None and asked.sparse:
        name = f"{where}parameters that a step reads"
        size = paper.count(name, "count", f"read{mark}", lambda every: loaded(every, batch))
        read = paper.let(f"P_read{mark}", size)
    elif asked.sparse:
        read = letters_of(asked, paper)[0]
    formats = {"weights": question.weights, "compute": question.dtype}
    times = decode_floor.decode_times(batch, cache, read, chips, rates, active=active, **formats)
    if not where:
        paper.write("decode: weights", times.weights, "s")
        paper.write("decode: matmuls", times.math, "s")
        paper.write("decode: KV cache", times.cache, "s")
    step = paper.let(f"step{mark}", paper.write(f"{where}decode step", times.lower, "s"))
    rate = paper.write(f"{where}output tokens/s", decode_floor.throughput(batch, step), "count/s")
    if asked.chip is not None and asked.chip.price is not None:
        price, rated = paper.let("price", asked.chip.price), paper.let(f"rate{mark}", rate)
        paper.write(f"{where}cost of 1M output tokens", usd_per_million(rated, chips, price), "USD")


def _write_prefill(asked: EstimateAsked, paper: Paper, active: Any, chips: Any) -> None:
    prompt = paper.let("prompt", asked.prompt)
    flops = paper.write("prefill FLOPs", model_flops(active, prompt, training=False), "FLOP")
    if asked.model is not None:
        whole = Workload(1, prompt, prompt)
        flops += paper.count("prefill attention FLOPs", "FLOP", "F", lambda all_: scores(forward_flops(all_, whole), 1))
    work, mfu = paper.let("F_prefill", flops), paper.let("mfu", asked.mfu)
    paper.write("prefill time", run_seconds(work, chips, peak_of(asked, paper), mfu), "s")
