"""Problems on decode steps and prefills: how long at best, how many tokens that makes."""

from dragonscale.course.closed_forms.decode_floor import decode_times, throughput
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS, bandwidth_told, rates_told, size
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.rooflines import rates_of


@problem(
    "inference",
    "Loading every weight once",
    cases=("inference.q3_param_load",),
    params=(18.4e9, 8e9, 13e9, 34e9, 70e9, 110e9),
    weights=("int8", "bf16", "int4"),
    chip=CHIPS,
    chips=(16, 1, 2, 4, 8, 32),
)
def time_to_load_weights(params: float, weights: str, chip: str, chips: int) -> Posed | None:
    machine, each = load_chip(chip), dtype_bytes(weights)
    if params * each > chips * machine.hbm.capacity:
        return None
    answer = float(decode_times(1, 0, params, chips, rates_of(machine), weights=weights).weights)
    traps = [Trap(answer * 2 / each if each != 2 else answer / 2, f"A weight in {weights} is {each:g} bytes.")]
    if chips > 1:
        traps.append(Trap(answer * chips, "Each chip reads only its part, all at once."))
    return Posed(
        ask=f"{amount(params, 'count')} parameters in {weights} lie split over {chips} {chip}. "
        f"{bandwidth_told(machine)} How long "
        "does it take to read every weight once? No decode step is shorter.",
        answer=answer,
        dimension="s",
        hints=("All chips read their parts at the same time.", "bytes·P / (N·W)."),
        steps=(
            f"weights: {size(params * each)}",
            f"all chips read {amount(chips * machine.bandwidth('hbm'), 'bytes/s')}",
            f"{amount(answer, 's')}",
        ),
        traps=tuple(traps),
        check=f'dscale calc "{size(params * each)} / ({chips} * {chip}.hbm_bandwidth)"',
    )


@problem(
    "inference",
    "A decode step with a small batch",
    cases=("inference.popquiz_small_batch:step",),
    batch=(4, 1, 2, 8, 16, 32),
    params=(30e9, 8e9, 13e9, 70e9),
    token=(100e3, 65536.0, 131072.0, 163840.0),
    context=(8192, 2048, 4096, 32768),
    chip=CHIPS,
    chips=(16, 4, 8, 32),
)
def step_of_a_small_batch(batch: int, params: float, token: float, context: int, chip: str, chips: int) -> Posed | None:
    machine, cache = load_chip(chip), token * context
    if params + batch * cache > chips * machine.hbm.capacity:
        return None
    step = decode_times(batch, cache, params, chips, rates_of(machine), weights="int8")
    if step.math > 0.7 * step.weights:
        return None
    answer = float(step.lower)
    return Posed(
        ask=f"{amount(params, 'count')} parameters in int8 (matmuls in bf16) on {chips} {chip}; {batch} sequences of "
        f"{count(context)} tokens decode, each token keeping {amount(token, 'bytes')}. {rates_told(machine)} "
        "How long does a step take at best, everything split evenly and communication left out?",
        answer=answer,
        dimension="s",
        hints=(
            "The batch is far below the critical one: everything is read once.",
            "(P·bytes + B·cache) / (N·W).",
        ),
        steps=(
            f"caches: {batch}·{size(cache)} = {size(batch * cache)}",
            f"weights and caches: {size(params + batch * cache)}",
            f"over {chips}·{amount(machine.bandwidth('hbm'), 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(float(step.weights), "The caches are read as well."),
            Trap(float(step.linear + step.weights + step.cache), "int8 weights are 1 byte each."),
        ),
        check=f'dscale calc "({size(params)} + {batch} * {size(cache)}) / ({chips} * {chip}.hbm_bandwidth)"',
    )


