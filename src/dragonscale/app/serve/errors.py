"""How far expectations have been from measurements, for servers of one kind: the bands around an answer, and in a
sentence what they rest on (`dragonscale.serving.bands`)."""

import functools

from dragonscale.app.serve.records import ConfigReport, ExpectedError
from dragonscale.serving.bands import MEASURES, ServedBand, ServedKind, band_of, fitted_kernels, kind_name

SHOWN = {"tpot": "TPOT", "ttft": "TTFT", "tokens": "tokens/s"}


@functools.cache
def bands_for(kind: ServedKind) -> dict[str, ServedBand]:
    """The band of each number."""
    return {measure: band_of(kind, measure) for measure in MEASURES}


def expected_error(kind: ServedKind) -> ExpectedError:
    """The median errors of a kind of server; null where nothing like it was measured.

    >>> expected_error(ServedKind("mi355x", "sglang", True)).tpot
    """
    bands = bands_for(kind)
    known = {measure: None if band.estimated else band.median for measure, band in bands.items()}
    return ExpectedError(known["step"], known["tokens"], known["tpot"], known["ttft"], rests_on(kind))


def rests_on(kind: ServedKind) -> str:
    """What the bands of TPOT, TTFT and rates rest on."""
    bands = {measure: bands_for(kind)[measure] for measure in SHOWN}
    guessed = [SHOWN[measure] for measure, band in bands.items() if band.estimated]
    parts: dict[tuple[int, str], list[str]] = {}
    for measure, band in bands.items():
        parts.setdefault((band.runs, kind_name(band.name)), []).append(SHOWN[measure])
    found = "; ".join(f"{', '.join(names)}: {runs:,} {name}" for (runs, name), names in parts.items())
    if not guessed:
        return found
    which = "" if len(guessed) == len(SHOWN) else f"{' and '.join(guessed)} "
    why = f"no such run on {kind.chip} was measured"
    why += "" if fitted_kernels(kind.chip) else ", the rates of its kernels are chosen"
    return f"{which}estimated, not fitted: {why} ({found})"


def add_bands(report: ConfigReport, kind: ServedKind) -> None:
    """Put the bands of its kind around a configuration's numbers."""
    bands = bands_for(kind)
    report.tpot_low_s, report.tpot_high_s = bands["tpot"].around(report.tpot_s)
    report.ttft_low_s, report.ttft_high_s = bands["ttft"].around(report.ttft_s)
    report.tokens_low, report.tokens_high = bands["tokens"].around(report.output_tokens_per_s_per_chip)
    report.estimated = [measure for measure in SHOWN if bands[measure].estimated]
