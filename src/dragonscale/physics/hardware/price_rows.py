"""Prices that an answer was worked out with, as records."""

from collections.abc import Iterable

import msgspec

from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.prices import price_date, price_kind, price_text


class PriceRow(msgspec.Struct):
    """An hour of one chip: what was taken for it (`kind`: market, list or given), what large clouds list, the date of
    the price, and the same in words. None where no price is known."""

    chip: str
    usd_per_h: float | None
    list_usd_per_h: float | None
    kind: str
    date: str
    text: str


def price_rows(chips: Iterable[Chip]) -> list[PriceRow]:
    """A row for each chip, once."""
    rows: dict[str, PriceRow] = {}
    for chip in chips:
        kind, date, text = price_kind(chip), price_date(chip), price_text(chip)
        rows[chip.name] = PriceRow(chip.name, chip.price, chip.list_price, kind, date, text)
    return list(rows.values())
