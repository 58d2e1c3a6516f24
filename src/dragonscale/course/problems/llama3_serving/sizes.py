"""Problems on the other sizes of LLaMA-3: 8B on a small slice, 405B under a limit."""

import math

from dragonscale.course.closed_forms.decode_floor import decode_times
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import TPUS, bandwidth_told, size
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.rooflines import rates_of
from dragonscale.physics.rooflines.counts import model_flops
from dragonscale.serving.space import smallest_slice


@problem(
    "llama3-serving",
    "FLOPs of a forward pass",
    cases=("applied-inference.q1_405b_forward:flops",),
    params=(405.85e9, 70.6e9, 8.03e9),
    tokens=(1, 32, 64, 120, 240, 512, 1024, 2048, 4096, 8192, 32768),
)
def flops_of_llama3(params: float, tokens: int) -> Posed:
    answer = float(model_flops(params, tokens, training=False))
    return Posed(
        ask=f"How many FLOPs does a forward pass of {count(tokens)} token{'s' if tokens > 1 else ''} through "
        f"{amount(params, 'count', 5)} parameters take, attention's dot products left out?",
        answer=answer,
        dimension="FLOP",
        hints=("Each parameter multiplies and adds once for each token.", "2·P·T."),
        steps=(
            "2 FLOPs for each parameter and token",
            f"2·{number(params, 5)}·{count(tokens)} = {amount(answer, 'FLOP')}",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(3 * answer, "Training takes 6; a forward pass 2."),
        ),
        check=f'dscale calc "2 FLOP * {params:g} * {tokens}"',
    )


@problem(
    "llama3-serving",
    "All caches of a batch",
    cases=("applied-inference.q2_8b_serving:kv_total",),
    batch=(240, 32, 64, 120, 512),
    token=((65536, "8B"), (163840, "70B"), (258048, "405B")),
    context=(8192, 2048, 4096, 16384),
    kv=("int8", "bf16"),
)
def caches_of_a_batch(batch: int, token: tuple[int, str], context: int, kv: str) -> Posed:
    numbers, name = token
    each = dtype_bytes(kv)
    answer = float(batch * context * numbers * each)
    return Posed(
        ask=f"LLaMA-3 {name} keeps {count(numbers)} numbers for a token. How many bytes are the caches of {batch} "
        f"sequences of {count(context)} tokens in {kv}?",
        answer=answer,
        dimension="bytes",
        hints=("Numbers of a token, times tokens, times sequences.", "kv·b·S·B."),
        steps=(
            f"a sequence: {count(numbers)}·{each:g}·{count(context)} = {size(numbers * each * context)}",
            f"times {batch}: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / batch, "That is one sequence."),
            Trap(answer * (2 if kv == "int8" else 0.5), f"{kv} is {each:g} byte{'s' if each > 1 else ''} a number."),
        ),
        check=f'dscale calc "{batch} * {context} * {numbers} * {each:g} bytes"',
    )


@problem(
    "llama3-serving",
    "A slice for weights and caches",
    cases=("applied-inference.q2_8b_serving:chips",),
    batch=(240, 32, 64, 120),
    model=((8.03e9, 65536, "8B"), (70.6e9, 163840, "70B"), (405.85e9, 258048, "405B")),
    context=(8192, 2048, 4096, 16384),
    chip=TPUS,
)
def slice_for_a_batch(batch: int, model: tuple[float, int, str], context: int, chip: str) -> Posed | None:
    machine, (params, token, name) = load_chip(chip), model
    held = params + float(batch * context * token)
    piece, ways = smallest_slice(machine, held), held / machine.hbm.capacity
    if piece is None or ways < 1.2 or piece.chips != 2 ** math.ceil(math.log2(ways)):
        return None
    answer = float(piece.chips)
    return Posed(
        ask=f"LLaMA-3 {name} in int8 ({amount(params, 'bytes')} of weights, {count(token)} bytes of cache a token) "
        f"shall decode {batch} sequences of {count(context)} tokens. Slices of {chip} have "
        f"4, 8, 16, 32, 64, … chips of {amount(machine.hbm.capacity, 'bytes')}. How many chips has the smallest "
        "that holds weights and caches?",
        answer=answer,
        whole=True,
        hints=("Add weights and caches, divide by a chip's memory.", "(P + B·kv·S) / HBM, up to a power of two."),
        steps=(
            f"caches: {size(float(batch * context * token))}; with the weights {size(held)}",
            f"over {amount(machine.hbm.capacity, 'bytes')}: {number(ways)} chips",
            f"the next slice has {piece.chips}",
        ),
        traps=(
            Trap(answer / 2, "That slice is too small."),
            Trap(answer * 2, "Half of that holds everything already."),
        ),
        check=f'dscale calc "2 ** ceil(log2(({size(params)} + {batch}*{context}*{token} bytes) / {chip}.hbm))"',
    )


