"""The price book: what an hour of a chip costs by the way it is paid for, with provider, region, date and source.

On-demand prices stand in the chips' own files (what people pay in the median, and what the large clouds list); prices
for one and three years, spot prices and what a chip costs to buy are in `prices.toml`. A chip that is owned costs its
capital over the hours in which it is used, and its power: that of its host with it, times the PUE.

>>> from dragonscale.physics.hardware import load_chip
>>> [(offer.kind, offer.usd_per_h) for offer in price_book(load_chip("v5p"))]
[('on-demand', 4.2), ('list', 4.2), ('1y', 2.94), ('3y', 1.89), ('spot', 0.81)]
>>> round(owned_price(load_chip("h100"), Owned(30000, 4)), 2)
1.08
"""

import functools
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.hardware.changes import split_changes
from dragonscale.physics.hardware.chip import Chip, Quantity
from dragonscale.physics.units import parse
from dragonscale.tables import beside

OWNED, SPOT, BUY = "owned", "spot", "buy"
KINDS = ("on-demand", "list", "low", "high", "reserved", "1y", "3y", SPOT, OWNED)
"""What `--pricing` takes: the median on demand, the large clouds' list, the lowest and highest on-demand price of all,
reserved at smaller clouds, one year, three years, spot, owned."""
HOURS = 8766.0
"""Of a year."""


@dataclass(frozen=True)
class Offer:
    """A price of the book. `high_usd_per_h` is the upper end where a source gives a range; what to buy a chip costs has
    the kind `buy` and is no price of an hour."""

    kind: str
    usd_per_h: float
    high_usd_per_h: float | None
    provider: str
    region: str
    date: str
    source: str
    machine: int = 0
    """Chips of the machine that it is an equal part of, where machines of other sizes have other prices."""

    @property
    def middle(self) -> float:
        """The price, or the middle of its range."""
        return (self.usd_per_h + (self.high_usd_per_h or self.usd_per_h)) / 2


@dataclass(frozen=True)
class Owned:
    """What a chip with its share of a server costs, over how many years, and what its power costs."""

    capital: float
    years: float
    usd_per_kwh: float | None = None
    pue: float | None = None
    busy: float | None = None


@functools.cache
def _table() -> dict[str, Any]:
    return beside(__file__, "prices.toml")


def site(name: str) -> float:
    """A number of `prices.toml` about where chips stand."""
    return float(_table()["site"][name]["value"])


def price_book(chip: Chip) -> list[Offer]:
    """Every price that is known of a chip."""
    found = []
    for path, kind in (("price", "on-demand"), ("list_price", "list")):
        fact = chip.facts.get(path)
        for reading in (fact, *fact.also) if fact else ():
            words = re.fullmatch(r"(.*?) \((\d{4}(?:-\d\d)*)\) ?(\S*)", chip.sources.get(reading.source, ""))
            title, date, url = words.groups() if words else (reading.source, "", "")
            found.append(Offer(kind, reading.value, None, title, "", date, url))
    sources = _table()["sources"]
    for row in _table()["book"].get(split_changes(chip.name)[0], ()):
        source = sources[row["source"]]
        words = row.get("region", "us"), source["date"], source.get("url") or source["title"]
        found.append(Offer(row["kind"], row["usd"], row.get("high"), row["provider"], *words, row.get("machine", 0)))
    return found


def offered_price(chip: Chip, kind: str, chips: int = 1) -> Quantity | None:
    """The price of an hour by its kind, for a slice of so many chips; None where the book has none. Of several the
    median is taken, of a range its middle; of spot prices the lowest, as such jobs go where chips are left over."""
    book = price_book(chip)
    if kind in ("low", "high"):
        every = [offer for offer in book if offer.kind in ("on-demand", "list")]
        value = (min if kind == "low" else max)([offer.usd_per_h for offer in every], default=0.0)
    elif kind == "on-demand":
        sizes = sorted((offer for offer in book if offer.machine), key=lambda offer: offer.machine)
        every = [offer for offer in sizes if offer.machine >= min(chips, sizes[-1].machine)]
        if chips == 1 or not every:
            return chip.facts.get("price")
        kind, value = "list", every[0].usd_per_h
    else:
        every = [offer for offer in book if offer.kind == kind]
        if kind == "list":
            return chip.facts.get("list_price")
        taken = [offer.usd_per_h for offer in every] if kind == SPOT else [offer.middle for offer in every]
        value = (min if kind == SPOT else statistics.median)(taken) if every else 0.0
    return Quantity(value, "USD/h", kind, note=max(offer.date for offer in every)) if every else None


def site_watts(chip: Chip) -> float | None:
    """Watts that a chip takes with its share of its host, before cooling; None where its power is not known."""
    return None if chip.power is None else chip.power * site("host_factor")


