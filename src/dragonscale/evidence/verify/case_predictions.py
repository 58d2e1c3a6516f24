"""What a case should send, by the project's own algebra: never by looking at what a compiler made of it.

A case may be computed in several ways; `ways` lists them, the one that the algebra would choose first. A single einsum has
every strategy of `sharding.algebra`, ranked by its time on the chip; a scheme, a model's attention and the library's own
forms have one way each.

>>> from dragonscale.evidence.verify.cases import case_named
>>> [(move.kind, move.axes, move.wire_bytes) for move in ways(case_named("case 3"), "v5p:2x2x1")[0].moves]
[('all_reduce', ('X',), 201326592.0)]
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dragonscale.collectives import wire_bytes
from dragonscale.evidence.verify.cases import Case
from dragonscale.evidence.verify.planned_moves import PlannedMove
from dragonscale.hardware import parse_slice
from dragonscale.models import load_model
from dragonscale.models.program import Section
from dragonscale.notation import parse_array, parse_einsum
from dragonscale.runtime.place import TrainingPlace, steps
from dragonscale.sharding.algebra import Strategy, derive, strategies
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.reshard import reshard
from dragonscale.sharding.step import Step
from dragonscale.training.reading import read_section
from dragonscale.training.schemes import read_scheme


@dataclass(frozen=True)
class Way:
    """One way to compute a case, in words, and the collectives it needs."""

    words: str
    moves: tuple[PlannedMove, ...]


def ways(case: Case, piece: str) -> list[Way]:
    """Every way to compute a case on one of its slices, the cheapest first."""
    chip = parse_slice(piece).chip
    return _WAYS[case.form](case, Mesh(dict(case.slices[piece]), chip=chip))


def _moves(taken: Iterable[Step], sizes: dict[str, int], mesh: Mesh, phase: str = "forward") -> tuple[PlannedMove, ...]:
    """Steps of the algebra as what a chip sends."""
    found = []
    for step in taken:
        if not step.free:
            sent = float(wire_bytes(step.kind, step.volume(dict(sizes), mesh), mesh.size(*step.axes)))
            found.append(PlannedMove(step.kind, step.axes, "array", phase, step.before.name, "", sent, 1))
    return tuple(found)


def _words(taken: Iterable[Step]) -> str:
    return ", ".join(str(step) for step in taken) or "nothing travels"


def _of_move(case: Case, mesh: Mesh) -> list[Way]:
    before, after = (parse_array(text) for text in case.texts)
    taken = reshard(before, after, Mesh(mesh.axes))
    return [Way(_words(taken), _moves(taken, case.sizes, mesh))]


def _of_einsum(case: Case, mesh: Mesh) -> list[Way]:
    line = parse_einsum(case.texts[0])
    found = strategies(line, dict(case.sizes), mesh)
    kept = {_words(way.steps): way for way in [*found, *derive(line, mesh, prefer="gather")]}
    return [Way(words, _moves(way.collectives, case.sizes, mesh)) for words, way in kept.items()]


def _of_scheme(case: Case, mesh: Mesh) -> list[Way]:
    scheme = read_scheme(case.texts[0])
    moves = scheme.forward_moves if case.form == "forward" else scheme.backward_moves
    taken = [move.step for move in moves]
    return [Way(_words(taken), _moves(taken, case.sizes, mesh, case.form))]


def _stationary(case: Case, mesh: Mesh) -> list[Step]:
    """The cheapest way of each line in which no weight moves."""

    def stays(way: Strategy) -> bool:
        return not any(step.before.name.startswith("W") for step in way.collectives)

    taken: list[Step] = []
    for text in case.texts:
        taken += next(filter(stays, strategies(parse_einsum(text), dict(case.sizes), mesh))).collectives
    return taken


def _of_lines(case: Case, mesh: Mesh) -> list[Way]:
    taken = _stationary(case, mesh)
    return [Way(_words(taken), _moves(taken, case.sizes, mesh))]


def _of_rings(case: Case, mesh: Mesh) -> list[Way]:
    """Each gather and scatter as a ring: all pieces but one pass each chip."""
    taken = _stationary(case, mesh)
    found = []
    for move in _moves(taken, case.sizes, mesh):
        hops = int(mesh.size(*move.axes)) - 1
        found.append(replace_move(move, kind="permute", wire_bytes=move.wire_bytes / hops, times=hops))
    return [Way(f"{_words(taken)}; each as sends round a ring", tuple(found))]


def replace_move(move: PlannedMove, kind: str, wire_bytes: float, times: int) -> PlannedMove:
    """A move done by other means."""
    return PlannedMove(kind, move.axes, move.what, move.phase, move.tensor, move.section, wire_bytes, times)


def attention_section(model: str) -> Section:
    """The attention of a model's block, without norms and residual sums."""
    block = next(each for each in load_model(model).program().sections if each.name not in ("embed", "head"))
    return replace(block, name="attention", ops=tuple(op for op in block.ops if op.part == "attention"), repeat=1)


def _of_attention(case: Case, mesh: Mesh) -> list[Way]:
    """The training reading of the section; what the forward pass gathered is still there in the backward pass."""
    section = attention_section(case.texts[0])
    place = TrainingPlace({axis: int(size) for axis, size in mesh.axes.items()})
    sizes = {**section.dims, **case.sizes, "s": case.sizes["t"]}
    taken: dict[Step, str] = {}
    for move in read_section(section, place.rules).moves:
        before, after = (place.fit(array, section.dims) for array in (move.step.before, move.step.after))
        for step in steps(before, after, tuple(place.sizes)):
            taken.setdefault(step, move.phase)
    found = [move for step, phase in taken.items() for move in _moves([step], sizes, mesh, phase)]
    return [Way(_words(taken), tuple(found))]


def _of_experts(case: Case, mesh: Mesh) -> list[Way]:
    """Rows and their weights there, results back; in training the gradients of all three the other way."""
    sizes = {**case.sizes, "S": int(mesh.chips)}
    rows, there, scale, there_too = (parse_array(text) for text in case.texts)
    forward = [*reshard(rows, there, mesh), *reshard(scale, there_too, mesh), *reshard(there, rows, mesh)]
    found = _moves(forward, sizes, mesh)
    if case.form == "experts trained":
        home = [*reshard(rows, there, mesh), *reshard(there_too, scale, mesh), *reshard(there, rows, mesh)]
        found = (*found, *_moves(home, sizes, mesh, "backward"))
    return [Way(_words(forward), found)]


def _of_split_cache(case: Case, mesh: Mesh) -> list[Way]:
    taken: list[Step] = []
    for text in case.texts:
        partial = parse_array(text)
        taken += reshard(partial, replace(partial, partial=()), mesh)
    return [Way(_words(taken), tuple(_each(taken, case, mesh)))]


def _each(taken: Iterable[Step], case: Case, mesh: Mesh) -> Iterator[PlannedMove]:
    yield from _moves(taken, case.sizes, mesh)


_WAYS: dict[str, Callable[[Case, Mesh], list[Way]]] = {
    "move": _of_move,
    "einsum": _of_einsum,
    "forward": _of_scheme,
    "backward": _of_scheme,
    "lines": _of_lines,
    "rings": _of_rings,
    "attention": _of_attention,
    "experts": _of_experts,
    "experts trained": _of_experts,
    "split cache": _of_split_cache,
}