@problem(
    "llama3-serving",
    "The fewest chips for a latency",
    cases=("applied-inference.q3_405b_plan:chips",),
    params=(405.85e9, 70.6e9, 8.03e9),
    weights=("int8", "bf16"),
    limit=(0.015, 0.005, 0.01, 0.02, 0.03),
    chip=TPUS,
)
def chips_of_a_latency(params: float, weights: str, limit: float, chip: str) -> Posed | None:
    machine = load_chip(chip)
    held = params * dtype_bytes(weights)
    least = smallest_slice(machine, held)
    if least is None or least.chips != 2 ** math.ceil(math.log2(max(held / machine.hbm.capacity, 1))):
        return None
    chips, rates = least.chips, rates_of(machine)

    def loading(count_: int) -> float:
        return float(decode_times(1, 0, params, count_, rates, weights=weights).weights)

    while loading(chips) > limit:
        chips *= 2
    if chips < 4 or chips > 256:
        return None
    return Posed(
        ask=f"{amount(params, 'count', 5)} parameters in {weights} shall decode with steps of at most "
        f"{amount(limit, 's')}. Slices of {chip} have 4, 8, 16, … chips of "
        f"{amount(machine.hbm.capacity, 'bytes')}. "
        f"{bandwidth_told(machine)} How many chips has the smallest slice that holds the weights and reads them "
        "all in time?",
        answer=float(chips),
        whole=True,
        hints=("Two conditions: memory and time.", "N ≥ b·P/HBM and N ≥ b·P/(W·t), up to a power of two."),
        steps=(
            f"memory: {size(held)} / {amount(machine.hbm.capacity, 'bytes')} = {number(held / machine.hbm.capacity)}",
            f"time: {size(held)} / ({amount(machine.bandwidth('hbm'), 'bytes/s')}·{amount(limit, 's')}) = "
            f"{number(held / machine.bandwidth('hbm') / limit)}",
            f"{chips} chips, which take {amount(loading(chips), 's')}",
        ),
        traps=(
            Trap(chips / 2, f"{chips // 2} chips take {amount(loading(chips // 2), 's')}, or do not hold the weights."),
            Trap(chips * 2.0, "Half of that is enough."),
        ),
        check=f'dscale calc "2 ** ceil(log2(max({size(held)} / {chip}.hbm, {size(held)} / ({chip}.hbm_bandwidth * '
        f'{amount(limit, "s")}))))"',
    )


@problem(
    "llama3-serving",
    "The shortest step of a whole pod",
    cases=("applied-inference.q3_405b_plan:min_step_256",),
    params=(405.85e9, 70.6e9, 8.03e9, 671e9),
    weights=("int8", "bf16", "int4"),
    pod=(("v5e", 256), ("v6e", 256), ("v5e", 64), ("v5p", 128), ("h100", 64), ("h200", 32), ("b200", 72)),
)
def step_of_a_pod(params: float, weights: str, pod: tuple[str, int]) -> Posed | None:
    chip, chips = pod
    machine, each = load_chip(chip), dtype_bytes(weights)
    answer = float(decode_times(1, 0, params, chips, rates_of(machine), weights=weights).weights)
    return Posed(
        ask=f"{amount(params, 'count', 5)} parameters in {weights} lie on {chips} {chip}. {bandwidth_told(machine)} "
        "Which decode step can no batch undercut, communication left out?",
        answer=answer,
        dimension="s",
        hints=("Every weight is read once in a step.", "b·P/(N·W)."),
        steps=(
            f"{number(params, 5)}·{each:g} = {size(params * each)}",
            f"over {chips}·{amount(machine.bandwidth('hbm'), 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * 2 / each if each != 2 else answer / 2, f"A weight in {weights} is {each:g} bytes."),
            Trap(answer * chips, "All chips read at once."),
        ),
        check=f'dscale calc "{size(params * each)} / ({chips} * {chip}.hbm_bandwidth)"',
    )
