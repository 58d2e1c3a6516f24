"""Prices as people pay them, list prices beside them, and `--price` in three commands."""

import json
import re
import statistics
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.physics.hardware import chip_names, load_chip
from dragonscale.physics.hardware.price_book import Tariff
from dragonscale.physics.hardware.prices import price_kind, price_text, read_prices, unpriced

CHIPS = [load_chip(name) for name in chip_names() if name not in ("h20", "h800")]
LISTED = ("gb300", "a10g", "t4")
"""GPUs whose only price is a large cloud's."""


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_a_price_is_at_most_the_list_price_and_dated(chip) -> None:
    assert chip.price > 0
    assert chip.list_price is None or chip.price <= chip.list_price  # no large cloud has some of them
    assert price_kind(chip) == ("market" if chip.kind == "gpu" and chip.name not in LISTED else "list")
    source = chip.sources[chip.facts["price"].source]
    assert "https://" in source
    assert price_text(chip).startswith("$")


def test_the_market_price_is_the_median_of_the_offers() -> None:
    for name in (
        "h100",
        "h200",
        "b200",
        "b300",
        "a100",
        "l40s",
        "mi300x",
        "l4",
        "mi325x",
        "gh200",
        "rtx3090",
        "rtx4090",
        "rtx5090",
        "rtxpro6000",
    ):
        fact = load_chip(name).facts["price"]
        offers = [other.value for other in fact.also if other.source != "book"]
        assert fact.value == pytest.approx(statistics.median(offers), abs=0.005), name


def test_newer_chips_cost_more_than_the_ones_they_follow() -> None:
    for one, other in (("a100", "h100"), ("h100", "h200"), ("h200", "b200"), ("b200", "b300"), ("mi300x", "mi355x")):
        assert load_chip(one).price < load_chip(other).price
        assert load_chip(one).list_price < load_chip(other).list_price


def test_a_chip_of_ones_own_has_no_list_price_of_its_base(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('base = "h100"\nname = "own"\ntitle = "Own"\nprice = "$1/h"\n')
    chip = load_chip(str(file))
    assert (chip.price, chip.list_price, price_text(chip)) == (1.0, None, "$1.00/h")
    assert read_prices("own=2/h", [chip])[0] == {"own": 2.0}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2.5/h", {"h100": 2.5}),
        ("$2.5/h", {"h100": 2.5}),
        ("h100=2.2/h", {"h100": 2.2}),
        ("h100-sxm = $2.2/h", {"h100": 2.2}),
        ("", {}),
    ],
)
def test_prices_are_read(text: str, found: dict[str, float]) -> None:
    assert read_prices(text, [load_chip("h100")]) == (found, [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("h10=2/h", "did you mean 'h100'"),
        ("2/h", "name them, --price h100=2/h,v5e=2/h"),
        ("h100=2", "no unit"),
        ("h100=cheap", "--price"),
        ("h100=2/h,h100-sxm=3/h", "twice"),
    ],
)
def test_what_is_no_price_is_refused_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        read_prices(text, [load_chip("h100"), load_chip("v5e")])


def test_chips_without_a_price_say_so() -> None:
    h20 = load_chip("h20")
    assert unpriced([h20]) == "No price is known for h20: ranked by chips; give --price h20=2/h."
    assert "after those with a price" in unpriced([h20, load_chip("h100")])
    assert unpriced([Tariff({"h20": 2.0}).paid(h20)]) == ""
    assert unpriced([Tariff({}, "spot").paid(h20)], kind="spot").startswith("No spot price is known for h20")


SMALL = {
    "serve": ["serve", "llama3-8b", "--on", "h20:1", "--batch", "8"],
    "simulate": ["simulate", "llama3-8b", "--on", "h20:1", "--rate", "1/s", "--requests", "50"],
    "train": [
        "train",
        "llama3-8b",
        "--on",
        "h20:8",
        "--batch",
        "64seq",
        "--seq",
        "2048",
        "--tokens",
        "1B",
        "--plan",
        "fsdp=8",
        "--alone",
    ],
}


@pytest.mark.parametrize("command", SMALL)
def test_every_command_takes_a_price_and_says_where_none_is_known(command: str, capsys: pytest.CaptureFixture) -> None:
    def told(*more: str) -> tuple[str, dict]:
        assert main([*SMALL[command], *more]) in (0, 4)
        text = capsys.readouterr().out
        main([*SMALL[command], *more, "--json"])
        return text, json.loads(capsys.readouterr().out)

    def cost(answer: dict) -> float | None:
        if command == "train":
            return answer["plans"][0]["cost_usd"]
        return (answer["rates"] if command == "simulate" else answer["configs"][0])["cost_usd_per_mtok"]

    text, answer = told()
    assert "No price is known for h20" in text.replace("\n", " ")
    assert cost(answer) is None
    text, one = told("--price", "2/h")
    assert "at $2.00/h given" in " ".join(text.split())
    _, twice = told("--price", "h20=4/h,v5e=1/h")
    assert cost(twice) == pytest.approx(2 * cost(one))
    assert twice["prices"][0]["kind"] == "given"
