"""Numbers of one operation: a roofline, a collective, a sharded einsum. `dscale explain` has their formulas already."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from dragonscale.blocks.amounts import count
from dragonscale.commands.explain.formulas import Explanation
from dragonscale.commands.explain.numbers.number_table import Numbers, shown
from dragonscale.commands.explain.numbers.records import NumberFormulas, Part
from dragonscale.commands.given import maybe_target
from dragonscale.errors import unknown
from dragonscale.physics.hardware import Chip
from dragonscale.physics.notation import parse_array
from dragonscale.physics.provenance import Citation, fact_sources, networks_measured
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh

EXPLAIN_FIELDS = {
    "roofline": ("expression", "on", "sizes", "memory", "set"),
    "collective": ("kind", "on", "size", "axis", "mesh", "set", "one_way", "in_network", "filled", "picks"),
    "shard": ("expression", "mesh", "on", "set", "sizes"),
}
"""Fields of each question that `dscale explain` takes too."""
_ROOF_FACTS = ("matrix.bf16", "memory.hbm.bandwidth")
_WIRE_FACTS = (*_ROOF_FACTS, "ici.link", "levels.node.bandwidth", "levels.leaf.bandwidth")


@dataclass(frozen=True)
class OperationNumbers(Numbers):
    """An answer about one operation; `explain` gives its explanation, or None where the question has no formulas (a
    transfer between two chips, sizes that explain does not take)."""

    of: str
    record: Any
    on: str
    explain: Callable[[], Explanation | None]
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

    def formula(self, number: str) -> NumberFormulas:
        """The lines of the explanation that the number is in, or all of them."""
        explanation, derived = self.explain(), self.derived(number)
        if explanation is None:
            return NumberFormulas(notes=["This one is read off the answer; it has no letters."])
        beginning = derived.spec.explained or self.beginning(number)
        lines_and_solutions = (*explanation.lines, *explanation.solutions)
        lines = [line for line in lines_and_solutions if beginning and line.name.startswith(beginning)]
        crossovers = [f"{text}." for text in explanation.crossovers]
        # a number that no line begins like is shown with all of them
        return NumberFormulas(lines or explanation.lines, (), crossovers, explanation.notes)

    def beginning(self, number: str) -> str:  # noqa: ARG002 - of a roofline or collective the table says it
        """How the lines of the explanation begin that a number is in."""
        return ""

    @property
    def chip(self) -> Chip | None:
        if not self.on:
            return None
        return maybe_target(self.on, None)[0]

    def docs(self) -> tuple[str, str]:
        """The page of the documentation and the place on it."""
        if self.of == "roofline":
            return ("rooflines", "")
        return ("collectives", "inside")

    def sources(self) -> list[Citation]:
        """Where the rates of the chip are from; without a chip nothing but shapes was counted."""
        sources: list[Citation] = []
        if self.chip is not None:
            facts = _WIRE_FACTS if self.of == "collective" else _ROOF_FACTS
            sources = fact_sources(self.chip, facts)
        return sources or [Citation("Counted from the shapes that were typed.")]

    def network_text(self) -> str:
        if self.chip is None:
            return ""
        return f" {networks_measured(self.chip).text}"

    def network_sources(self) -> list[Citation]:
        if self.chip is None:
            return self.sources()
        return [*self.sources(), *networks_measured(self.chip).sources]


@dataclass(frozen=True)
class ShardNumbers(OperationNumbers):
    """A sharded einsum: a number of one pass, line and way of it."""

    view: ClassVar[str] = "shard"

    def key(self, number: str) -> str:
        return number.partition(":")[2]

    def beginning(self, number: str) -> str:
        return f"{self.key(number).split(':')[0].split('_')[0]}:"

    def parts(self) -> Mapping[str, Callable[[str], Any]]:
        return {way: lambda path, way=way: self._line(way, path.split(":")) for way in ("forward", "backward")}

    def names(self) -> dict[str, Any]:
        forward, backward = self.record.forward_collectives, self.record.backward_collectives
        moves = SimpleNamespace(
            forward_many=len(forward),
            backward_many=len(backward),
            forward_moves=_move_parts(forward),
            backward_moves=_move_parts(backward),
        )
        return super().names() | {"moves": moves}

    def _line(self, direction: str, path: list[str]) -> SimpleNamespace:
        """A number of a line of the pass: `LINE:array:PLACE:field`, or of one way to compute it (`LINE:WAY:field`,
        `LINE:WAY:move:PLACE:field`, `LINE:WAY:picture:ARRAY`)."""
        line = getattr(self.record, direction)[int(path[0])]
        if path[1] == "array":
            return _array(line.arrays[int(path[2])], path[3])
        way, name = line.strategies[int(path[1])], path[2]
        if name == "move":
            return _move(way.collectives[int(path[3])], path[4])
        if name == "picture":
            return self._pictured(":".join(path[3:]))
        times = {"compute": way.math_s, "HBM": way.hbm_s, "network": way.comms_s}
        id_ = ":".join(("shard", direction, *path[:2]))
        unit = "bytes"
        if name in times or name.endswith("_s"):
            unit = "s"
        elif "flops" in name:
            unit = "FLOP"
        sentence = f"{line.einsum}, computed as {way.local} on each chip"
        if way.bound_by:
            sentence += f"; bound by {way.bound_by}"
        if name in times:
            value = times[name]
        else:
            value = getattr(way, name)
        rows: list[Part] = []
        for resource, seconds in times.items():
            if seconds is not None:  # without a chip nothing has a time
                rows.append(Part(resource, shown(seconds, "s", f"{id_}:{resource}")))
        return SimpleNamespace(title=name.replace("_", " "), sentence=f"{sentence}.", value=value, unit=unit, rows=rows)

    def _pictured(self, text: str) -> SimpleNamespace:
        """What a chip holds of an array that is drawn; no number where a size is open."""
        array, sizes = parse_array(text), self.record.sizes
        value: float | str = "as drawn"
        if all(dim.name in sizes for dim in array.dims):
            value = float(local_bytes(array, dict(sizes), Mesh(dict(self.record.mesh))))
        sentence = "Bytes that a chip holds of this array."
        return SimpleNamespace(title=text, sentence=sentence, value=value, unit="bytes", rows=[])


def _move_parts(moves: list[Any]) -> list[Part]:
    return [
        Part(f"{move.collective} over {', '.join(move.axes)}", shown(move.bytes, "bytes"), move.array) for move in moves
    ]


def _array(array: Any, field: str) -> SimpleNamespace:
    rows = [
        Part("of a chip", shown(array.local_bytes, "bytes")),
        Part("in all", shown(array.total_bytes, "bytes")),
        Part("copies", count(array.replicas)),
    ]
    sentence = f"The array {array.array}: shape {array.local_shape} on a chip."
    unit = "size" if field == "replicas" else "bytes"
    return SimpleNamespace(title=array.array, sentence=sentence, value=getattr(array, field), unit=unit, rows=rows)


def _move(move: Any, field: str) -> SimpleNamespace:
    rows = [
        Part("of the array", shown(move.bytes, "bytes")),
        Part("a chip sends", shown(move.wire_bytes_per_chip, "bytes")),
        Part("seconds", shown(move.seconds, "s")),
        Part("to first order", shown(move.book_s, "s")),
    ]
    title, unit = f"{move.collective} over {', '.join(move.axes)}", "bytes" if "bytes" in field else "s"
    sentence = f"{move.array} becomes {move.result}."
    return SimpleNamespace(title=title, sentence=sentence, value=getattr(move, field), unit=unit, rows=rows)
