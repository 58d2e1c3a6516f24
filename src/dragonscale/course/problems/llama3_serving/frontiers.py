"""Problems on latency against throughput: the plateau, where caches take over, what a limit allows."""

from dragonscale.course.closed_forms.decode_floor import (
    batch_within,
    cache_over_flops,
    decode_times,
    plateau,
    throughput,
)
from dragonscale.course.closed_forms.serving_fleet import largest_batch
from dragonscale.course.closed_forms.serving_splits import prefill_degree
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS, TPUS, rates_told, size
from dragonscale.course.words import amount, count, number
from dragonscale.models import kv_bytes_per_token, load_model
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of

MODELS = ("llama3-70b", "llama3-8b", "llama3-405b")
CONTEXTS = (2048, 1024, 4096, 8192, 16384, 32768, 65536)


def sizes_of(model: str) -> tuple[float, int]:
    """A model's parameters, as its name rounds them, and the bytes of cache that a token takes in int8."""
    return 1e9 * float(model.rpartition("-")[2].rstrip("b")), int(kv_bytes_per_token(load_model(model), "int8"))


def model_told(model: str) -> str:
    params, token = sizes_of(model)
    return f"{model} ({number(params)} parameters and {count(token)} bytes of cache a token, both int8; matmuls bf16)"


@problem(
    "llama3-serving",
    "The least latency there is",
    model=MODELS,
    context=(32768, 4096, 8192, 16384, 65536, 131072),
    chip=CHIPS,
    chips=(16, 8, 32, 64),
)
def least_latency(model: str, context: int, chip: str, chips: int) -> Posed | None:
    machine, (params, token) = load_chip(chip), sizes_of(model)
    if params + token * context > chips * machine.hbm.capacity:
        return None
    step = decode_times(1, token * context, params, chips, rates_of(machine), weights="int8")
    answer = float(step.lower)
    return Posed(
        ask=f"{model_told(model)} decodes one sequence of {count(context)} tokens on {chips} {chip}. "
        f"{rates_told(machine)} How long does a step take at best?",
        answer=answer,
        dimension="s",
        hints=("With one sequence everything waits for memory.", "(P + kv·S) / (N·W)."),
        steps=(
            f"weights: {amount(float(step.weights), 's')}, cache: {amount(float(step.cache), 's')}",
            f"together {amount(answer, 's')}",
        ),
        traps=(
            Trap(2 * answer, "int8 is one byte."),
            Trap(float(step.math), "Those are the FLOPs, which take far less."),
            Trap(float(step.weights), "The cache is read in every step too."),
        ),
        tolerance=0.01,
        check=f'dscale calc "({size(params)} + {token} bytes * {context}) / ({chips} * {chip}.hbm_bandwidth)"',
    )


@problem(
    "llama3-serving",
    "The throughput that no batch exceeds",
    cases=("applied-inference.pareto_plateau:asymptote",),
    model=MODELS,
    context=CONTEXTS,
    chip=CHIPS,
)
def highest_throughput(model: str, context: int, chip: str) -> Posed:
    machine, (params, token) = load_chip(chip), sizes_of(model)
    cache = token * context
    answer = float(plateau(cache, params, rates_of(machine))) / 1e3
    one = decode_times(1, cache, params, 1, rates_of(machine), weights="int8")
    return Posed(
        ask=f"{model_told(model)} decodes sequences of {count(context)} tokens in batches far above the critical one. "
        f"{rates_told(machine)} Which number of tokens per "
        "millisecond and chip can no batch exceed?",
        answer=answer,
        hints=(
            "Matmuls and caches both grow with the batch; weights are hidden.",
            "1 / (2·P/C + kv·S/W), for one chip.",
        ),
        steps=(
            f"FLOPs of a token: {amount(float(one.math), 's')} of a chip",
            f"its cache: {amount(float(one.cache), 's')} of a chip",
            f"1 / {amount(float(one.math + one.cache), 's')} = {number(answer)} tokens/ms",
        ),
        traps=(
            Trap(1e-3 / float(one.math), "Caches are read as well."),
            Trap(1e-3 / float(one.cache), "Matmuls take time as well."),
        ),
        check=f'dscale calc "1 / (2 FLOP * {params:.6g} / {chip}.bf16 + {token} bytes * {context} / {chip}.hbm_bandwidth)" '
        "--to /ms",
    )


@problem(
    "llama3-serving",
    "The context from which caches decide",
    cases=("applied-inference.pareto_kv_vs_flops",),
    model=MODELS,
    chip=CHIPS,
    kv=(1, 2),
)
def context_of_caches(model: str, chip: str, kv: int) -> Posed:
    machine, (params, token) = load_chip(chip), sizes_of(model)
    answer = float(cache_over_flops(token * kv, params, rates_of(machine)))
    return Posed(
        ask=f"{model} multiplies each token by {amount(params, 'count')} parameters in bf16 and keeps "
        f"{count(token * kv)} bytes for each cached one. {rates_told(machine)} From which context "
        "on does reading a sequence's cache take longer than multiplying its token?",
        answer=answer,
        hints=("Both grow with the batch, so it cancels.", "2·P/C = kv·S/W: S = 2·P·W/(C·kv)."),
        steps=(
            f"multiplying: 2·{number(params)} / {number(machine.peak())} = {amount(2 * params / machine.peak(), 's')}",
            f"reading a token: {token * kv} / {number(machine.bandwidth('hbm'))} = "
            f"{amount(token * kv / machine.bandwidth('hbm'), 's')}",
            f"{number(answer)} tokens",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(params / (token * kv), "That compares bytes with bytes; here FLOPs meet bytes."),
        ),
        check=f'dscale calc "cache_over_flops({token * kv} bytes, {params:.6g}, {chip})"',
    )


