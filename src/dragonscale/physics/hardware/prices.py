"""What an hour of a chip costs: as people pay it, as the large clouds list it, or as it was given.

`--price 2.5/h` is the price of the one chip that is asked about; `--price h100=2.2/h,v5e=1.1/h` names several.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.price_book import KINDS, OWNED, Tariff, read_kind
from dragonscale.physics.hardware.slices import Slice
from dragonscale.physics.units import parse

GIVEN = "--price"
MARKET = "market"
"""The source under which chip files give the median of what people pay."""
MOST = 1e6


class StrangePrice(str):
    """A note on the price of a chip that is not asked about, which is of interest over all sides of a comparison."""


def read_prices(text: str, chips: Iterable[Chip]) -> tuple[dict[str, float], list[str]]:
    """Dollars for an hour of each chip that is named, and a note for each that nobody asked about.

    >>> read_prices("h100=2.2/h, v5e=$1.1/h", [load_chip("h100"), load_chip("v5e")])
    ({'h100': 2.2, 'v5e': 1.1}, [])
    """
    asked = {chip.name: chip for chip in chips}
    prices: dict[str, float] = {}
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        name, equals, written = (piece.strip() for piece in part.partition("="))
        if not equals:
            if len(asked) != 1:
                named = ",".join(f"{one}=2/h" for one in [*asked][:2])
                raise InputError(
                    f"--price is {shorten(text)} and {len(asked)} chips are compared: name them, --price {named}."
                )
            name, written = next(iter(asked)), part
        key = name if name in asked else load_chip(name).name
        if key in prices:
            raise InputError(f"--price is {shorten(text)}, which gives the price of {key} twice.")
        prices[key] = _price(written)
    strange = [name for name in prices if name not in asked]
    return prices, [StrangePrice(f"--price names {name}, which is not asked about.") for name in strange]


def _price(text: str) -> float:
    if text.lstrip("$ ").startswith("-"):
        raise InputError(
            f"--price is {shorten(text)}, which is negative; write what a chip costs for an hour, such as 2.5/h."
        )
    bare = re.fullmatch(r"[\d.eE+-]+\s*/\s*(h|hour)", text)
    price = parse(f"${text}" if bare else text, "USD/h", "--price")
    if not 0 <= price < MOST:
        raise InputError(f"--price is {shorten(text)}; write what a chip costs for an hour, such as 2.5/h.")
    return price


Target = tuple[Chip, Slice | None]


def read_tariff(price: str, chips: Iterable[Chip], pricing: str = "", owned: str = "") -> tuple[Tariff, list[str]]:
    """How chips are paid for by `--price`, `--pricing` and `--owned`, and notes on that."""
    every = list(chips)
    prices, notes = read_prices(price, every)
    return Tariff(prices, *read_kind(pricing, owned, every)), notes


def slice_at_price(piece: Slice, tariff: Tariff) -> Slice:
    """The slice with its chips at what they are paid for."""
    return replace(piece, chip=tariff.paid(piece.chip, piece.chips))


def priced_targets(
    price: str, targets: Iterable[Target], pricing: str = "", owned: str = ""
) -> tuple[tuple[Target, ...], list[str]]:
    """Chips, each with its slice where one was named, at their prices, and notes on that."""
    found = tuple(targets)
    tariff, notes = read_tariff(price, (chip for chip, _ in found), pricing, owned)
    paid = ((tariff.paid(chip, at.chips if at else 1), at and slice_at_price(at, tariff)) for chip, at in found)
    return tuple(paid), notes


def price_date(chip: Chip) -> str:
    """The year and month of the price's source, as its file says."""
    fact = chip.facts.get("price")
    if fact is not None and fact.source in KINDS:
        return "" if fact.source == OWNED else fact.note
    found = re.findall(r"\((\d{4}(?:-\d\d)*)\)", chip.sources.get(fact.source, "")) if fact else []
    return found[-1] if found else ""


def price_kind(chip: Chip) -> str:
    """Whose price it is: `market`, `list`, `given` by the asker, or empty where none or nothing more is known."""
    fact = chip.facts.get("price")
    if chip.price is None or fact is None:
        return ""
    if fact.source == GIVEN:
        return "given"
    if fact.source == MARKET or fact.source in KINDS:
        return fact.source
    return "list" if chip.price == chip.list_price else ""


def price_text(chip: Chip) -> str:
    """The price in a few words.

    >>> price_text(load_chip("h100")), price_text(load_chip("v5e"))
    ('$3.99/h market, 2026-11; list $6.88', '$1.20/h list, 2025-02')
    """
    if chip.price is None:
        return "no price known"
    kind, date = price_kind(chip), price_date(chip)
    words = f"${chip.price:,.2f}/h" + (f" {kind}" if kind else "") + (f", {date}" if date else "")
    known = chip.list_price is not None and kind != "list"
    fact = chip.facts.get("price")
    words += f" ({fact.note})" if fact is not None and fact.source == OWNED else ""
    if fact is not None and fact.source in KINDS and fact.also:
        return f"{words}; on demand ${fact.also[0].value:,.2f}"
    return f"{words}; list ${chip.list_price:,.2f}" if known else words


MOST_NAMED = 3
"""Chips whose flag is written out."""


def unpriced(chips: Iterable[Chip], by_cost: bool = True, kind: str = "") -> str:
    """A sentence about the chips that have no price (of the kind asked for), or nothing; `by_cost` says that chips are
    ranked by their prices.

    >>> unpriced([load_chip("h800")])
    'No price is known for h800: ranked by chips; give --price h800=2/h.'
    >>> unpriced([load_chip("h800")], by_cost=False)
    'No price is known for h800; give --price h800=2/h.'
    """
    asked = {chip.name: chip for chip in chips}
    names = [name for name, chip in asked.items() if chip.price is None]
    if not names:
        return ""
    ranked = ": ranked by chips" if len(names) == len(asked) else ": after those with a price"
    what = f"{kind.strip()} price".strip()
    start = f"No {what} is known for {', '.join(names)}{ranked if by_cost else ''}"
    more = " and so on" if len(names) > MOST_NAMED else ""
    return f"{start}; give --price {','.join(f'{name}=2/h' for name in names[:MOST_NAMED])}{more}."
