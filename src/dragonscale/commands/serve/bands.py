"""How far expectations have been from measurements, for servers of one kind: the bands around a configuration's
numbers, and in a sentence what they rest on (`dragonscale.serving.space.bands`)."""

import functools

from dragonscale.commands.serve.serve_records import ConfigReport
from dragonscale.commands.serve.variant_records import ExpectedError
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.space.bands import MEASURES, ServedBand, ServedKind, band_of, fitted_kernels, is_moe
from dragonscale.serving.space.frontier import Config
from dragonscale.training.search.error_bands import kind_name

# The measures whose bands an answer shows.
SHOWN = {"tpot": "TPOT", "ttft": "TTFT", "tokens": "tokens/s"}


def kind_of(job: ServingJob, config: Config) -> ServedKind:
    """The kind of server that a configuration is, by which errors are known."""
    return ServedKind(config.piece.chip.name, config.engine, is_moe(job.model))


@functools.cache
def bands_for(kind: ServedKind) -> dict[str, ServedBand]:
    """The band of each measure."""
    return {measure: band_of(kind, measure) for measure in MEASURES}


def add_bands(row: ConfigReport, kind: ServedKind) -> None:
    """Put the bands of its kind around a configuration's numbers."""
    bands = bands_for(kind)
    row.tpot_low_s, row.tpot_high_s = bands["tpot"].around(row.tpot_s)
    row.ttft_low_s, row.ttft_high_s = bands["ttft"].around(row.ttft_s)
    row.tokens_low, row.tokens_high = bands["tokens"].around(row.output_tokens_per_s_per_chip)
    row.estimated = [measure for measure in SHOWN if bands[measure].estimated]


def expected_error(kind: ServedKind) -> ExpectedError:
    """The median errors of a kind of server; null where nothing like it was measured.

    >>> expected_error(ServedKind("mi355x", "sglang", True)).tpot
    """
    medians: dict[str, float | None] = {}
    for measure, band in bands_for(kind).items():
        medians[measure] = None if band.estimated else band.median
    return ExpectedError(
        latency=medians["step"],
        throughput=medians["tokens"],
        tpot=medians["tpot"],
        ttft=medians["ttft"],
        source=rests_on(kind),
        brief=rests_briefly_on(kind),
    )


def rests_briefly_on(kind: ServedKind) -> str:
    """The largest group of runs that the bands rest on, and whether any was of such a chip."""
    bands = [bands_for(kind)[measure] for measure in SHOWN]
    largest = max(bands, key=lambda band: band.runs)
    runs = f"{largest.runs:,} published {kind_name(largest.name)}"
    if not any(band.estimated for band in bands):
        return f"80% intervals of {runs}"
    if fitted_kernels(kind.chip):
        return f"a guess, as no such run on {kind.chip} was measured: 80% intervals of {runs}"
    return f"a guess, as no run or kernel of {kind.chip} was measured; 80% intervals of {runs}"


def rests_on(kind: ServedKind) -> str:
    """What the bands of TPOT, TTFT and rates rest on."""
    bands = bands_for(kind)
    # measures by the runs that they share
    measures: dict[str, list[str]] = {}
    for measure, name in SHOWN.items():
        band = bands[measure]
        runs = f"{band.runs:,} {kind_name(band.name)}"
        if band.bias:  # nearly all runs were on one side of what was expected
            side = "above" if band.bias > 0 else "below"
            runs += f", nearly all {abs(band.bias):.0%} or more {side} what is expected"
        measures.setdefault(runs, []).append(name)
    sources = ", ".join(f"{runs} ({', '.join(names)})" for runs, names in measures.items())

    guessed = [name for measure, name in SHOWN.items() if bands[measure].estimated]
    if not guessed:
        return sources
    which = "a guess" if len(guessed) == len(SHOWN) else f"{' and '.join(guessed)} are a guess"
    why = f"no such run on {kind.chip} was measured"
    if not fitted_kernels(kind.chip):
        why += ", and its kernels' efficiencies are assumed"
    return f"{which}: {why}; 80% intervals from {sources}"