@problem(
    "inference",
    "A decode step with a large batch",
    batch=(256, 200, 320, 400, 512, 640),
    params=(30e9, 8e9, 13e9, 20e9),
    token=(100e3, 65536.0, 40960.0),
    context=(8192, 1024, 2048, 4096),
    chip=CHIPS,
    chips=(16, 8, 32),
)
def step_of_a_large_batch(batch: int, params: float, token: float, context: int, chip: str, chips: int) -> Posed | None:
    machine, cache = load_chip(chip), token * context
    if params + batch * cache > chips * machine.hbm.capacity:
        return None
    step = decode_times(batch, cache, params, chips, rates_of(machine), weights="int8")
    if step.math < 1.3 * step.weights:
        return None
    answer = float(step.lower)
    return Posed(
        ask=f"{amount(params, 'count')} parameters in int8, matmuls in bf16, on {chips} {chip}; {batch} sequences of "
        f"{count(context)} "
        f"tokens decode, each token keeping {amount(token, 'bytes')}. {rates_told(machine)} How long does a step "
        "take at best? "
        "Loading weights overlaps with multiplying by them, reading caches comes after; leave communication out.",
        answer=answer,
        dimension="s",
        hints=(
            "The batch is above the critical one, so the matmuls hide the loading of the weights, not the caches.",
            "max(2·B·P/(N·C), b·P/(N·W)) + B·cache/(N·W).",
        ),
        steps=(
            f"matmuls: 2·{batch}·{number(params)} / ({chips}·{number(machine.peak())}) = "
            f"{amount(float(step.math), 's')}",
            f"loading weights: {amount(float(step.weights), 's')}, hidden",
            f"caches: {batch}·{size(cache)} / ({chips}·{number(machine.bandwidth('hbm'))}) = "
            f"{amount(float(step.cache), 's')}",
            f"together {amount(answer, 's')}",
        ),
        traps=(
            Trap(float(step.weights + step.cache), "At this batch multiplying takes longer than loading the weights."),
            Trap(
                float(max(step.math, step.weights + step.cache)),
                "Caches are not hidden: each step reads them after the matmuls.",
            ),
            Trap(float(step.math), "The caches are read as well."),
        ),
        check=f'dscale calc "max(2*{batch}*{params:g} FLOP/({chips}*{chip}.bf16), '
        f"{size(params)}/({chips}*{chip}.hbm_bandwidth))"
        f' + {batch}*{size(cache)}/({chips}*{chip}.hbm_bandwidth)"',
    )


@problem(
    "inference",
    "The step when memory is full",
    cases=("inference.q4_latency_full",),
    batch=(7, 4, 10, 16, 24),
    cache=(33.5e9, 6.71e9, 1.34e9, 10.7e9),
    params=(18.4e9, 13e9, 30e9),
    chip=CHIPS,
    chips=(16, 4, 8, 32),
)
def step_at_full_memory(batch: int, cache: float, params: float, chip: str, chips: int) -> Posed | None:
    machine = load_chip(chip)
    if params + batch * cache > chips * machine.hbm.capacity:
        return None
    step = decode_times(batch, cache, params, chips, rates_of(machine), weights="int8")
    answer, part = float(step.lower), float((params + batch * cache) / (chips * machine.hbm.capacity))
    return Posed(
        ask=f"{batch} long sequences with caches of {amount(cache, 'bytes')} decode beside {amount(params, 'bytes')} "
        "of int8 weights on "
        f"{chips} {chip}. {bandwidth_told(machine)} How long does a decode step take at best, bound by memory?",
        answer=answer,
        dimension="s",
        hints=("Everything that lies in memory is read once.", "(B·cache + P·bytes) / (N·W)."),
        steps=(
            f"caches: {size(batch * cache)}, weights: {size(params)}",
            f"{size(params + batch * cache)} / ({chips}·{amount(machine.bandwidth('hbm'), 'bytes/s')}) = "
            f"{amount(answer, 's')}",
            f"memory is {part:.0%} full, so the step is {part:.0%} of the time to read all of HBM",
        ),
        traps=(
            Trap(float(step.weights), "The caches are read as well."),
            Trap(float(step.weights + step.cache / batch), "Every sequence reads a cache of its own."),
        ),
        check=f'dscale calc "({batch} * {size(cache)} + {size(params)}) / ({chips} * {chip}.hbm_bandwidth)"',
    )


@problem(
    "inference",
    "Tokens per second",
    batch=(16, 1, 8, 32, 64),
    cache=(1.34e9, 6.7e9, 0.54e9),
    params=(13e9, 8e9, 34e9),
    chip=CHIPS,
    chips=(8, 4, 16),
)
def tokens_per_second(batch: int, cache: float, params: float, chip: str, chips: int) -> Posed | None:
    machine, held = load_chip(chip), params * 2
    if held + batch * cache > chips * machine.hbm.capacity:
        return None
    step = decode_times(batch, cache, params, chips, rates_of(machine))
    if step.math > step.weights:
        return None
    answer = float(throughput(batch, step.lower))
    return Posed(
        ask=f"{amount(params, 'count')} parameters in bf16 on {chips} {chip}, {batch} sequences with "
        f"{amount(cache, 'bytes')} of cache each. "
        f"{bandwidth_told(machine)} How many tokens per second do all of them together get at best (write it as "
        "100/s)?",
        answer=answer,
        dimension="count/s",
        hints=("First the step: weights and caches, each read once.", "B / step, step = (2·P + B·cache)/(N·W)."),
        steps=(
            f"bytes: {size(held)} + {batch}·{size(cache)} = {size(held + batch * cache)}",
            f"step: {amount(float(step.lower), 's')}",
            f"{batch} / {amount(float(step.lower), 's')} = {number(answer)} tokens/s",
        ),
        traps=(
            Trap(float(throughput(batch, step.weights)), "The caches are read as well."),
            Trap(answer / chips, "That is per chip; the question asks for all."),
        ),
        check=f'dscale calc "{batch} / (({size(held)} + {batch} * {size(cache)}) / ({chips} * {chip}.hbm_bandwidth))"',
    )
