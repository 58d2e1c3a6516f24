"""Problems on one decode step of LLaMA-3: its cache, its time, what its tokens cost."""

from dragonscale.course.closed_forms.chip_parts import flops_per_usd
from dragonscale.course.closed_forms.decode_floor import decode_times, throughput
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS, bandwidth_told, rates_told, size
from dragonscale.course.words import amount, count, number
from dragonscale.models import kv_bytes_per_token, load_model
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.rooflines import rates_of
from dragonscale.serving.economics import usd_per_million

MODELS = ("llama3-70b", "llama3-8b", "llama3.1-405b")


@problem(
    "llama3-serving",
    "FLOPs that a dollar buys",
    chip=("v5e", "v5p", "h100", "v6e", "a100", "h200", "b200", "mi300x"),
    price=(1.0, 0.8, 1.5, 2.0),
)
def flops_of_a_dollar(chip: str, price: float) -> Posed | None:
    machine = load_chip(chip)
    assert machine.price is not None
    machine = machine.with_facts(price=round(machine.price * price, 2))
    answer = float(flops_per_usd(machine))
    assert machine.price is not None
    return Posed(
        ask=f"A {chip} does {amount(machine.peak(), 'FLOP/s')} in bf16 and costs ${machine.price:g} an hour. How many "
        "FLOPs does a dollar buy at the peak?",
        answer=answer,
        dimension="FLOP",
        hints=("A dollar buys 1/price hours.", "C·3600/price."),
        steps=(
            f"a dollar is {number(3600 / machine.price)} seconds",
            f"{number(machine.peak())} · {number(3600 / machine.price)} = {number(answer)} FLOPs",
        ),
        traps=(
            Trap(answer / 3600, "The price is for an hour of 3,600 seconds."),
            Trap(answer * machine.price**2, "Divide by the price."),
        )
        if abs(machine.price - 1) > 0.05
        else (Trap(answer / 3600, "The price is for an hour of 3,600 seconds."),),
        check=f'dscale calc "{chip}.bf16 / {machine.price:g} USD/h"',
    )


@problem(
    "llama3-serving",
    "Bytes of cache for a token",
    cases=("applied-inference.kv_per_token",),
    model=MODELS,
    kv=("int8", "bf16", "int4"),
    tokens=(1, 2048, 8192),
)
def cache_of_llama3(model: str, kv: str, tokens: int) -> Posed:
    one = load_model(model)
    dims, each = one.program().sections[1].dims, dtype_bytes(kv)
    answer = float(kv_bytes_per_token(one, kv)) * tokens
    said = "does a token take" if tokens == 1 else f"do {count(tokens)} tokens take"
    return Posed(
        ask=f"{model} has {one.n_layers} layers, {dims['n']} query heads and {dims['k']} KV heads of {dims['h']}. How "
        f"many bytes of cache {said} in {kv}?",
        answer=answer,
        dimension="bytes",
        hints=("Keys and values of the KV heads in every layer.", "2·bytes·K·H·L for each token."),
        steps=(
            f"2·{dims['k']}·{dims['h']}·{one.n_layers} = {count(2 * dims['k'] * dims['h'] * one.n_layers)} numbers "
            "a token",
            f"at {each:g} bytes each, {count(tokens)} times: {count(answer)} bytes",
        ),
        traps=(
            Trap(answer / 2, "Keys and values: two arrays."),
            Trap(answer * dims["n"] / dims["k"], "Only KV heads are kept."),
        ),
        check=f'dscale calc "2 * {model}.K * {model}.H * {model}.L * {each:g} bytes * {tokens}"',
    )


@problem(
    "llama3-serving",
    "A decode step on a small slice",
    cases=("applied-inference.bs32_latency_4x2:step",),
    read=((70e9, 42e9), (70e9, 21e9), (70e9, 10e9), (35e9, 21e9), (140e9, 84e9), (8e9, 34e9)),
    chip=CHIPS,
    chips=(8, 4, 16),
)
def step_on_a_small_slice(read: tuple[float, float], chip: str, chips: int) -> Posed | None:
    machine, (weights, caches) = load_chip(chip), read
    if weights + caches > chips * machine.hbm.capacity:
        return None
    step = decode_times(1, caches, weights, chips, rates_of(machine), weights="int8")
    answer = float(step.weights + step.cache)
    return Posed(
        ask=f"A decode step reads {amount(weights, 'bytes')} of weights and {amount(caches, 'bytes')} of caches on "
        f"{chips} {chip}. {bandwidth_told(machine)} How long does it take at "
        "best, bound by memory?",
        answer=answer,
        dimension="s",
        hints=("All chips read at once.", "bytes / (N·W)."),
        steps=(
            f"{size(weights)} + {size(caches)} = {size(weights + caches)}",
            f"over {chips}·{amount(machine.bandwidth('hbm'), 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(float(step.weights), "The caches are read as well."),
            Trap(answer * chips, "All chips read at once."),
        ),
        check=f'dscale calc "({size(weights)} + {size(caches)}) / ({chips} * {chip}.hbm_bandwidth)"',
    )


