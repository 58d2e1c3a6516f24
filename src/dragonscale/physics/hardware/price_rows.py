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
    asked = {chip.name: chip for chip in chips}
    return [
        PriceRow(name, one.price, one.list_price, price_kind(one), price_date(one), price_text(one))
        for name, one in asked.items()
    ]
