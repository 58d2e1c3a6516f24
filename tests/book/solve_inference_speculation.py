"""Solutions of the chapter on inference: speculative sampling (appendix D)."""

import math
from typing import Any

from dragonscale.course.closed_forms.decode_floor import critical_batch, decode_times
from dragonscale.course.closed_forms.speculation import free_drafts, kept_tokens, loop_seconds, seconds_for
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of, solve_equal, symbol
from dragonscale.serving.steady.speculation import tokens_per_loop
from tests.book.casebook import solves


@solves("inference.appD_spec_sampling_times")
def times_of_the_figure(given: dict[str, Any]) -> dict[str, Any]:
    """The figure's acceptance is the part of a loop's K+1 tokens that is kept."""
    answer: dict[str, Any] = {}
    for name in ("xsum", "heval"):
        kept = [part * (drafts + 1) for part, drafts in zip(given[name], given["K"], strict=True)]
        times = [seconds_for(given["n"], loop, per) for loop, per in zip(given["loop_ms"], kept, strict=True)]
        answer |= {f"{name}_ms": times, f"{name}_best_K": given["K"][times.index(min(times))]}
        # One probability per draft, read off K = 1, gives the rest of the measured curve.
        right = kept[1] - 1
        assert all(
            math.isclose(tokens_per_loop(right, k), per, rel_tol=0.03) for k, per in zip(given["K"], kept, strict=True)
        )
    return answer


@solves("inference.appD_draft_cost")
def cost_of_a_draft(given: dict[str, Any]) -> dict[str, Any]:
    draft = symbol("t")
    return {"ms_per_draft": solve_equal(loop_seconds(given["t0"], draft, given["K"]), given["t7"], draft)[0]}


@solves("inference.appD_greedy_rule")
def greedy(given: dict[str, Any]) -> dict[str, Any]:
    return {"mismatch_at_3": kept_tokens(given["K"], first_wrong=3), "all_accepted": kept_tokens(given["K"])}


@solves("inference.appD_bounds")
def room_for_drafts(_: dict[str, Any]) -> dict[str, Any]:
    """Verifying K drafted tokens multiplies B·(K+1) tokens by the weights and reads each cache once."""
    v5e, drafts, cache = rates_of(load_chip("v5e")), 4, 163840 * 8192
    most = critical_batch(v5e)

    def longer(batch: float) -> float:
        """Seconds of a verifying step over those of a plain one."""
        once = decode_times(batch, cache, 70e9, 16, v5e)
        several = decode_times(batch * (drafts + 1), cache / (drafts + 1), 70e9, 16, v5e)
        assert math.isclose(several.cache, once.cache)
        return several.lower / once.lower

    batch = most / (drafts + 1)
    assert math.isclose(free_drafts(batch, most), drafts)
    assert math.isclose(longer(batch), 1)
    assert math.isclose(longer(batch / 2), 1)
    assert longer(most) > 1.5
    return {
        "answer": "when batch is limited below B_crit (small hardware or large KV caches), since spare FLOPs score "
        "extra tokens and KV loads are shared"
    }
