"""What an engine checks when it starts: that its KV cache holds one request of the longest that it is launched for."""

from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.serving.advice.bills import longest_request
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.space import slices_of


@dataclass(frozen=True)
class StartCheck:
    """What the launch of a given plan comes to. `refusal` says why the engine does not start and `remedy` what to
    change; `note` what it does not serve, where it starts all the same."""

    largest_context: int
    kv_cache_tokens: int
    refusal: str = ""
    remedy: str = ""
    note: str = ""


def start_check(job: ServingJob) -> StartCheck | None:
    """The check of another software's launch; None of a plan that names no longest request, or whose weights do not
    fit."""
    longest, plan = job.served_length, job.plan
    if longest is None or plan is None:
        return None
    chip, named_slice = job.targets[0]
    engine = job.engine_on(chip)
    memory = capacity(Deployment(job.model, named_slice or slices_of(chip)[0], plan, engine))
    if first_number(memory.cache) <= 0:
        return None
    check = StartCheck(
        largest_context=longest_request(job.model, memory),
        kv_cache_tokens=int(memory.printed_tokens(float(longest))),
    )
    if memory.largest_request(float(longest)) >= longest:
        return check
    if not engine.checks_length:  # it starts, and refuses longer requests when they come
        note = (
            f"The launch is for requests of up to {longest:,} tokens, and its KV cache holds no more than "
            f"{check.largest_context:,} tokens of one."
        )
        return replace(check, note=note)
    refusal = _refusal(job, engine, memory, longest)
    return replace(check, refusal=refusal, remedy=_remedy(engine, check.largest_context))


def _refusal(job: ServingJob, engine: Engine, memory: Capacity, longest: int) -> str:
    """Why an engine does not start, in its terms."""
    # bytes on a chip of one request on every data rank, in whole pages
    needed = first_number(memory.sequence(memory.in_pages(float(longest)))) * first_number(memory.places)
    whose = f"{engine.length_flag} is {longest:,}"
    if not job.length_said:
        whose = f"without {engine.length_flag} a request may have the model's {longest:,} tokens"
    return (
        f"{engine.title} refuses to start: {whose}, and one such request takes {render(needed, 'bytes')} of KV cache "
        f"on a chip, where {render(first_number(memory.cache), 'bytes')} are left for it."
    )


def _remedy(engine: Engine, largest: int) -> str:
    """What to launch instead; `largest` is the longest request that fits, in tokens."""
    if largest < 1:
        return "No request fits: take more chips, chips with more memory, or narrower formats."
    return (
        f"The largest that works is {engine.length_flag} {largest}. More chips, a larger part of the memory or a "
        "narrower KV cache hold more."
    )
