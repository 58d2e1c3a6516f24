"""A plan that does not fit the devices, told in gigabytes: what it takes, what there is, what to change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from dragonscale.errors import Infeasible
from dragonscale.models.transformer import Transformer
from dragonscale.runtime.device_memory import asked_words, is_full
from dragonscale.runtime.train.planned import judged_here
from dragonscale.runtime.train.settings import Order


@contextmanager
def memory_errors(order: Order, model: Transformer, device: Any) -> Iterator[None]:
    """Memory that runs out, in a sentence."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_full(error):
            raise
        limit = (device.memory_stats() or {}).get("bytes_limit", 0)
        raise Infeasible(no_room(order, model, str(error), device.device_kind, limit)) from None


def no_room(order: Order, model: Transformer, text: str, kind: str, limit: float) -> str:
    """Of a plan whose step gave the error `text` on devices of a kind that let a program have `limit` bytes."""
    verdict = judged_here(order, model, kind)
    takes = "" if verdict is None else f"; it takes {verdict.hbm_bytes / 1e9:.1f} GB by the planner"
    has = f"the {limit / 1e9:.1f} GB" if limit else "the memory"
    ways = ["a smaller microbatch"] if order.plan.microbatch > 1 else []
    ways += ["remat=block"] if order.plan.remat != "block" else []
    ways += ["more devices"]
    return (
        f"The plan {order.plan} does not fit {has} that a program has on {kind}{takes}{asked_words(text)}; "
        f"take {', '.join(ways[:-1])}{' or ' if len(ways) > 1 else ''}{ways[-1]}."
    )
