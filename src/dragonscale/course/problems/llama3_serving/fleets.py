"""Problems on replicas with full batches: what fits, requests per second, larger slices, what ends in a step."""

import math

from dragonscale.course.closed_forms.serving_fleet import (
    evicted_per_step,
    finished_per_step,
    largest_batch,
    requests_per_second,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import size
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import dtype_bytes, load_chip

CONTEXTS = (8192, 2048, 4096, 16384, 32768)
SLICES = (16, 8, 4, 32, 64)


@problem(
    "llama3-serving",
    "Caches that fit beside the weights",
    dtype=("int8", "bf16", "int4"),
    context=CONTEXTS,
    chip=("v5e", "v6e", "v5p", "h100", "a100"),
    chips=SLICES,
)
def caches_beside_70b(dtype: str, context: int, chip: str, chips: int) -> Posed | None:
    machine, each = load_chip(chip), dtype_bytes(dtype)
    memory, weights, cache = chips * machine.hbm.capacity, 70e9 * each, 163840 * each * context
    if not 8 <= (memory - weights) / cache < 1000:
        return None
    answer = float(largest_batch(memory, weights, cache))
    return Posed(
        ask=f"LLaMA-3 70B (70e9 parameters, 163,840 cached numbers a token) lies in {dtype} on {chips} {chip} of "
        f"{amount(machine.hbm.capacity, 'bytes')}, its cache in {dtype} "
        f"too. How many sequences of {count(context)} tokens fit beside the weights?",
        answer=answer,
        whole=True,
        hints=("Free memory over the cache of a sequence.", "floor((N·HBM − b·P) / (b·163,840·S))."),
        steps=(
            f"weights: {amount(weights, 'bytes')}, free: {size(memory - weights)}",
            f"a sequence: 163,840·{each:g}·{count(context)} = {size(cache)}",
            f"{number((memory - weights) / cache)}, so {count(answer)}",
        ),
        traps=(Trap(float(memory // cache), "The weights take their part."),),
        check=f'dscale calc "largest_batch({chips} * {chip}.hbm, {size(weights)}, {size(cache)})"',
    )


@problem(
    "llama3-serving",
    "Requests per second",
    cases=("applied-inference.qps_table:total_qps",),
    batch=(43, 32, 64, 138, 16),
    step=(0.019, 0.012, 0.025, 0.0305),
    output=(512, 128, 256, 1024),
)
def requests_of_a_replica(batch: int, step: float, output: int) -> Posed:
    answer = float(requests_per_second(batch, step, output))
    return Posed(
        ask=f"A replica always decodes {batch} sequences; a step takes {amount(step, 's')} and a request {output} "
        "steps. How many requests does it finish per second (as 4.2/s)?",
        answer=answer,
        dimension="count/s",
        hints=("Each request stays for as many steps as it has output tokens.", "B / (step·O)."),
        steps=(
            f"a request stays {output}·{amount(step, 's')} = {amount(output * step, 's')}",
            f"{batch} / {amount(output * step, 's')} = {number(answer)}/s",
        ),
        traps=(
            Trap(batch / step, "Those are tokens per second."),
            Trap(1 / (output * step), "All of the batch decodes at once."),
        ),
        check=f'dscale calc "requests_per_second({batch}, {amount(step, "s")}, {output})"',
    )


@problem(
    "llama3-serving",
    "What a slice twice as large brings",
    cases=("applied-inference.topology_takeaway",),
    token=(324e3, 327680.0, 163840.0, 500e3),
    context=CONTEXTS,
    weights=(140e9, 70e9, 35e9),
    chips=(16, 8, 4, 32),
)
def gain_of_a_larger_slice(token: float, context: int, weights: float, chips: int) -> Posed | None:
    hbm = load_chip("v5e").hbm.capacity
    batches = [float(largest_batch(count_ * hbm, weights, token * context)) for count_ in (chips, 2 * chips)]
    if batches[0] < 5:
        return None
    rates = [
        float(requests_per_second(batch, 0.019, 512)) / count_
        for batch, count_ in zip(batches, (chips, 2 * chips), strict=True)
    ]
    answer = rates[1] / rates[0]
    return Posed(
        ask=f"{amount(weights, 'bytes')} of weights on {chips} v5e of 16GB; a sequence keeps {count(context)} tokens "
        f"of {amount(token, 'bytes')}. Batches fill the memory, and a step reads all of "
        f"memory, so it takes as long on {2 * chips} chips. By which factor do requests per second and chip grow "
        "there? Round batches down.",
        answer=answer,
        hints=("The weights lie there once, however many chips.", "(batch on 2N / 2N) / (batch on N / N)."),
        steps=(
            f"batch on {chips}: floor(({chips}·16GB − {amount(weights, 'bytes')}) / {size(token * context)}) = "
            f"{batches[0]:g}",
            f"batch on {2 * chips}: {batches[1]:g}",
            f"({batches[1]:g}/{2 * chips}) / ({batches[0]:g}/{chips}) = {number(answer)}",
        ),
        traps=(
            Trap(2 * answer, "Per chip: there are twice as many."),
            Trap(1.0, "The weights take a smaller part of a larger slice, so more than twice the batch fits."),
        ),
        check=f'dscale calc "largest_batch({2 * chips}*16GB, {size(weights)}, {size(token * context)}) / (2 * '
        f'largest_batch({chips}*16GB, {size(weights)}, {size(token * context)}))"',
    )


@problem(
    "llama3-serving",
    "Tokens that leave the cache",
    cases=("applied-inference.eviction_rate:tokens_per_step",),
    batch=(32, 16, 64, 128),
    prompt=(8192, 1024, 2048, 4096),
    output=(4096, 256, 512, 1024),
)
def tokens_that_leave(batch: int, prompt: int, output: int) -> Posed:
    answer = float(evicted_per_step(batch, prompt, output))
    ending = float(finished_per_step(batch, output))
    return Posed(
        ask=f"{batch} sequences with prompts of {count(prompt)} tokens decode {count(output)} each, at all stages. How "
        "many cached tokens does a decode step free on average?",
        answer=answer,
        hints=("How many sequences end in a step?", "B/O sequences end, each with P + O tokens."),
        steps=(
            f"{batch}/{output} = {number(ending)} sequences end in a step",
            f"each frees {count(prompt + output)} tokens: {number(answer)}",
        ),
        traps=(
            Trap(ending * prompt, "The output is in the cache as well."),
            Trap(float(batch), "That is how many tokens are added in a step."),
        ),
        check=f'dscale calc "evicted_per_step({batch}, {prompt}, {output})"',
    )


@problem(
    "llama3-serving",
    "Chips for a rate",
    rate=(20.0, 5.0, 50.0, 100.0, 200.0),
    each=(0.55, 0.276, 1.1, 0.83, 2.5),
    replica=(8, 4, 16),
)
def chips_for_a_rate(rate: float, each: float, replica: int) -> Posed:
    per = float(requests_per_second(each * replica, 1, 1))
    copies = math.ceil(rate / per)
    answer = float(copies * replica)
    return Posed(
        ask=f"A replica of {replica} chips serves {each:g} requests per second for each chip. How many chips do "
        f"{rate:g} requests per second take, in whole replicas, none of them idle on purpose?",
        answer=answer,
        whole=True,
        hints=("First whole replicas, then chips.", "ceil(rate / (N·q))·N."),
        steps=(
            f"a replica: {replica}·{each:g} = {number(per)}/s",
            f"ceil({rate:g} / {number(per)}) = {copies} replicas",
            f"{copies}·{replica} = {count(answer)} chips",
        ),
        traps=(
            Trap(float(copies), "Those are replicas."),
            Trap(answer + replica, "One replica too many."),
        ),
        check=f'dscale calc "ceil({rate:g} / ({replica} * {each:g})) * {replica}"',
    )
