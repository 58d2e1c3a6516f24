"""Problems on the journey of a cache from one pool to the other."""

from dragonscale.course.closed_forms.pools import break_even_bandwidth, transfer_seconds
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import size
from dragonscale.course.words import amount, count, number
from dragonscale.models import kv_bytes_per_token, load_model
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.serving.table import port_bandwidth

MODELS = ("llama3-70b", "llama3-8b", "llama2-13b", "llama3.1-405b", "deepseek-v3", "qwen2.5-72b")
PROMPTS = (8192, 1024, 2048, 4096, 32768)
GPUS = ("h100", "h200", "b200", "a100", "v5e", "v6e", "v5p")


@problem(
    "disaggregation",
    "How long a cache travels",
    model=MODELS,
    prompt=PROMPTS,
    kv=("bf16", "fp8"),
    chip=GPUS,
    chips=(8, 1, 2, 4),
)
def journey_of_a_cache(model: str, prompt: int, kv: str, chip: str, chips: int) -> Posed:
    token = float(kv_bytes_per_token(load_model(model), kv))
    port = port_bandwidth(load_chip(chip))
    answer = float(transfer_seconds(token * prompt, chips * port))
    traps = [Trap(answer * 8, "Bandwidths here are bytes per second, not bits.")]
    if chips > 1:
        traps.append(Trap(answer * chips, "Every chip sends its part through a port of its own."))
    return Posed(
        ask=f"{model} keeps {amount(token, 'bytes', 5)} for a token in {kv}. A prompt of {count(prompt)} tokens was "
        f"prefilled on {chips} {chip}, each of which sends its part out of the node at "
        f"{amount(port, 'bytes/s')}, and the other side receives as fast. How long does the cache travel, latency "
        "left out?",
        answer=answer,
        dimension="s",
        hints=("Bytes of the prompt's cache over what all ports send.", "kv·T/(N·W)."),
        steps=(
            f"the cache: {amount(token, 'bytes', 5)}·{count(prompt)} = {size(token * prompt)}",
            f"{chips}·{amount(port, 'bytes/s')} = {amount(chips * port, 'bytes/s')}",
            f"{amount(answer, 's')}",
        ),
        traps=tuple(traps),
        check=f'dscale calc "transfer_seconds({size(token)} * {prompt}, {chips} * {amount(port, "bytes/s", 6)})"',
    )


@problem(
    "disaggregation",
    "Bandwidth between the pools",
    model=MODELS,
    prompt=PROMPTS,
    kv=("bf16", "fp8"),
    rate=(20.0, 5.0, 10.0, 50.0),
)
def bandwidth_between_pools(model: str, prompt: int, kv: str, rate: float) -> Posed:
    token = float(kv_bytes_per_token(load_model(model), kv))
    answer = token * prompt * rate
    seconds = float(transfer_seconds(token * prompt, answer))
    assert abs(seconds * rate - 1) < 1e-9
    return Posed(
        ask=f"{rate:g} requests per second with prompts of {count(prompt)} tokens go from a prefill pool to a decode "
        f"pool. {model} keeps {amount(token, 'bytes', 5)} for a token in {kv}. How many "
        "bytes per second travel between the pools?",
        answer=answer,
        dimension="bytes/s",
        hints=("Each request sends the cache of its prompt once.", "λ·kv·T."),
        steps=(
            f"a request: {amount(token, 'bytes', 5)}·{count(prompt)} = {size(token * prompt)}",
            f"times {rate:g}/s: {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(answer * 8, "That is bits per second."),
            Trap(answer * (2 / dtype_bytes(kv) if kv != "bf16" else 0.5), f"The cache is in {kv}."),
        ),
        check=f'dscale calc "{rate:g}/s * {size(token)} * {prompt}"',
    )