def owned_price(chip: Chip, owned: Owned) -> float:
    """Dollars for an hour in which a chip of one's own is used: capital over such hours, and power with cooling."""
    hours = owned.years * HOURS * (owned.busy or site("busy"))
    rate, pue = owned.usd_per_kwh or site("usd_per_kwh"), owned.pue or site("pue")
    return owned.capital / hours + (site_watts(chip) or 0.0) / 1e3 * pue * rate


def owned_text(chip: Chip, owned: Owned) -> str:
    """The parts of that price: `$0.95 capital over 4 years of 90% use, $0.13 power with host and cooling`."""
    capital = owned_price(replace(chip, power=None), owned)
    power = owned_price(chip, owned) - capital
    watts = f"${power:.2f} power with host and cooling" if power else "power not known"
    return f"${capital:.2f} capital over {owned.years:g} years of {owned.busy or site('busy'):.0%} use, {watts}"


def _bought(chip: Chip) -> Owned | None:
    """A chip at what the book says it costs to buy."""
    every = [offer.middle for offer in price_book(chip) if offer.kind == BUY]
    return Owned(statistics.median(every), site("years")) if every else None


OWN = "write dollars for a chip with its share of a server over years, such as 30000/4, or 30k/4,0.08/kWh,pue=1.2"


def read_owned(text: str) -> Owned:
    """What stands after `--owned`.

    >>> read_owned("$30k/4y, 0.1/kWh, pue=1.2")
    Owned(capital=30000.0, years=4.0, usd_per_kwh=0.1, pue=1.2, busy=None)
    """
    first, *rest = (part.strip() for part in text.split(","))
    pair = re.fullmatch(r"\$?\s*([\d.]+\s*[kM]?)\s*/\s*([\d.]+)\s*(?:y|years?)?", first)
    if not pair:
        raise InputError(f"--owned is {shorten(text)}; {OWN}.")
    found: dict[str, float] = {"capital": parse(pair[1], "count", "--owned"), "years": float(pair[2])}
    for part in rest:
        rate = re.fullmatch(r"\$?\s*([\d.]+)\s*/\s*kWh|(pue|busy)\s*=\s*([\d.]+)", part, re.IGNORECASE)
        if not rate:
            raise InputError(f"--owned has {shorten(part)}; {OWN}.")
        found["usd_per_kwh" if rate[1] else rate[2].lower()] = float(rate[1] or rate[3])
    if not (found["years"] > 0 and found.get("pue", 1) >= 1 and 0 < found.get("busy", 1) <= 1):
        raise InputError(f"--owned is {shorten(text)}; years are more than 0, pue is 1 or more, busy is 0 to 1.")
    return Owned(**found)


@dataclass(frozen=True)
class Tariff:
    """How chips are paid for: `prices` that were given for some of them, a kind of the book for the others."""

    prices: dict[str, float]
    kind: str = ""
    owned: Owned | None = None

    def price(self, chip: Chip, chips: int = 1) -> Quantity | None:
        """Dollars for an hour of a chip in a slice of so many; None where that is not known."""
        if chip.name in self.prices:
            return Quantity(self.prices[chip.name], "USD/h", "--price")
        if self.kind == OWNED:
            owned = self.owned or _bought(chip)
            text = owned and owned_text(chip, owned)
            return owned and Quantity(owned_price(chip, owned), "USD/h", OWNED, note=text or "")
        found = offered_price(chip, self.kind or "on-demand", chips)
        # a chip whose price was changed (h100+price=2x) keeps that
        return chip.facts.get("price") if not self.kind and split_changes(chip.name)[1] else found

    def paid(self, chip: Chip, chips: int = 1) -> Chip:
        """The chip at that price."""
        found, facts = self.price(chip, chips), {path: fact for path, fact in chip.facts.items() if path != "price"}
        if found is chip.facts.get("price"):
            return chip
        usual = chip.facts.get("price")
        if found and usual and found.source in KINDS:
            found = replace(found, also=(usual,))
        return replace(chip, price=found and found.value, facts=facts | ({"price": found} if found else {}))


def read_kind(pricing: str, owned: str, chips: Iterable[Chip]) -> tuple[str, Owned | None]:
    """The kind of price that `--pricing` and `--owned` ask for."""
    kind = pricing.strip().lower() or (OWNED if owned.strip() else "")
    if kind and kind not in KINDS:
        raise unknown("way to pay called", pricing, KINDS)
    if owned.strip() and kind != OWNED:
        raise InputError(f"--owned is for chips of one's own, and --pricing is {kind}; leave out either.")
    names = {chip.name for chip in chips}
    if owned.strip() and len(names) > 1:
        raise InputError(f"--owned is the price of one kind of chip, and {len(names)} are asked about; ask for one.")
    return kind, read_owned(owned) if owned.strip() else None
