"""The price book: what an hour of a chip costs by the way it is paid for, with provider, region, date and source.

On-demand prices stand in the chips' files (the median of what people pay, and what the large clouds list). Prices for
one and three years, spot prices and purchase prices are in `prices.toml`. An hour of an owned chip costs its capital
over the hours in which it is busy, and the energy of the chip with its share of the host, times the PUE.

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

OWNED = "owned"
SPOT = "spot"
BUY = "buy"
KINDS = ("on-demand", "list", "low", "high", "reserved", "1y", "3y", SPOT, OWNED)
"""What `--pricing` takes: the median on demand, the large clouds' list, the lowest and highest on-demand price of all,
reserved at smaller clouds, one year, three years, spot, owned."""
HOURS_PER_YEAR = 8766.0


@dataclass(frozen=True)
class Offer:
    """A price of the book. `high_usd_per_h` is the upper end where a source gives a range. An offer of the kind `buy`
    is the price of a chip, not of an hour."""

    kind: str
    usd_per_h: float
    high_usd_per_h: float | None
    provider: str
    region: str
    date: str
    source: str
    machine: int = 0
    """Chips of the machine that is rented, where the price of a chip depends on the machine's size."""

    @property
    def middle(self) -> float:
        """The price, or the middle of its range."""
        return (self.usd_per_h + (self.high_usd_per_h or self.usd_per_h)) / 2


@dataclass(frozen=True)
class Owned:
    """The purchase price of a chip with its share of a server, the years over which it is written off, the fraction of
    them in which it is busy, and what its energy costs."""

    capital: float
    years: float
    usd_per_kwh: float | None = None
    pue: float | None = None
    busy: float | None = None


@functools.cache
def _table() -> dict[str, Any]:
    return beside(__file__, "prices.toml")


def site(name: str) -> float:
    """A number of `prices.toml` about a data centre: its PUE, the price of energy, the fraction of time chips work."""
    return float(_table()["site"][name]["value"])


def price_book(chip: Chip) -> list[Offer]:
    """Every price that is known of a chip: those of its file, then those of the book."""
    offers: list[Offer] = []
    for path, kind in (("price", "on-demand"), ("list_price", "list")):
        fact = chip.facts.get(path)
        if fact is None:
            continue
        for reading in (fact, *fact.also):
            # a source reads "TITLE (YYYY-MM) URL"
            source = re.fullmatch(r"(.*?) \((\d{4}(?:-\d\d)*)\) ?(\S*)", chip.sources.get(reading.source, ""))
            title, date, url = reading.source, "", ""
            if source:
                title, date, url = source.groups()
            offers.append(Offer(kind, reading.value, None, title, "", date, url))
    for row in _table()["book"].get(split_changes(chip.name)[0], ()):
        source = _table()["sources"][row["source"]]
        offer = Offer(
            kind=row["kind"],
            usd_per_h=row["usd"],
            high_usd_per_h=row.get("high"),
            provider=row["provider"],
            region=row.get("region", "us"),
            date=source["date"],
            source=source.get("url") or source["title"],
            machine=row.get("machine", 0),
        )
        offers.append(offer)
    return offers + _launch_prices(chip)


def _launch_prices(chip: Chip) -> list[Offer]:
    """What a card or machine cost when it came out; none where that is not known."""
    launch = _table()["launch"].get(split_changes(chip.name)[0])
    if launch is None:
        return []
    if not isinstance(launch, dict):
        launch = {"usd": launch, "of": "a card alone"}
    source = _table()["sources"]["launch"]["title"]
    return [Offer(BUY, launch["usd"], None, f"{launch['of']}, at launch", "us", chip.released, source)]


def offered_price(chip: Chip, kind: str, chips: int = 1) -> Quantity | None:
    """The price of an hour of its kind, for a slice of so many chips; None where the book has none.

    Of several offers the median is taken, of a range its middle; of spot prices the lowest, as such jobs go wherever
    chips are left over.
    """
    book = price_book(chip)
    if kind == "list":
        return chip.facts.get("list_price")
    if kind == "on-demand":
        return _on_demand_price(chip, book, chips)
    kinds = (kind,)
    if kind in ("low", "high"):  # the ends of what anyone asks for a chip that may be kept
        kinds = ("on-demand", "list")
    offers = [offer for offer in book if offer.kind in kinds]
    if not offers:
        return None
    prices = [offer.usd_per_h for offer in offers]
    if kind in ("low", SPOT):
        value = min(prices)
    elif kind == "high":
        value = max(prices)
    else:
        value = statistics.median(offer.middle for offer in offers)
    return Quantity(value, "USD/h", kind, note=max(offer.date for offer in offers))


def _on_demand_price(chip: Chip, book: list[Offer], chips: int) -> Quantity | None:
    """The median of what people pay or, where the price depends on the machine's size, that of the smallest machine
    that holds so many chips."""
    machines = sorted((offer for offer in book if offer.machine), key=lambda offer: offer.machine)
    if chips == 1 or not machines:
        return chip.facts.get("price")
    needed = min(chips, machines[-1].machine)  # more chips are several of the largest machine
    large_enough = [offer for offer in machines if offer.machine >= needed]
    date = max(offer.date for offer in large_enough)
    return Quantity(large_enough[0].usd_per_h, "USD/h", "list", note=date)


