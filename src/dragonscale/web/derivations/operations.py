"""Numbers of one operation: a roofline, a collective, a sharded einsum. `dscale explain` has their formulas already."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.commands.explain.formulas import Explanation
from dragonscale.commands.given import maybe_target
from dragonscale.errors import InputError, unknown
from dragonscale.physics.hardware import Chip
from dragonscale.web.amounts import count
from dragonscale.web.derivations.pieces import Piece, chip_sources, formulas, row
from dragonscale.web.derivations.profiles import network_sentence
from dragonscale.web.derivations.table import Numbers, shown
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.array_picture import stages_of

_TAKES = {
    "roofline": ("expression", "on", "sizes", "memory", "set"),
    "collective": ("kind", "on", "size", "axis", "mesh", "set", "one_way", "in_network", "filled", "picks"),
    "shard": ("expression", "mesh", "on", "set", "sizes"),
}
"""Fields that `dscale explain` takes of each question."""
_FACTS = ["matrix.bf16", "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth", "levels.leaf.bandwidth"]
_OWN = {"text": "Counted from the shapes that were typed.", "url": ""}


@dataclass(frozen=True)
class OperationNumbers(Numbers):
    """An answer about one operation."""

    asked: PageRequest
    of: str
    record: Any
    asks: Mapping[str, Any]
    view: ClassVar[str] = "operation"

    @property
    def what(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"number of a {self.of} called"

    def names(self) -> dict[str, Any]:
        return {"of": self, "record": self.record}

    def key(self, number: str) -> str:
        key = number.partition(":")[2]
        if ":" in key or getattr(self.record, key, None) is not None:
            return key
        raise unknown(self.what, number, [f"{self.of}:{name}" for name in self.table.numbers])

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        keys = {"resource": "name", "crossover": "variable", "tier": "tier"}

        def named(kind: str, name: str) -> Any:
            return next(row for row in getattr(self.record, f"{kind}s") if getattr(row, keys[kind]) == name)

        return {kind: functools.partial(named, kind) for kind in keys}

    def explained(self) -> Explanation | None:
        """The formulas; None where the question has none (a transfer between two chips, sizes that explain does not
        take)."""
        try:
            return self.asked.ask(f"explain {self.of}", self.asks, brief=False)
        except InputError:
            return None

    def formula(self, number: str) -> Piece:
        found, derived = self.explained(), self.derived(number)
        if found is None:
            return formulas([], notes=["This one is read off the answer; it has no letters."])
        begun = derived.spec.explained or self.begins(number)
        lines = [line for line in (*found.lines, *found.solutions) if begun and line.name.startswith(begun)]
        return formulas(lines or found.lines, crossovers=[f"{text}." for text in found.crossovers], notes=found.notes)

    def begins(self, number: str) -> str:  # noqa: ARG002 - of a roofline or collective the table says it
        """How the lines of the explanation begin that a number is in."""
        return ""

    @property
    def chip(self) -> Chip | None:
        on = str(self.asks.get("on", "") or "")
        return maybe_target(on, None)[0] if on else None

    def docs(self) -> tuple[str, str]:
        return ("rooflines", "") if self.of == "roofline" else ("collectives", "inside")

    def sources(self) -> list[Piece]:
        used = _FACTS if self.of == "collective" else _FACTS[:2]
        return (chip_sources(self.chip, used) if self.chip is not None else []) or [_OWN]

    def network_text(self) -> str:
        return f" {network_sentence(self.chip)[0]}" if self.chip is not None else ""

    def network_sources(self) -> list[Piece]:
        return [*self.sources(), *(network_sentence(self.chip)[1] if self.chip is not None else [])]


@dataclass(frozen=True)
class ShardNumbers(OperationNumbers):
    """A sharded einsum: a number of one pass, line and way of it."""

    view: ClassVar[str] = "shard"

    def key(self, number: str) -> str:
        return number.partition(":")[2]

    def begins(self, number: str) -> str:
        return f"{self.key(number).split(':')[0].split('_')[0]}:"

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {way: lambda rest, way=way: self._line(way, rest.split(":")) for way in ("forward", "backward")}

    def names(self) -> dict[str, Any]:
        forward, backward = self.record.forward_collectives, self.record.backward_collectives
        many = {"forward_many": len(forward), "backward_many": len(backward)}
        moves = SimpleNamespace(**many, forward_moves=_moved(forward), backward_moves=_moved(backward))
        return super().names() | {"moves": moves}

    def _line(self, which: str, path: list[str]) -> SimpleNamespace:
        line = getattr(self.record, which)[int(path[0])]
        if path[1] == "array":
            return _array(line.arrays[int(path[2])], path[3])
        way, name = line.strategies[int(path[1])], path[2]
        if name == "move":
            return _move(way.collectives[int(path[3])], path[4])
        whys = ":".join(("shard", which, *path[:2]))
        if name == "picture":
            text = ":".join(path[3:])
            stages = stages_of(way, self.record.mesh, self.record.sizes, {}, whys)
            arrays = [array for stage in stages for array in stage["arrays"]]
            known = next((one["bytes"] for one in arrays if one["bytes"]["why"] == f"{whys}:picture:{text}"), None)
            value = "as drawn" if known is None else known["value"]
            sentence = "Bytes that a chip holds of this array."
            return SimpleNamespace(title=text, sentence=sentence, value=value, unit="bytes", rows=[])
        times = {"compute": way.math_s, "HBM": way.hbm_s, "network": way.comms_s}
        value = times[name] if name in times else getattr(way, name)
        unit = "s" if name in times or name.endswith("_s") else "FLOP" if "flops" in name else "bytes"
        bound = f"; bound by {way.bound_by}" if way.bound_by else ""
        return SimpleNamespace(
            title=name.replace("_", " "),
            sentence=f"{line.einsum}, computed as {way.local} on each chip{bound}.",
            value=value,
            unit=unit,
            rows=[row(one, shown(time, "s", f"{whys}:{one}")) for one, time in times.items() if time is not None],
        )


def _moved(moves: list[Any]) -> list[Piece]:
    return [row(f"{one.collective} over {', '.join(one.axes)}", shown(one.bytes, "bytes"), one.array) for one in moves]


def _array(one: Any, name: str) -> SimpleNamespace:
    rows = [
        row("of a chip", shown(one.local_bytes, "bytes")),
        row("in all", shown(one.total_bytes, "bytes")),
        row("copies", count(one.replicas)),
    ]
    sentence = f"The array {one.array}: shape {one.local_shape} on a chip."
    unit = "size" if name == "replicas" else "bytes"
    return SimpleNamespace(title=one.array, sentence=sentence, value=getattr(one, name), unit=unit, rows=rows)


def _move(one: Any, name: str) -> SimpleNamespace:
    rows = [
        row("of the array", shown(one.bytes, "bytes")),
        row("a chip sends", shown(one.wire_bytes_per_chip, "bytes")),
        row("seconds", shown(one.seconds, "s")),
        row("to first order", shown(one.book_s, "s")),
    ]
    title, unit = f"{one.collective} over {', '.join(one.axes)}", "bytes" if "bytes" in name else "s"
    sentence = f"{one.array} becomes {one.result}."
    return SimpleNamespace(title=title, sentence=sentence, value=getattr(one, name), unit=unit, rows=rows)


def numbers_of(asked: PageRequest, of: str, fields: Mapping[str, Any], _: str) -> OperationNumbers:
    """The answer and its explanation."""
    asks = {name: value for name, value in fields.items() if name in _TAKES[of]}
    kind = ShardNumbers if of == "shard" else OperationNumbers
    return kind(asked, of, asked.ask(of, fields, brief=False), asks)
