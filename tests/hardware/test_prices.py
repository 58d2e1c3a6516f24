"""Prices as people pay them, list prices beside them, and `--price` in three commands."""

import json
import re
import statistics
from pathlib import Path

import pytest

from dragonscale.commands.questions import shared
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.physics.hardware import chip_names, load_chip, parse_target, price_book
from dragonscale.physics.hardware.price_book import Owned, Tariff, read_owned
from dragonscale.physics.hardware.prices import (
    price_date,
    price_kind,
    price_text,
    priced_targets,
    read_prices,
    unpriced,
)
from dragonscale.tables import beside

CHIPS = [load_chip(name) for name in chip_names() if load_chip(name).price is not None]
LISTED = ("gb300", "a10g", "t4", "mi355x")
"""GPUs whose only price on demand is a large cloud's."""


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
    ("own", "price"),
    [
        ('[memory.hbm]\ncapacity = "96GB"\n', None),
        ('[matrix]\nbf16 = "900TFLOP/s"\n', None),
        ('pcie = "9GB/s"\n', 3.99),
    ],
)
def test_a_chip_with_other_memory_or_rates_is_not_to_be_had_at_the_price_of_its_base(
    own: str, price: float | None, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'base = "h100"\nname = "own"\n{own}')
    chip = load_chip(str(file))
    assert chip.price == price
    assert (chip.list_price is None) is (price is None)


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

    text, answer = told("--explain")
    assert "No price is known for h20" in text.replace("\n", " ")
    assert cost(answer) is None
    text, one = told("--price", "2/h", "--explain")
    assert "at $2.00/h given" in " ".join(text.split())
    _, twice = told("--price", "h20=4/h,v5e=1/h")
    assert cost(twice) == pytest.approx(2 * cost(one))
    assert twice["prices"][0]["kind"] == "given"


def test_every_price_of_the_book_has_its_source_and_is_below_the_list() -> None:
    table = beside(price_book.__file__, "prices.toml")
    assert set(table["book"]) <= set(chip_names())
    for name, rows in table["book"].items():
        chip = load_chip(name)
        for row in rows:
            assert row["source"] in table["sources"]
            assert row["kind"] in (*price_book.KINDS, price_book.BUY)
            assert row["usd"] < row.get("high", 1e9)
            if row["kind"] in ("1y", "3y", "spot", "reserved"):
                highest = max(offer.usd_per_h for offer in price_book.price_book(chip) if offer.kind != "buy")
                assert 0.05 * highest < row["usd"] < highest
        spot, years = (Tariff({}, kind).paid(chip).price for kind in ("spot", "3y"))
        assert spot is None or spot < chip.price
        assert years is None or years < chip.list_price
    assert all(one["source"] in table["sources"] for one in table["site"].values())
    assert shared.KINDS == price_book.KINDS


def test_ways_to_pay_are_ordered_and_told() -> None:
    h100 = load_chip("h100")
    prices = [Tariff({}, kind).paid(h100).price for kind in ("spot", "low", "on-demand", "3y", "list", "1y", "high")]
    assert prices == sorted(prices)
    assert price_text(Tariff({}, "spot").paid(h100)) == "$2.37/h spot, 2026-09; on demand $3.99"
    assert Tariff({}, "1y").paid(load_chip("rtx4090")).price is None
    assert Tariff({"h100": 1.0}, "spot").paid(h100).price == 1.0


def test_a_chip_in_a_larger_machine_costs_more() -> None:
    prices = {many: priced_targets("", [parse_target(f"a10g:{many}")])[0][0][1].chip.price for many in (1, 2, 4, 8, 16)}
    assert prices == {1: 1.006, 2: 1.418, 4: 1.418, 8: 2.036, 16: 2.036}
    assert priced_targets("3/h", [parse_target("t4:8")])[0][0][0].price == 3


def test_an_owned_chip_costs_capital_and_power() -> None:
    h100 = load_chip("h100")
    owned = read_owned("$30k/4y,0.1/kWh,pue=1.2,busy=0.5")
    assert price_book.owned_price(h100, owned) == pytest.approx(30000 / (4 * 8766 * 0.5) + 0.7 * 1.8 * 1.2 * 0.1)
    assert price_book.owned_price(h100, Owned(1, 1)) < price_book.owned_price(load_chip("b200"), Owned(1, 1))
    assert Tariff({}, "owned").paid(h100).price == pytest.approx(1.64, abs=0.01)
    parts = "$1.71 capital over 4 years of 50% use, $0.15 power with host and cooling"
    paid = Tariff({}, "owned", owned).paid(h100)
    assert price_text(paid) == f"$1.86/h owned ({parts}); on demand $3.99"
    assert price_date(paid) == ""
    assert Tariff({}, "owned").paid(load_chip("v5p")).price is None
    for text in ("30000", "30000/0", "x/4", "30k/4,pue=0.5", "30k/4,green"):
        with pytest.raises(InputError, match="--owned"):
            read_owned(text)
    with pytest.raises(InputError, match="leave out either"):
        priced_targets("", [(h100, None)], "spot", "30k/4")


def test_commands_take_a_way_to_pay(capsys: pytest.CaptureFixture) -> None:
    def costs(command: str, *more: str) -> float:
        words = [word.replace("h20", "h100") for word in SMALL[command]]
        assert main([*words, *more, "--json"]) in (0, 4)
        answer = json.loads(capsys.readouterr().out)
        return (answer["rates"] if command == "simulate" else answer["configs"][0])["cost_usd_per_mtok"]

    for command in ("serve", "simulate"):
        usual = costs(command)
        assert costs(command, "--pricing", "spot") == pytest.approx(usual * 2.37 / 3.99)
        assert costs(command, "--owned", "30k/4") == pytest.approx(usual * 1.0817 / 3.99, rel=1e-3)


def test_slices_are_ranked_by_the_way_they_are_paid(capsys: pytest.CaptureFixture) -> None:
    words = ["train", "llama3-8b", "--on", "h100:8,mi300x:8", "--batch", "64seq", "--seq", "2048", "--rank", "cost"]
    ratios = []
    for pricing in ("list", "3y"):
        assert main([*words, "--pricing", pricing, "--json"]) == 0
        rows = {row["slice"]: row["usd_per_mtok"] for row in json.loads(capsys.readouterr().out)["slices"]}
        ratios.append(rows["h100:8"] / rows["mi300x:8"])
    assert ratios[0] / ratios[1] == pytest.approx(6.88 / 6.00 / (4.86 / 2.63))


def test_a_chip_shows_its_book(capsys: pytest.CaptureFixture) -> None:
    assert main(["chips", "h100"]) == 0
    told = capsys.readouterr().out
    assert "The price book" in told
    assert "2.72 to 3.26" in told
    main(["chips", "h100", "--json"])
    book = json.loads(capsys.readouterr().out)["book"]
    assert {offer["kind"] for offer in book} == {"on-demand", "list", "1y", "3y", "reserved", "spot", "buy"}
    assert all(offer["date"] and offer["provider"] for offer in book)