def site_watts(chip: Chip) -> float | None:
    """Watts that a chip takes with its share of its host, before cooling; None where its power is not known."""
    if chip.power is None:
        return None
    return chip.power * site("host_factor")


def owned_price(chip: Chip, owned: Owned) -> float:
    """Dollars per busy hour of an owned chip: capital over all busy hours, and energy with cooling."""
    busy_hours = owned.years * HOURS_PER_YEAR * (owned.busy or site("busy"))
    usd_per_kwh, pue = owned.usd_per_kwh or site("usd_per_kwh"), owned.pue or site("pue")
    return owned.capital / busy_hours + (site_watts(chip) or 0.0) / 1e3 * pue * usd_per_kwh


def owned_text(chip: Chip, owned: Owned) -> str:
    """The parts of that price: `$0.95 capital over 4 years of 90% use, $0.13 power with host and cooling`."""
    capital = owned_price(replace(chip, power=None), owned)
    power = owned_price(chip, owned) - capital
    watts = "power not known"
    if power:
        watts = f"${power:.2f} power with host and cooling"
    return f"${capital:.2f} capital over {owned.years:g} years of {owned.busy or site('busy'):.0%} use, {watts}"


def _bought(chip: Chip) -> Owned | None:
    """A chip at the book's median purchase price; None where it has none."""
    prices = [offer.middle for offer in price_book(chip) if offer.kind == BUY]
    if not prices:
        return None
    return Owned(statistics.median(prices), site("years"))


OWNED_SYNTAX = (
    "write dollars for a chip with its share of a server over years, such as 30000/4, or 30k/4,0.08/kWh,pue=1.2"
)


def read_owned(text: str) -> Owned:
    """The value of `--owned`: DOLLARS/YEARS, then the price of energy, `pue=` and `busy=` in any order.

    >>> read_owned("$30k/4y, 0.1/kWh, pue=1.2")
    Owned(capital=30000.0, years=4.0, usd_per_kwh=0.1, pue=1.2, busy=None)
    """
    first, *rest = map(str.strip, text.split(","))
    pair = re.fullmatch(r"\$?\s*([\d.]+\s*[kM]?)\s*/\s*([\d.]+)\s*(?:y|years?)?", first)
    if not pair:
        raise InputError(f"--owned is {shorten(text)}; {OWNED_SYNTAX}.")
    fields: dict[str, float] = {"capital": parse(pair[1], "count", "--owned"), "years": float(pair[2])}
    for part in rest:
        match = re.fullmatch(r"\$?\s*([\d.]+)\s*/\s*kWh|(pue|busy)\s*=\s*([\d.]+)", part, re.IGNORECASE)
        if not match:
            raise InputError(f"--owned has {shorten(part)}; {OWNED_SYNTAX}.")
        energy, name, value = match.groups()
        if energy:
            fields["usd_per_kwh"] = float(energy)
        else:
            fields[name.lower()] = float(value)
    if not (fields["years"] > 0 and fields.get("pue", 1) >= 1 and 0 < fields.get("busy", 1) <= 1):
        raise InputError(f"--owned is {shorten(text)}; years are more than 0, pue is 1 or more, busy is 0 to 1.")
    return Owned(**fields)


@dataclass(frozen=True)
class Tariff:
    """How chips are paid for: `prices` that the user gave for some of them, a kind of the book for the others."""

    prices: dict[str, float]
    kind: str = ""
    owned: Owned | None = None

    def price(self, chip: Chip, chips: int = 1) -> Quantity | None:
        """Dollars per hour of a chip in a slice of so many; None where that is not known."""
        if chip.name in self.prices:
            return Quantity(self.prices[chip.name], "USD/h", "--price")
        if self.kind == OWNED:
            owned = self.owned or _bought(chip)
            if owned is None:
                return None
            return Quantity(owned_price(chip, owned), "USD/h", OWNED, note=owned_text(chip, owned))
        if not self.kind and split_changes(chip.name)[1]:
            return chip.facts.get("price")  # a what-if chip (h100+price=2x) keeps its changed price
        return offered_price(chip, self.kind or "on-demand", chips)

    def paid(self, chip: Chip, chips: int = 1) -> Chip:
        """The chip at that price, with its usual price beside it."""
        usual, price = chip.facts.get("price"), self.price(chip, chips)
        if price is usual:
            return chip
        facts = dict(chip.facts)
        facts.pop("price", None)
        if price is None:
            return replace(chip, price=None, facts=facts)
        if usual is not None and price.source in KINDS:
            price = replace(price, also=(usual,))
        return replace(chip, price=price.value, facts=facts | {"price": price})


def read_kind(pricing: str, owned: str, chips: Iterable[Chip]) -> tuple[str, Owned | None]:
    """The kind of price that `--pricing` and `--owned` ask for, and what a chip of the user's own costs."""
    kind = pricing.strip().lower()
    if owned.strip() and not kind:
        kind = OWNED
    if kind and kind not in KINDS:
        raise unknown("way to pay called", pricing, KINDS)
    if owned.strip() and kind != OWNED:
        raise InputError(f"--owned is for chips of one's own, and --pricing is {kind}; leave out either.")
    if not owned.strip():
        return kind, None
    names = {chip.name for chip in chips}
    if len(names) > 1:
        raise InputError(f"--owned is the price of one kind of chip, and {len(names)} are asked about; ask for one.")
    return kind, read_owned(owned)