@problem(
    "disaggregation",
    "Sending a cache or computing it again",
    cache=((1.34e9, 0.91), (2.68e9, 0.91), (0.335e9, 0.23), (0.144e9, 0.12), (10.7e9, 3.6), (72e6, 0.143)),
    part=(1.0, 0.5, 0.25, 0.75, 0.9),
)
def link_that_breaks_even(cache: tuple[float, float], part: float) -> Posed:
    whole, prefill = cache
    held, time = whole * part, prefill * part
    answer = float(break_even_bandwidth(whole, prefill))
    said = "" if part == 1 else f" The first {part:.0%} of the prompt is cached elsewhere; count its share of both."
    return Posed(
        ask=f"A prompt's cache has {amount(whole, 'bytes')} and its prefill takes {amount(prefill, 's')}, both growing "
        f"with its length.{said} From which bandwidth on is fetching the cache from "
        "another replica faster than computing it?",
        answer=answer,
        dimension="bytes/s",
        hints=("Fetching takes bytes/W, computing takes the prefill.", "W = cache/p."),
        steps=(
            f"to fetch: {size(held)}; to compute: {amount(time, 's')}",
            f"{size(held)} / {amount(time, 's')} = {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(answer * 8, "That is bits per second."),
            Trap(answer * part if part != 1 else answer * 2, "Both the bytes and the time shrink with the part."),
        ),
        check=f'dscale calc "break_even_bandwidth({size(held)}, {amount(time, "s", 6)})"',
    )


@problem(
    "disaggregation",
    "The first token of a disaggregated request",
    prefill=(0.91, 0.23, 0.1, 0.35, 0.05),
    wait=(0.0, 0.05, 0.1, 0.2),
    cache=(1.34e9, 0.335e9, 2.68e9, 72e6),
    port=(25e9, 50e9, 100e9, 400e9, 3.125e9),
)
def first_token_of_two_pools(prefill: float, wait: float, cache: float, port: float) -> Posed:
    travel = float(transfer_seconds(cache, port))
    answer = wait + prefill + travel
    waited = "does not wait" if not wait else f"waits {amount(wait, 's')}"
    return Posed(
        ask=f"A prompt {waited} for a prefill replica, is prefilled in {amount(prefill, 's')}, and its cache of "
        f"{amount(cache, 'bytes')} then travels at {amount(port, 'bytes/s')}; the first token "
        "comes with it. What is the time to first token, the front end left out?",
        answer=answer,
        dimension="s",
        hints=("One after the other.", "wait + prefill + cache/W."),
        steps=(
            f"the journey: {size(cache)} / {amount(port, 'bytes/s')} = {amount(travel, 's')}",
            f"{amount(wait, 's')} + {amount(prefill, 's')} + {amount(travel, 's')} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(wait + prefill, "The cache has to travel."),
            Trap(wait + prefill + 8 * travel, "Bytes per second, not bits."),
        ),
        check=f'dscale calc "{amount(wait + prefill, "s", 6)} + transfer_seconds({size(cache)}, '
        f'{amount(port, "bytes/s", 6)})"',
    )


@problem(
    "disaggregation",
    "A narrower cache between the pools",
    kv=(("bf16", "fp8"), ("fp8", "bf16"), ("bf16", "int4"), ("fp8", "int4")),
    model=MODELS[:3],
    prompt=PROMPTS,
)
def bytes_saved_by_a_narrow_cache(kv: tuple[str, str], model: str, prompt: int) -> Posed:
    one, other = kv
    sizes = [float(kv_bytes_per_token(load_model(model), dtype)) * prompt for dtype in kv]
    answer = sizes[0] / sizes[1]
    return Posed(
        ask=f"The pools send prompts' caches of {model}, {count(prompt)} tokens each. By which factor does the journey "
        f"shorten (below 1: grow) if both pools keep it in {other} instead of {one}, scales left out?",
        answer=answer,
        hints=("The time goes with the bytes of a number.", "bytes of one format over bytes of the other."),
        steps=(f"{one}: {size(sizes[0])}, {other}: {size(sizes[1])}", f"{number(answer)}"),
        traps=(Trap(1 / answer, "The other way round."), Trap(answer**2, "Keys and values shrink alike, once.")),
        check=f'dscale calc "{size(sizes[0])} / {size(sizes[1])}"',
    )
