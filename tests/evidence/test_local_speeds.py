"""Published speeds of engines for one's own machine, of chips and models that were not used for the constants, and the
bands that answers state. `python -m tests.evidence.test_local_speeds` writes the bands."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median

import pytest

from dragonscale.evidence.local_speeds import LocalSpeed, error_tables, errors, read_speeds
from dragonscale.plan.settings import shipped_table

ROWS = read_speeds(Path(__file__).with_name("data") / "local_speeds.csv")
HELD_OUT = [row for row in ROWS if row.use == "check"]
BANDS = Path(__file__).parents[2] / "src/dragonscale/serving/space/local_errors.toml"
HEAD = """\
# How far published speeds of engines for one's own machine were from what was expected of them, by kind of run, over rows
# that were not used for the constants (tests/evidence/data/local_speeds.csv). Columns as in errors.toml. Written by
# `python -m tests.evidence.test_local_speeds`.
"""


def _median_error(rows: Iterable[LocalSpeed]) -> float:
    return median(map(abs, errors(rows)))


def test_there_are_enough_rows_with_sources() -> None:
    assert len(ROWS) >= 60
    assert all("/" in row.source and row.tokens_per_s > 0 for row in ROWS)
    assert {row.use for row in ROWS} == {"fit", "check"}


@pytest.mark.parametrize(("test", "limit"), [("tg", 0.12), ("pp", 0.15)])
def test_speeds_that_no_constant_was_fitted_on(test: str, limit: float) -> None:
    assert _median_error(row for row in HELD_OUT if row.test == test) < limit


@pytest.mark.parametrize(
    ("engine", "chip"), [("llama.cpp", "m2ultra"), ("llama.cpp", "rtx4090"), ("exllamav2", "rtx4090")]
)
def test_generation_on_single_chips(engine: str, chip: str) -> None:
    rows = [row for row in ROWS if (row.engine, row.chip, row.test, row.gpus) == (engine, chip, "tg", 1)]
    assert len(rows) >= 3
    assert _median_error(rows) < 0.15


def test_four_bits_are_as_much_quicker_on_a_mac_as_measured() -> None:
    # 94.27 against 41.02 tokens a second on an M2 Ultra: 2.3 times
    by_format = {row.format: row for row in ROWS if (row.chip, row.test, row.model) == ("m2ultra", "tg", "llama2-7b")}
    four, sixteen = (1 + errors([by_format[name]])[0] for name in ("q4_0", "fp16"))
    expected = four * by_format["q4_0"].tokens_per_s / (sixteen * by_format["fp16"].tokens_per_s)
    assert expected == pytest.approx(94.27 / 41.02, rel=0.1)


def test_bands_of_answers_are_those_of_these_rows() -> None:
    shipped = shipped_table("serving.space", "local_errors.toml")
    for measure, kinds in error_tables(ROWS).items():
        assert kinds.keys() == shipped[measure].keys()
        for kind, values in kinds.items():
            assert shipped[measure][kind] == pytest.approx(values, abs=0.002), (measure, kind)


def _written() -> str:
    text = HEAD
    for measure, kinds in error_tables(ROWS).items():
        text += f"\n[{measure}]\n"
        for kind, band in kinds.items():
            numbers = ", ".join(f"{name} = {band[name]:.3f}" for name in ("low", "high", "median"))
            text += f'"{kind}" = {{ runs = {band["runs"]}, {numbers} }}\n'
    return text


if __name__ == "__main__":
    BANDS.write_text(_written(), encoding="utf-8")
