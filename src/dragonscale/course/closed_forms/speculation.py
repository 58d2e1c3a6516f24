"""Speculation on the back of an envelope: what a loop of drafting and verifying yields, and when it is free.

A loop drafts K tokens and verifies them in one pass of the target. Verified tokens are kept up to the first wrong one,
which the target corrects; if none is wrong the target adds one. So a loop yields between 1 and K+1 tokens. If each
draft is right with probability `a`, whatever came before, the mean is 1 + a + … + a^K; measured acceptances follow this
closely.

>>> round(tokens_per_loop(0.75, 3), 3), kept_tokens(4, first_wrong=3), kept_tokens(4)
(2.734, 3, 5)
>>> best_drafts(14.1, 2.057, 0.75), best_drafts(14.1, 2.057, 0.89, most=7)
(4, 7)
"""

from dragonscale.errors import InputError
from dragonscale.physics.numbers import Number
from dragonscale.serving.steady.speculation import tokens_per_loop


def kept_tokens(drafts: int, first_wrong: int | None = None) -> int:
    """Tokens of one loop whose first wrong draft has this number (1: the very first), or has none."""
    if first_wrong is None:
        return drafts + 1
    if not 1 <= first_wrong <= drafts:
        raise InputError(f"The first wrong of {drafts} drafts is one of 1 to {drafts}, not {first_wrong}.")
    return first_wrong


def loop_seconds(target: Number, draft: Number, drafts: Number) -> Number:
    """One loop: the drafts one after the other, then one pass of the target, which takes as long as for a single token
    while the tokens to verify stay below the critical batch."""
    return target + draft * drafts


def seconds_for(tokens: Number, loop: Number, per_loop: Number) -> Number:
    """The time of so many tokens at so many per loop."""
    return tokens / per_loop * loop


def best_drafts(target: Number, draft: Number, acceptance: Number, most: int = 16) -> int:
    """How many tokens to draft for the least time per token: 0 where drafting only costs."""
    return min(
        range(most + 1),
        key=lambda drafts: seconds_for(1, loop_seconds(target, draft, drafts), tokens_per_loop(acceptance, drafts)),
    )


def free_drafts(batch: Number, critical: Number) -> Number:
    """Drafts per sequence that cost the target nothing to verify, not rounded: with them the batch has as many tokens
    as compute needs to bind. Below 0 the batch alone has more.

    >>> free_drafts(48, 240)
    4.0
    """
    return critical / batch - 1
