"""Problems on the two pools: what prompts do to decoding, how many replicas of each, how long prompts wait."""

import math

from dragonscale.course.closed_forms.pools import interrupted_step, longest_prefill, prompt_wait
from dragonscale.course.closed_forms.serving_fleet import requests_per_second
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.serving.economics import pool_ratio

STEPS = (0.0086, 0.012, 0.019, 0.025, 0.03)
PREFILLS = (0.91, 0.23, 0.1, 0.35, 0.5, 0.05)
BATCHES = (32, 16, 43, 64, 128)
OUTPUTS = (512, 128, 256, 1024)


@problem(
    "disaggregation",
    "What prompts do to the time per token",
    step=STEPS,
    prefill=PREFILLS,
    batch=BATCHES,
    output=OUTPUTS,
)
def step_with_prompts_between(step: float, prefill: float, batch: int, output: int) -> Posed:
    answer = float(interrupted_step(step, prefill, batch, output))
    added = answer - step
    return Posed(
        ask=f"A replica keeps {batch} requests in flight. A decode step takes {amount(step, 's')}, a prefill "
        f"{amount(prefill, 's')} in which nobody decodes, and requests have "
        f"{output} output tokens. While a request decodes its tokens after the first, each of the others ends once "
        "and is followed by a new prompt. What is the "
        "mean time per output token?",
        answer=answer,
        dimension="s",
        hints=(
            f"A request meets {batch - 1} prompts during {output - 1} steps.",
            "d + p·(B − 1)/(O − 1).",
        ),
        steps=(
            f"prompts met for each step: {batch - 1}/{output - 1} = {number((batch - 1) / (output - 1))}",
            f"they add {amount(added, 's')} to a step",
            f"{amount(step, 's')} + {amount(added, 's')} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(step, "That is the time per token where prefill runs elsewhere."),
            Trap(step + prefill, "Not every step meets a prompt."),
        ),
        check=f'dscale calc "interrupted_step({amount(step, "s")}, {amount(prefill, "s")}, {batch}, {output})"',
    )


@problem(
    "disaggregation",
    "The longest prompt that a target allows",
    tpot=(0.03, 0.02, 0.04, 0.05),
    step=STEPS,
    batch=BATCHES,
    output=OUTPUTS,
)
def prefill_that_a_target_allows(tpot: float, step: float, batch: int, output: int) -> Posed | None:
    if step > 0.8 * tpot:
        return None
    answer = float(longest_prefill(tpot, step, batch, output))
    return Posed(
        ask=f"A replica does prefill and decode, {batch} requests in flight, {output} output tokens each, decode steps "
        f"of {amount(step, 's')}. Each of the others' prompts "
        "comes once between a request's steps. How long may a prefill take for a mean time per output token of "
        f"{amount(tpot, 's')}?",
        answer=answer,
        dimension="s",
        hints=(
            "What is left of the target for each step, times the steps, over the prompts met.",
            "(t − d)·(O − 1)/(B − 1).",
        ),
        steps=(
            f"left for prompts: {amount(tpot - step, 's')} a step, {output - 1} steps: "
            f"{amount((tpot - step) * (output - 1), 's')}",
            f"over {batch - 1} prompts: {amount(answer, 's')}",
        ),
        traps=(
            Trap(tpot * (output - 1) / (batch - 1), "The decode steps take their part."),
            Trap((tpot - step) * (output - 1), "That is the room for all prompts together."),
        ),
        check=f'dscale calc "longest_prefill({amount(tpot, "s")}, {amount(step, "s")}, {batch}, {output})"',
    )


@problem(
    "disaggregation",
    "Prefill replicas for one that decodes",
    prefill=PREFILLS,
    batch=BATCHES,
    step=(0.019, 0.0086, 0.012, 0.025, 0.03),
    output=OUTPUTS,
)
def ratio_of_the_pools(prefill: float, batch: int, step: float, output: int) -> Posed:
    answer = float(pool_ratio(prefill, batch, step, output))
    each = float(requests_per_second(batch, step, output))
    return Posed(
        ask=f"A prefill replica takes {amount(prefill, 's')} a prompt, one after the other. A decode replica runs "
        f"{batch} sequences with steps of {amount(step, 's')} and {output} steps "
        "a request. How many prefill replicas keep one decode replica full (not rounded)?",
        answer=answer,
        hints=(
            "How many requests per second end on the decode replica, and how many can a prefill replica begin?",
            "p·B/(d·O).",
        ),
        steps=(
            f"the decode replica ends {batch}/({amount(step, 's')}·{output}) = {number(each)} requests/s",
            f"a prefill replica begins {number(1 / prefill)}/s",
            f"{number(each)} / {number(1 / prefill)} = {number(answer)}",
        ),
        traps=(
            Trap(1 / answer, "That is decode replicas for one that prefills."),
            Trap(answer / batch, "The whole batch decodes at once."),
        ),
        check=f'dscale calc "pool_ratio({amount(prefill, "s")}, {batch}, {amount(step, "s")}, {output})"',
    )


