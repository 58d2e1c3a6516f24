"""A sheet fits every width, says the same with and without colour, and passes nothing on that steers a terminal."""

import re

import pytest

from dragonscale.blocks.html import html_of
from dragonscale.blocks.sheet import (
    BarPart,
    Column,
    NextStep,
    Prose,
    Sheet,
    StackedBar,
    Title,
    facts,
    folded,
    records,
    table,
)
from dragonscale.blocks.terminal import text_of

SGR = re.compile(r"\x1b\[[0-9;]*m")
LONG = "fsdp256 tp2 pp4 cp2 ep8 mb2 v4 z3 selective interleaved ring, " * 3
ROWS = [(1, "6.75s", 0.9, LONG), (2, "10.2s", 0.3, "tp8")]
COLUMNS = ["#", Column("step", right=True), Column("share", bar=True, keep=2), Column("plan", wrap=True)]
SHEET = Sheet(
    (
        Title("llama3-70b on h100:512", "4,194,304 tokens a step " * 6),
        facts(("plan", LONG, "key"), ("bound by", "compute; see `dscale explain train`")),
        StackedBar("time", tuple(BarPart(f"part {n}", 1.0, "1s", "+2s overlapped") for n in range(4)), 4.0, "4s"),
        StackedBar("memory", (BarPart("weights", 60.0, "60GB"),), 80.0, "60 of 80GB", "line", "warn"),
        table(COLUMNS, ROWS, "plans", "by: r `dscale run` takes it"),
        Prose("A sentence that is long enough to need several lines on a narrow terminal. " * 3),
    )
)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_line_fits_and_the_width_is_used(width: int) -> None:
    lines = text_of(SHEET, width).split("\n")
    assert max(map(len, lines)) <= width
    if width > 60:
        assert max(map(len, lines)) > 0.7 * min(width, 120)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_colour_changes_nothing_but_colour(width: int) -> None:
    plain, coloured = text_of(SHEET, width), text_of(SHEET, width, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    # fills tell parts apart without colour, and commands lose their backticks with it
    same = SGR.sub("", coloured)
    for fill in "▓▒░▚":
        plain = plain.replace(fill, "█")
    words = lambda text: [word.strip("`") for word in text.split()]  # noqa: E731
    assert words(same) == words(plain)


def test_a_column_that_matters_less_goes_first() -> None:
    assert "share" in text_of(Sheet((table(COLUMNS, ROWS),)), 80)
    wide = [*COLUMNS[:3], Column("plan")]
    assert "share" not in text_of(Sheet((table(wide, [(1, "6.75s", 0.9, "x" * 50)]),)), 60)


def test_a_bar_has_the_length_of_its_parts_and_passes_its_limit() -> None:
    over = StackedBar("memory", (BarPart("a", 60.0, "60GB"), BarPart("b", 60.0, "60GB")), 80.0, "120 of 80GB")
    bar = text_of(Sheet((over,)), 80).split("|")[1]
    assert bar.count("█") == bar.count("▓") == len(bar) // 2


def test_nothing_steers_the_terminal_and_nothing_breaks_out_of_html() -> None:
    hostile = "</script><script>\x1b[2Jalert(1)"
    sheet = Sheet(
        (
            Title(hostile, hostile),
            facts((hostile, hostile)),
            StackedBar(hostile, (BarPart(hostile, 1.0, hostile),), 1.0, hostile),
            table([hostile], [[hostile]], hostile, hostile),
            Prose(hostile),
            NextStep(hostile, hostile),
        )
    )
    assert "\x1b" not in text_of(sheet, 80)
    assert "\x1b" not in SGR.sub("", text_of(sheet, 80, colour=True))
    assert "<script" not in html_of(sheet)


def test_folding_keeps_the_sum() -> None:
    parts = [BarPart(str(n), float(n), f"{n}s") for n in range(1, 15)]
    kept = folded(parts, "s", 8)
    assert len(kept) == 8
    assert sum(part.value for part in kept) == sum(part.value for part in parts)
    assert kept[-1].name == "the rest"


def test_records_print_units_and_dashes() -> None:
    from types import SimpleNamespace as Row

    rows = [Row(name="v5e", hbm=16e9), Row(name="new", hbm=None)]
    text = text_of(Sheet((records(rows, {"chip": "name", "HBM": ("hbm", "bytes")}),)), 80)
    assert text.split("\n")[1:] == ["v5e   16GB", "new      –"]
