"""How surely a configuration meets its targets: an expected TTFT or TPOT is the middle of a band, and the search takes
batches up to the very target, so that the band's slow end is often beyond it. And what was aimed at where no target was
given."""

from dragonscale.app.serve.records import ConfigReport, ServeRequest
from dragonscale.physics.units import render


def beyond(expected: float, high: float | None, target: float | None) -> bool:
    """Whether a target is met in the middle of a band and missed at its slow end.

    >>> (
    ...     beyond(0.039, 0.046, 0.040),
    ...     beyond(0.030, 0.035, 0.040),
    ...     beyond(0.041, 0.046, 0.040),
    ...     beyond(0.039, None, 0.040),
    ... )
    (True, False, False, False)
    """
    return target is not None and high is not None and expected <= target < high


def near_misses(work: ServeRequest, one: ConfigReport) -> list[tuple[str, float, float, float]]:
    """The targets that are met in the middle of a band alone: name, what is expected, the band's slow end and the
    target."""
    rows = [("TTFT", one.ttft_s, one.ttft_high_s, work.ttft_s)]
    rows += [("TPOT", one.tpot_s, one.tpot_high_s, work.tpot_s)] if work.output > 1 else []
    return [
        (name, value, high or 0.0, target or 0.0) for name, value, high, target in rows if beyond(value, high, target)
    ]


def margin_notes(work: ServeRequest, one: ConfigReport) -> list[str]:
    """Targets that are met in the middle of the band alone; that there was none to meet."""
    if work.ttft_s is None and work.tpot_s is None:
        most = "the lowest cost per token" if one.cost_usd_per_mtok is not None else "the most tokens per chip"
        most = f"the cheapest fleet for {work.rate_per_s:,.3g} requests/s" if work.rate_per_s else most
        return [
            f"No target was given, so this is the point of {most}, however long users wait; --ttft and --tpot set one."
        ]
    near = near_misses(work, one)
    if not near:
        return []
    ends = " and ".join(f"{name} of {render(high, 's')}" for name, _, high, _ in near)
    lower = " ".join(f"--{name.lower()} {render(target * value / high, 's')}" for name, value, high, target in near)
    held = "" if one.estimated else "; the band holds 4 of 5 published runs of this kind"
    return [
        f"The target is met at the middle of the band and missed at its slow end ({ends}{held}); TTFT and TPOT "
        "are means of requests, "
        f"not percentiles. {lower} would leave room."
    ]