@problem(
    "disaggregation",
    "Chips of both pools",
    rate=(20.0, 5.0, 10.0, 40.0, 80.0),
    prefill=PREFILLS,
    decoding=((32, 0.0086), (43, 0.019), (64, 0.012), (128, 0.025)),
    output=OUTPUTS,
    chips=((16, 16), (8, 8), (4, 8), (8, 16), (8, 32)),
    load=(0.85, 0.7, 0.6, 0.9),
)
def chips_of_both_pools(
    rate: float, prefill: float, decoding: tuple[int, float], output: int, chips: tuple[int, int], load: float
) -> Posed:
    (batch, step), (before, after) = decoding, chips
    each = float(requests_per_second(batch, step, output))
    # each pool as the ratio of what it is asked to what one replica does
    prefills, decodes = math.ceil(rate * prefill / load - 1e-9), math.ceil(rate / each - 1e-9)
    answer = float(prefills * before + decodes * after)
    return Posed(
        ask=f"{rate:g} requests per second come. A prefill replica of {before} chips takes {amount(prefill, 's')} a "
        f"prompt and shall be busy {load:.0%} of the time at most; a decode replica of "
        f"{after} chips runs {batch} sequences with steps of {amount(step, 's')}, {output} steps a request, and "
        "may be full. How many chips do both pools take, in whole replicas?",
        answer=answer,
        whole=True,
        hints=(
            "Each pool by itself, rounded up.",
            "ceil(λ·p/load)·N_p + ceil(λ·d·O/B)·N_d.",
        ),
        steps=(
            f"prefill: {rate:g}·{prefill:g}/{load:g} = {number(rate * prefill / load)}, so {prefills} replicas",
            f"decode: {rate:g} / ({batch}/({step:g}·{output})) = {number(rate / each)}, so {decodes} replicas",
            f"{prefills}·{before} + {decodes}·{after} = {count(answer)} chips",
        ),
        traps=(
            Trap(float(prefills + decodes), "Those are replicas."),
            Trap(answer + before + after, "Round each pool up once."),
        ),
        check=f'dscale calc "ceil({rate:g}/s * {amount(prefill, "s")} / {load:g}) * {before} + ceil({rate:g}/s * '
        f'{amount(step, "s")} * {output} / {batch}) * {after}"',
    )


@problem(
    "disaggregation",
    "Waiting for a prefill replica",
    prefill=PREFILLS,
    load=(0.5, 0.6, 0.7, 0.8, 0.85, 0.9),
    replicas=(1, 2, 4),
)
def wait_before_prefill(prefill: float, load: float, replicas: int) -> Posed:
    answer = float(prompt_wait(prefill, load, replicas))
    many = (
        "One prefill replica takes" if replicas == 1 else f"{replicas} prefill replicas, dealt requests in turn, take"
    )
    return Posed(
        ask=f"{many} {amount(prefill, 's')} for every prompt; prompts come at random (Poisson) and each replica is "
        f"busy {load:.0%} of the time. How long does a prompt wait for those before it on "
        "average, by Kingman's "
        f"formula{'' if replicas == 1 else ' (every k-th arrival goes to a replica, so the variance of the gaps is 1/k)'}?",
        answer=answer,
        dimension="s",
        hints=("The wait grows without end as the load nears 1.", "p/(2·k) · load/(1 − load)."),
        steps=(
            f"load/(1 − load) = {number(load / (1 - load))}",
            f"{amount(prefill, 's')}/{2 * replicas} · {number(load / (1 - load))} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * 2, "All prompts are equally long: half of what random lengths would give."),
            Trap(prefill + answer, "That includes the prompt's own prefill."),
        ),
        check=f'dscale calc "prompt_wait({amount(prefill, "s")}, {load:g}, {replicas})"',
    )


@problem(
    "disaggregation",
    "Which pool is full first",
    prefill=PREFILLS,
    pools=((2, 1), (1, 1), (3, 1), (4, 1), (1, 2), (4, 3)),
    batch=BATCHES,
    output=OUTPUTS,
)
def pool_that_is_full(prefill: float, pools: tuple[int, int], batch: int, output: int) -> Posed | None:
    prefills, decodes = pools
    step = 0.019
    ratio = float(pool_ratio(prefill, batch, step, output))
    have = prefills / decodes
    if abs(have / ratio - 1) < 0.1:
        return None
    each = float(requests_per_second(batch, step, output))
    answer = "prefill" if have < ratio else "decode"
    return Posed(
        ask=f"{prefills} prefill replicas ({amount(prefill, 's')} a prompt) feed {decodes} decode replicas ({batch} "
        f"sequences, steps of {amount(step, 's')}, {output} steps a request). More and more "
        "requests come. Which pool is full first?",
        answer=answer,
        options=("prefill", "decode"),
        hints=("Compare the requests per second that each pool can do.", "k_p/p against k_d·B/(d·O)."),
        steps=(
            f"prefill: {prefills}/{amount(prefill, 's')} = {number(prefills / prefill)} requests/s",
            f"decode: {decodes}·{batch}/({amount(step, 's')}·{output}) = {number(decodes * each)} requests/s",
        ),
        check=f'dscale calc "{prefills} / {decodes} {"<" if have < ratio else ">"} pool_ratio({amount(prefill, "s")}, '
        f'{batch}, {amount(step, "s")}, {output})"',
    )
