"""What an engine checks when it starts: that its KV cache holds one request of the longest that it is launched for."""

from dataclasses import dataclass, replace

from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.physics.units import render
from dragonscale.serving.advice.bills import longest_request, scalar
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


def start_check(asked: ServeAsked) -> StartCheck | None:
    """The check of another software's launch; None of a plan that names no longest request, or whose weights do not
    fit."""
    longest, plan = asked.served_length, asked.plan
    if longest is None or plan is None:
        return None
    chip, piece = asked.targets[0]
    engine = asked.engine_on(chip)
    room = capacity(Deployment(asked.model, piece or slices_of(chip)[0], plan, engine))
    if scalar(room.cache) <= 0:
        return None
    check = StartCheck(
        largest_context=longest_request(asked.model, room),
        kv_cache_tokens=int(room.printed_tokens(float(longest))),
    )
    if room.largest_request(float(longest)) >= longest:
        return check
    if not engine.checks_length:
        return replace(check, note=LONGER.format(longest, check.largest_context))
    refusal = _refusal(asked, engine, room, longest)
    return replace(check, refusal=refusal, remedy=_remedy(engine, check.largest_context))


LONGER = "The launch is for requests of up to {:,} tokens, and its KV cache holds no more than {:,} tokens of one."


def _refusal(asked: ServeAsked, engine: Engine, room: Capacity, longest: int) -> str:
    """Why an engine does not start, in its terms."""
    need = scalar(room.sequence(room.in_pages(float(longest)))) * scalar(room.places)
    whose = f"{engine.length_flag} is {longest:,}"
    if not asked.length_said:
        whose = f"without {engine.length_flag} a request may have the model's {longest:,} tokens"
    return (
        f"{engine.title} refuses to start: {whose}, and one such request takes {render(need, 'bytes')} of KV cache on "
        f"a chip, where {render(scalar(room.cache), 'bytes')} are left for it."
    )


def _remedy(engine: Engine, works: int) -> str:
    """What to launch instead."""
    if works < 1:
        return "No request fits: take more chips, chips with more memory, or narrower formats."
    return (
        f"The largest that works is {engine.length_flag} {works}. More chips, a larger part of the memory or a "
        "narrower KV cache hold more."
    )