@problem(
    "llama3-serving",
    "Batches that a latency allows",
    cases=("applied-inference.q3_405b_plan:batch_64",),
    model=(MODELS[2], MODELS[0], MODELS[1]),
    context=(8192, 2048, 4096, 16384),
    limit=(0.015, 0.01, 0.02, 0.03),
    chip=CHIPS,
    chips=(64, 8, 16, 32, 128),
)
def batch_of_a_latency(model: str, context: int, limit: float, chip: str, chips: int) -> Posed | None:
    machine, (params, token) = load_chip(chip), sizes_of(model)
    cache = token * context
    rough = float(batch_within(limit, cache, params, chips, rates_of(machine), weights="int8"))
    fits = float(largest_batch(chips * machine.hbm.capacity, params, cache))
    answer = float(int(min(rough, fits)))
    if rough < 20 or fits < 20 or answer > 1000:
        return None
    one = decode_times(1, cache, params, chips, rates_of(machine), weights="int8")
    step = decode_times(answer, cache, params, chips, rates_of(machine), weights="int8")
    binds = "memory holds" if fits < rough else "the limit allows"
    return Posed(
        ask=f"{model_told(model)} decodes sequences of {count(context)} tokens on {chips} {chip} of "
        f"{amount(machine.hbm.capacity, 'bytes')}, split evenly. {rates_told(machine)} A step may take "
        f"{amount(limit, 's')}: max(FLOPs, weight reads) + cache reads, no communication. What is the largest "
        "batch that is fast enough and fits?",
        answer=answer,
        whole=True,
        hints=(
            "Solve the step for the batch, once with FLOPs and once with weight reads; the smaller wins. Then "
            "look at memory.",
            "B = min((t − P/(N·W)) / c, t / (f + c), (N·HBM − P)/cache), c and f for one sequence.",
        ),
        steps=(
            f"a sequence: cache {amount(float(one.cache), 's')}, FLOPs {amount(float(one.math), 's')}; weights "
            f"{amount(float(one.weights), 's')}",
            f"within {amount(limit, 's')}: {number(rough)}; in memory: {count(fits)}",
            f"{binds} {count(answer)}; the step is {amount(float(step.lower), 's')}, "
            f"{number(float(throughput(answer, step.lower, chips)))} tokens/s and chip",
        ),
        traps=(
            Trap(float(int(limit / float(one.cache))), "Weights are read (and multiplied) as well."),
            Trap(
                float(int(max(rough, fits))) if int(rough) != int(fits) else 2 * answer,
                "Both the time and the memory limit the batch.",
            ),
        ),
        check=f'dscale calc "floor(min(batch_within({amount(limit, "s")}, {token} bytes * {context}, {params:.6g}, '
        f"{chips}, {chip}, weights=int8), "
        f'largest_batch({chips}*{chip}.hbm, {size(params)}, {token} bytes * {context})))"',
    )


@problem(
    "llama3-serving",
    "How many ways a LLaMA can be split",
    cases=("applied-inference.q3_405b_plan:tp_2axes_limit",),
    width=(53248, 28672, 14336),
    chip=TPUS,
    axes=(2, 1, 3),
)
def degree_of_llama3(width: int, chip: str, axes: int) -> Posed | None:
    machine = load_chip(chip)
    if axes == 3 and chip in ("v5e", "v6e"):
        return None
    answer = float(prefill_degree(width, machine, axes))
    link = machine.network.link  # pyright: ignore[reportAttributeAccessIssue]
    return Posed(
        ask=f"F of a LLaMA-3 is {count(width)}. A {chip} does {amount(machine.peak(), 'FLOP/s')} in bf16; a link moves "
        f"{amount(link, 'bytes/s')} one way. Over {axes} "
        f"{'axis that closes to a ring' if axes == 1 else 'axes that close to rings'}, up to which degree of tensor "
        "parallelism do matmuls that are bound by compute hide their collectives, to first order (V/W)? Not rounded.",
        answer=answer,
        hints=("An axis moves bytes both ways at once.", "M·F·W/C, with W both directions of an axis."),
        steps=(
            f"W = 2·{amount(link, 'bytes/s')} = {amount(2 * link, 'bytes/s')} an axis",
            f"{axes}·{width}·{number(2 * link)} / {number(machine.peak())} = {number(answer)}",
        ),
        traps=(
            Trap(
                answer / 2, "A link works in both directions at once (unless the axis is a line that does not close)."
            ),
            *((Trap(answer / axes, "All axes work at once."),) if axes > 1 else ()),
        ),
        check=f'dscale calc "prefill_degree({width}, {chip}, axes={axes})"',
    )
