"""Numbers of one operation derived: a roofline, a collective, a sharded einsum. `dscale explain` has their formulas
already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.app.explain.formulas import Explanation, FormulaLine
from dragonscale.app.given import maybe_target
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step
from dragonscale.web.derivations.profiles import network_sentence
from dragonscale.web.page_request import PageRequest

_TAKES = {
    "roofline": ("expression", "on", "sizes", "memory", "set"),
    "collective": ("kind", "on", "size", "axis", "mesh", "set", "one_way", "in_network", "filled", "picks"),
    "shard": ("expression", "mesh", "on", "set", "sizes"),
}
"""Fields that `dscale explain` takes of each question."""
_DOCS = {"roofline": ("rooflines", ""), "collective": ("collectives", "inside"), "shard": ("sharding", "the-one-rule")}
_SENTENCES = {
    "lower_s": ("At best", "The larger of its parts at datasheet rates: everything overlaps.", "s", "lower bound"),
    "upper_s": ("Without overlap", "Its parts one after the other.", "s", "upper bound"),
    "attainable_flops_per_s": (
        "What it reaches",
        "FLOPs over the time at best: the roof at this intensity.",
        "FLOP/s",
        "lower bound",
    ),
    "intensity_flops_per_byte": (
        "Arithmetic intensity",
        "FLOPs for each byte that is moved.",
        "FLOP/byte",
        "intensity",
    ),
    "critical_intensity_flops_per_byte": (
        "Critical intensity",
        "Where compute and memory take equally long: peak over bandwidth.",
        "FLOP/byte",
        "critical intensity",
    ),
    "flops": ("FLOPs", "What the operation computes.", "FLOP", "FLOPs"),
    "bytes": ("Bytes", "What it moves.", "bytes", "bytes over"),
    "peak_flops_per_s": ("Peak", "The chip's rate in this format.", "FLOP/s", "T_math"),
    "bandwidth_bytes_per_s": ("Bandwidth", "The memory's rate.", "bytes/s", "T_comms"),
    "bandwidth_s": ("Bandwidth term", "Bytes over the links they go over.", "s", "bandwidth term"),
    "latency_s": ("Latency term", "Hops, one after the other.", "s", "latency term"),
    "expected_s": (
        "Expected",
        "The same bytes through the measured efficiency profile of the network.",
        "s",
        "lower bound",
    ),
    "book_s": ("To first order", "The book's form, without a ring's (N-1)/N.", "s", "the book's"),
    "wire_bytes_per_chip": ("Bytes that a chip sends", "What leaves one chip.", "bytes", "bytes each chip sends"),
    "algorithm_bandwidth_bytes_per_s": ("Algorithm bandwidth", "The array over the time.", "bytes/s", "lower bound"),
    "latency_bound_below_bytes": (
        "Latency-bound below",
        "The size at which hops take as long as bytes.",
        "bytes",
        "latency = bandwidth",
    ),
    "total_s": ("In all", "Latency and bandwidth of the transfer.", "s", ""),
}
"""Title, sentence, unit, and the beginning of the line of the explanation that gives it."""


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any]) -> "OperationNumbers":
    """The answer and its explanation."""
    record = asked.ask(of, fields, brief=False)
    asks = {name: value for name, value in fields.items() if name in _TAKES[of]}
    return OperationNumbers(asked, of, record, asks)


@dataclass(frozen=True)
class OperationNumbers:
    """An answer about one operation."""

    asked: PageRequest
    of: str
    record: Any
    asks: Mapping[str, Any]

    def explained(self) -> Explanation | None:
        """The formulas; None where the question has none (a transfer between two chips, sizes that explain does not
        take)."""
        try:
            return self.asked.ask(f"explain {self.of}", self.asks, brief=False)
        except InputError:
            return None

    @property
    def chip(self) -> Chip | None:
        on = str(self.asks.get("on", "") or "")
        return maybe_target(on, None)[0] if on else None

    def facts(self, number: str) -> Piece:
        title, sentence, shown, rows, sources = self._told(number)
        steps = [step("Beside", rows)] if rows else []
        return facts(title, sentence, shown, steps=steps, docs=_DOCS[self.of], sources=sources or [_OWN])

    def formula(self, number: str) -> Piece:
        found = self.explained()
        if found is None:
            return formulas([], notes=["This one is read off the answer; it has no letters."])
        wanted = _wanted(number)
        every = [*found.lines, *found.solutions]
        lines = [line for line in every if wanted and line.name.startswith(wanted)] or _pass(every, number)
        return formulas(lines or found.lines, crossovers=[f"{text}." for text in found.crossovers], notes=found.notes)

    def _told(self, number: str) -> tuple[str, str, Amount, list[Piece], list[Piece]]:
        path = number.split(":")[1:]
        if self.of == "shard":
            return self._sharded(number, path)
        chip = self.chip
        paths = ["matrix.bf16", "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth", "levels.leaf.bandwidth"]
        sources = chip_sources(chip, paths if self.of == "collective" else paths[:2]) if chip is not None else []
        if path[0] == "resource":
            one = next(one for one in self.record.resources if one.name == path[1])
            return f"Time of {one.name}", f"{one.formula}.", amount(one.seconds, "s", number), [], sources
        if path[0] == "crossover":
            one = next(one for one in self.record.crossovers if one.variable == path[1])
            said = f"Below it {one.below} binds, above it {one.above}."
            return (
                f"Crossover at {one.variable}",
                said,
                amount(one.value, "count", number, f"{one.value:,.4g}"),
                [],
                sources,
            )
        if path[0] == "tier":
            one = next(one for one in self.record.tiers if one.tier == path[1])
            rows = [
                row("children", count(one.children)),
                row("a child's link", amount(one.link_bytes_per_s, "bytes/s")),
                row("seconds", amount(one.seconds, "s")),
                row("into", amount(one.ingress_bytes, "bytes")),
                row("out", amount(one.egress_bytes, "bytes")),
            ]
            return (
                f"Tier {one.tier}",
                "What goes through one tier of switches.",
                amount(one.seconds, "s", number),
                rows,
                sources,
            )
        if path[0] not in _SENTENCES or getattr(self.record, path[0], None) is None:
            raise unknown(f"number of a {self.of} called", number, [f"{self.of}:{name}" for name in _SENTENCES])
        title, sentence, unit, _ = _SENTENCES[path[0]]
        value = getattr(self.record, path[0])
        if path[0] == "expected_s" and chip is not None:
            text, more = network_sentence(chip)
            sentence, sources = f"{sentence} {text}", [*sources, *more]
        return title, sentence, amount(value, unit, number, _text(value, unit)), self._beside(path[0]), sources

    def _beside(self, name: str) -> list[Piece]:
        """The other numbers that one is made of."""
        made = {
            "attainable_flops_per_s": ("flops", "lower_s"),
            "intensity_flops_per_byte": ("flops", "bytes"),
            "critical_intensity_flops_per_byte": ("peak_flops_per_s", "bandwidth_bytes_per_s"),
            "lower_s": ("bandwidth_s", "latency_s"),
            "upper_s": ("bandwidth_s", "latency_s"),
            "total_s": ("bandwidth_s", "latency_s"),
            "algorithm_bandwidth_bytes_per_s": ("bytes", "lower_s"),
            "expected_s": ("lower_s",),
        }.get(name, ())
        found = [(one, getattr(self.record, one, None)) for one in made]
        return [
            row(
                _SENTENCES[one][0],
                amount(value, _SENTENCES[one][2], f"{self.of}:{one}", _text(value, _SENTENCES[one][2])),
            )
            for one, value in found
            if value is not None
        ]

    def _sharded(self, number: str, path: list[str]) -> tuple[str, str, Amount, list[Piece], list[Piece]]:
        """A number of one pass, line and way of a sharded einsum."""
        report = self.record
        if path[0] in ("forward_collectives", "backward_collectives"):
            moves = getattr(report, path[0])
            rows = [
                row(f"{one.collective} over {', '.join(one.axes)}", _value(one.bytes, "bytes"), one.array)
                for one in moves
            ]
            return "Collectives", f"How many the {path[0].split('_')[0]} pass has.", count(len(moves), number), rows, []
        line = getattr(report, path[0])[int(path[1])]
        if path[2] == "array":
            one = line.arrays[int(path[3])]
            unit = "count" if path[4] == "replicas" else "bytes"
            rows = [
                row("of a chip", _value(one.local_bytes, "bytes")),
                row("in all", _value(one.total_bytes, "bytes")),
                row("copies", count(one.replicas)),
            ]
            return (
                one.array,
                f"The array {one.array}: shape {one.local_shape} on a chip.",
                _value(getattr(one, path[4]), unit, number),
                rows,
                [],
            )
        way = line.strategies[int(path[2])]
        if path[3] == "move":
            one = way.collectives[int(path[4])]
            name = {"bytes": "bytes", "wire_bytes_per_chip": "bytes"}.get(path[5], "s")
            rows = [
                row("of the array", _value(one.bytes, "bytes")),
                row("a chip sends", _value(one.wire_bytes_per_chip, "bytes")),
                row("seconds", _value(one.seconds, "s")),
                row("to first order", _value(one.book_s, "s")),
            ]
            return (
                f"{one.collective} over {', '.join(one.axes)}",
                f"{one.array} becomes {one.result}.",
                _value(getattr(one, path[5]), name, number),
                rows,
                [],
            )
        if path[3] == "picture":
            return (
                ":".join(path[4:]),
                "Bytes that a chip holds of this array.",
                _picture(self.record, way, number),
                [],
                [],
            )
        field = {"compute": "math_s", "HBM": "hbm_s", "network": "comms_s"}.get(path[3], path[3])
        unit = "s" if field.endswith("_s") else "FLOP" if "flops" in field else "bytes"
        rows = [
            row(name, _value(getattr(way, key), "s", f"shard:{':'.join(path[:3])}:{name}"))
            for name, key in (("compute", "math_s"), ("HBM", "hbm_s"), ("network", "comms_s"))
            if getattr(way, key) is not None
        ]
        said = (
            f"{line.einsum}, computed as {way.local} on each "
            f"chip{'; bound by ' + way.bound_by if way.bound_by else ''}."
        )
        return path[3].replace("_", " "), said, _value(getattr(way, field), unit, number), rows, []


_OWN = {"text": "Counted from the shapes that were typed.", "url": ""}


def _wanted(number: str) -> str:
    path = number.split(":")[1:]
    if path[0] == "crossover":
        return "compute"
    return _SENTENCES[path[0]][3] if path[0] in _SENTENCES else ""


def _pass(lines: list[FormulaLine], number: str) -> list[FormulaLine]:
    """The formulas of a pass of a sharded einsum."""
    way = number.split(":")[1].split("_")[0]
    return [line for line in lines if line.name.startswith(f"{way}:")]


def _value(value: Any, unit: str, why: str = "") -> Amount:
    return amount(None, unit, text=str(value)) if isinstance(value, str) else amount(value, unit, why)


def _picture(report: Any, way: Any, number: str) -> Amount:
    """The number as the picture of the array has it."""
    from dragonscale.web.views.array_picture import stages_of

    drawn = stages_of(way, report.mesh, report.sizes, {}, ":".join(number.split(":")[:4]))
    return next((one for one in _amounts(drawn) if one.get("why") == number), amount(None, "bytes", text="as drawn"))


def _amounts(data: Any) -> Iterator[Amount]:
    if isinstance(data, dict):
        if "why" in data:
            yield data
        data = list(data.values())
    for one in data if isinstance(data, list | tuple) else ():
        yield from _amounts(one)


def _text(value: float, unit: str) -> str:
    return f"{value:,.4g} FLOP/byte" if unit == "FLOP/byte" else render(value, unit)