@problem(
    "llama3-serving",
    "Tokens per second and chip",
    cases=("applied-inference.bs32_latency_4x2:tput_per_chip",),
    step=(0.01707317, 0.012, 0.02, 0.025, 0.0305),
    batch=(32, 16, 43, 64, 128),
    chips=(8, 4, 16, 32),
)
def tokens_of_a_chip(step: float, batch: int, chips: int) -> Posed:
    answer = float(throughput(batch, step, chips))
    return Posed(
        ask=f"{batch} sequences decode on {chips} chips, a step taking {amount(step, 's', 4)}. How many tokens per "
        "second is that for each chip (write it as 100/s)?",
        answer=answer,
        dimension="count/s",
        hints=("A step gives every sequence one token.", "B / (step·N)."),
        steps=(
            f"{batch} / {amount(step, 's')} = {number(batch / step)} tokens/s",
            f"over {chips} chips: {number(answer)}",
        ),
        traps=(
            Trap(batch / step, "That is for all chips."),
            Trap(1 / step, "That is what one user sees."),
        ),
        check=f'dscale calc "{batch} / ({amount(step, "s", 6)} * {chips})"',
    )


@problem(
    "llama3-serving",
    "A million tokens in dollars",
    cases=("applied-inference.cost_per_token_bs32",),
    rate=(234.3, 50.0, 120.0, 427.0, 892.0, 2000.0),
    price=(1.2, 2.7, 4.2, 0.5, 3.99, 2.2),
)
def cost_of_a_million_tokens(rate: float, price: float) -> Posed:
    answer = float(usd_per_million(rate, 1, price))
    return Posed(
        ask=f"A chip costs ${price:g} an hour and makes {rate:g} output tokens per second. What do a million tokens "
        "cost (in $)?",
        answer=answer,
        dimension="USD",
        hints=("How many chip-hours do a million tokens take?", "price/3600/rate·1e6."),
        steps=(
            f"1e6 / {rate:g} = {number(1e6 / rate)} s = {number(1e6 / rate / 3600)} h",
            f"times ${price:g}: ${number(answer)}",
        ),
        traps=(
            Trap(answer * 3600, "The price is for an hour, the rate for a second."),
            Trap(answer / 1000, "That is for a thousand tokens."),
        ),
        check=f'dscale calc "usd_per_million({rate:g}/s, 1, {price:g} USD/h)"',
    )


@problem(
    "llama3-serving",
    "No step is shorter than its FLOPs",
    cases=("applied-inference.flops_bound_floor",),
    batch=(240, 64, 120, 512, 1024, 8192),
    model=(("70B", 70e9), ("8B", 8.03e9), ("405B", 405.85e9)),
    chip=CHIPS,
    chips=(16, 8, 32, 64),
)
def floor_of_flops(batch: int, model: tuple[str, float], chip: str, chips: int) -> Posed:
    machine, (name, params) = load_chip(chip), model
    answer = float(decode_times(batch, 0, params, chips, rates_of(machine)).math)
    return Posed(
        ask=f"A step multiplies {batch} tokens by {amount(params, 'count')} parameters (LLaMA-3 {name}) in bf16 on "
        f"{chips} {chip}. {rates_told(machine)} "
        "How long do the FLOPs alone take?",
        answer=answer,
        dimension="s",
        hints=("Two FLOPs for each parameter and token.", "2·B·P/(N·C)."),
        steps=(
            f"2·{batch}·{number(params)} = {amount(2 * batch * params, 'FLOP')}",
            f"over {chips}·{number(machine.peak())}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(answer * 3, "Only training needs 6·B·P."),
        ),
        check=f'dscale calc "2 FLOP * {batch} * {params:g} / ({chips} * {chip}.bf16)"',
    )
