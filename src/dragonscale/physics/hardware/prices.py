"""The price of an hour of a chip: what people pay, what the large clouds list, or what the user gave.

`--price 2.5/h` is the price of the one chip that is asked about; `--price h100=2.2/h,v5e=1.1/h` names several.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.catalogue import load_chip
from dragonscale.physics.hardware.changes import split_list
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.price_book import KINDS, OWNED, Tariff, read_kind
from dragonscale.physics.hardware.slices import Slice
from dragonscale.physics.units import parse

GIVEN = "--price"
MARKET = "market"
"""The source under which chip files give the median of what people pay."""
MAX_USD_PER_H = 1e6


class StrangePrice(str):
    """A note that a chip with a price is not asked about. In a comparison it only holds if no side asks about it."""


def read_prices(text: str, chips: Iterable[Chip]) -> tuple[dict[str, float], list[str]]:
    """Dollars per hour of each chip that `--price` names, and a note for each that is not asked about.

    >>> read_prices("h100=2.2/h, v5e=$1.1/h", [load_chip("h100"), load_chip("v5e")])
    ({'h100': 2.2, 'v5e': 1.1}, [])
    """
    names = list(dict.fromkeys(chip.name for chip in chips))
    prices: dict[str, float] = {}
    for part in split_list(text):
        name, equals, written = map(str.strip, part.partition("="))
        if not equals:
            if len(names) != 1:
                example = ",".join(f"{chip_name}=2/h" for chip_name in names[:2])
                raise InputError(
                    f"--price is {shorten(text)} and {len(names)} chips are compared: name them, --price {example}."
                )
            name, written = names[0], part
        key = name if name in names else load_chip(name).name  # an alias, or a chip that is not asked about
        if key in prices:
            raise InputError(f"--price is {shorten(text)}, which gives the price of {key} twice.")
        prices[key] = _price(written)
    notes: list[str] = []
    for name in prices:
        if name not in names:
            notes.append(StrangePrice(f"--price names {name}, which is not asked about."))
    return prices, notes


def _price(text: str) -> float:
    """Dollars per hour, written as `2.5/h` or `$2.5/h`."""
    if text.lstrip("$ ").startswith("-"):
        raise InputError(
            f"--price is {shorten(text)}, which is negative; write what a chip costs for an hour, such as 2.5/h."
        )
    bare = re.fullmatch(r"[\d.eE+-]+\s*/\s*(h|hour)", text)
    price = parse(f"${text}" if bare else text, "USD/h", "--price")
    if not 0 <= price < MAX_USD_PER_H:
        raise InputError(f"--price is {shorten(text)}; write what a chip costs for an hour, such as 2.5/h.")
    return price


Target = tuple[Chip, Slice | None]


def read_tariff(price: str, chips: Iterable[Chip], pricing: str = "", owned: str = "") -> tuple[Tariff, list[str]]:
    """How chips are paid for by `--price`, `--pricing` and `--owned`, and notes on that."""
    chips = list(chips)
    prices, notes = read_prices(price, chips)
    return Tariff(prices, *read_kind(pricing, owned, chips)), notes


def slice_at_price(slice_: Slice, tariff: Tariff) -> Slice:
    """The slice with its chips at the prices of a tariff."""
    return replace(slice_, chip=tariff.paid(slice_.chip, slice_.chips))


def priced_targets(
    price: str, targets: Iterable[Target], pricing: str = "", owned: str = ""
) -> tuple[tuple[Target, ...], list[str]]:
    """Chips, each with its slice where one was named, at their prices, and notes on that."""
    targets = tuple(targets)
    tariff, notes = read_tariff(price, [chip for chip, _ in targets], pricing, owned)
    priced: list[Target] = []
    for chip, slice_ in targets:
        if slice_ is None:
            priced.append((tariff.paid(chip), None))
        else:
            # the price of a chip may depend on how many are rented together
            priced.append((tariff.paid(chip, slice_.chips), slice_at_price(slice_, tariff)))
    return tuple(priced), notes


def price_date(chip: Chip) -> str:
    """The year and month of the price's source; empty where none is known."""
    fact = chip.facts.get("price")
    if fact is None or fact.source == OWNED:
        return ""
    if fact.source in KINDS:
        return fact.note  # offers of the price book carry their date there
    dates = re.findall(r"\((\d{4}(?:-\d\d)*)\)", chip.sources.get(fact.source, ""))
    if not dates:
        return ""
    return dates[-1]  # a title may have a date of its own before that of the source


def price_kind(chip: Chip) -> str:
    """Whose price it is: `market`, `list`, a kind of the price book, `given` by the user, or empty if unknown."""
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
    kind, date, fact = price_kind(chip), price_date(chip), chip.facts.get("price")
    text = f"${chip.price:,.2f}/h"
    if kind:
        text += f" {kind}"
    if date:
        text += f", {date}"
    if fact is not None and fact.source == OWNED:
        text += f" ({fact.note})"
    if fact is not None and fact.source in KINDS and fact.also:
        return f"{text}; on demand ${fact.also[0].value:,.2f}"
    if chip.list_price is not None and kind != "list":
        text += f"; list ${chip.list_price:,.2f}"
    return text


MAX_EXAMPLES = 3
"""Chips whose `--price` is written out in a note."""


def unpriced(chips: Iterable[Chip], by_cost: bool = True, kind: str = "") -> str:
    """A note on the chips that have no price (of the kind asked for); empty if all have one. `by_cost` says that chips
    are ranked by their prices.

    >>> unpriced([load_chip("h800")])
    'No price is known for h800: ranked by chips; give --price h800=2/h.'
    >>> unpriced([load_chip("h800")], by_cost=False)
    'No price is known for h800; give --price h800=2/h.'
    """
    price_of = {chip.name: chip.price for chip in chips}
    names = [name for name, price in price_of.items() if price is None]
    if not names:
        return ""
    what = f"{kind.strip()} price".strip()
    note = f"No {what} is known for {', '.join(names)}"
    if by_cost:
        note += ": ranked by chips" if len(names) == len(price_of) else ": after those with a price"
    example = ",".join(f"{name}=2/h" for name in names[:MAX_EXAMPLES])
    if len(names) > MAX_EXAMPLES:
        example += " and so on"
    return f"{note}; give --price {example}."
