"""What a case should send, by the project's own algebra: never by looking at what a compiler made of it.

A case may be computed in several ways; `ways` lists them, the one that the algebra would choose first. A single einsum
has every strategy of `sharding.algebra`, ranked by its time on the chip, and a chain of lines every combination of
theirs; a scheme, a model's attention and the library's own forms have one way each, or two that differ in a detail.

>>> from tests.evidence.book_programs.cases import case_named
>>> [(move.kind, move.axes, move.wire_bytes) for move in ways(case_named("case 3"), "v5p:2x2x1")[0].moves]
[('all_reduce', ('X',), 201326592.0)]
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dragonscale.course.closed_forms.schemes import read_scheme
from dragonscale.models import load_model
from dragonscale.models.program import Section
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.notation import Array, parse_array, parse_einsum
from dragonscale.physics.sharding.algebra import derive, strategies
from dragonscale.physics.sharding.layout import Sizes, local_bytes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard import reshard
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.plan.gradients import read_training
from dragonscale.plan.ledger import LedgerLine
from dragonscale.runtime.place import Place, steps
from tests.evidence.book_programs.cases import Case
from tests.sharding.wording import words


@dataclass(frozen=True)
class Way:
    """One way to compute a case, in words, and the collectives it needs."""

    words: str
    moves: tuple[LedgerLine, ...]


def ways(case: Case, piece: str) -> list[Way]:
    """Every way to compute a case on one of its slices, the cheapest first."""
    chip = parse_slice(piece).chip
    return _WAYS[case.form](case, Mesh(dict(case.slices[piece]), chip=chip))


def _moves(taken: Iterable[Step], sizes: dict[str, int], mesh: Mesh, phase: str = "forward") -> tuple[LedgerLine, ...]:
    """Steps of the algebra as what a chip sends."""
    found = []
    for step in taken:
        if not step.free:
            sent = float(wire_bytes(step.kind, step.volume(dict(sizes), mesh), mesh.size(*step.axes)))
            found.append(LedgerLine("", phase, step.before.name, step.kind, step.axes, 1, wire_bytes=sent))
    return tuple(found)


def _words(taken: Iterable[Step]) -> str:
    return ", ".join(words(step, full=True) for step in taken) or "nothing travels"


def _of_move(case: Case, mesh: Mesh) -> list[Way]:
    before, after = (parse_array(text) for text in case.texts)
    taken = reshard(before, after, Mesh(mesh.axes))
    return [Way(_words(taken), _moves(taken, case.sizes, mesh))]


def _of_einsum(case: Case, mesh: Mesh) -> list[Way]:
    line = parse_einsum(case.texts[0])
    found = strategies(line, dict(case.sizes), mesh)
    kept = {way.steps: way for way in [*found, *derive(line, mesh, prefer="gather")]}
    return [Way(_words(way.collectives), _moves(way.collectives, case.sizes, mesh)) for way in kept.values()]


def _of_scheme(case: Case, mesh: Mesh) -> list[Way]:
    scheme = read_scheme(case.texts[0])
    moves = scheme.forward_moves if case.form == "forward" else scheme.backward_moves
    taken = [move.step for move in moves]
    return [Way(_words(taken), _moves(taken, case.sizes, mesh, case.form))]


def _of_lines(case: Case, mesh: Mesh) -> list[Way]:
    """Every combination of the lines' strategies, the quickest first: with few tokens, one that moves no weight."""
    lines = [parse_einsum(text) for text in case.texts]
    sizes: Sizes = dict(case.sizes)
    chains = list(itertools.product(*(strategies(line, sizes, mesh) for line in lines)))
    chains.sort(key=lambda chain: sum(way.lower_seconds(sizes, mesh) for way in chain))
    found: dict[tuple[Step, ...], Way] = {}
    for chain in chains:
        taken = tuple(step for way in chain for step in way.collectives)
        found.setdefault(taken, Way(_words(taken), _moves(taken, case.sizes, mesh)))
    return list(found.values())


def _of_rings(case: Case, mesh: Mesh) -> list[Way]:
    """Each gather and scatter of the quickest way as a ring: all pieces but one pass each chip."""
    best = _of_lines(case, mesh)[0]
    found = []
    for move in best.moves:
        hops = int(mesh.size(*move.axes)) - 1
        found.append(replace(move, kind="permute", wire_bytes=move.wire_bytes / hops, times=hops))
    return [Way(f"{best.words}; each as sends round a ring", tuple(found))]


def attention_section(model: str) -> Section:
    """The attention of a model's block, without norms and residual sums."""
    block = next(each for each in load_model(model).program().sections if each.name not in ("embed", "head"))
    return replace(block, name="attention", ops=tuple(op for op in block.ops if op.part == "attention"), repeat=1)


def _of_attention(case: Case, mesh: Mesh) -> list[Way]:
    """The training reading of the section; what the forward pass gathered is still there in the backward pass."""
    section = attention_section(case.texts[0])
    place = Place({axis: int(size) for axis, size in mesh.axes.items()})
    sizes = {**section.dims, **case.sizes, "s": case.sizes["t"]}
    taken: dict[Step, str] = {}
    for move in read_training(section, place.rules).moves:
        before, after = (place.fit(array, section.dims) for array in (move.step.before, move.step.after))
        for step in steps(before, after, tuple(place.sizes)):
            taken.setdefault(step, move.phase)
    found = [move for step, phase in taken.items() for move in _moves([step], sizes, mesh, phase)]
    return [Way(_words(taken), tuple(found))]


def _of_ring(case: Case, mesh: Mesh) -> list[Way]:
    """Keys, values and positions pass every chip but the last. What went round is still there in the backward pass,
    unless it was thrown away and goes round again. Gradients go all the way home in fp32; on the last hop they may be
    cast first."""
    chips = int(mesh.chips)

    def passed(array: Array, hops: int, phase: str) -> LedgerLine:
        sent = float(local_bytes(array, dict(case.sizes), mesh))
        return LedgerLine("", phase, array.name, "permute", tuple(mesh.axes), hops, wire_bytes=sent)

    held = [parse_array(text) for text in case.texts]
    forward = tuple(passed(array, chips - 1, "forward") for array in held)
    if case.form == "ring":
        return [Way("keys, values and positions go round", forward)]
    again = tuple(passed(array, chips - 1, "backward") for array in held)
    slopes = [replace(array, name=f"d{array.name}") for array in held[:2]]
    home = tuple(passed(replace(array, dtype="fp32"), chips, "backward") for array in slopes)
    cast = tuple(
        move
        for array in slopes
        for move in (passed(replace(array, dtype="fp32"), chips - 1, "backward"), passed(array, 1, "backward"))
    )
    twice, once = "keys and values go round in both passes", "what went round is kept for the backward pass"
    last = ", and gradients are cast before their last hop"
    return [
        Way(once, (*forward, *home)),
        Way(once + last, (*forward, *cast)),
        Way(twice, (*forward, *again, *home)),
        Way(twice + last, (*forward, *again, *cast)),
    ]


def _of_experts(case: Case, mesh: Mesh) -> list[Way]:
    """Rows and their weights there, results back; in training the gradients of all three the other way. The weights are
    multiplied into rows of another type, so that they may be cast to it before they leave."""
    sizes = {**case.sizes, "S": int(mesh.chips)}
    rows, there, scale, there_too = (parse_array(text) for text in case.texts)
    found = []
    for dtype, how in (("fp32", "in fp32"), ("bf16", "cast to the rows' type before they leave")):
        here, away = (replace(array, dtype=dtype) for array in (scale, there_too))
        forward = [*reshard(rows, there, mesh), *reshard(here, away, mesh), *reshard(there, rows, mesh)]
        moves = _moves(forward, sizes, mesh)
        if case.form == "experts trained":
            slopes = [*reshard(rows, there, mesh), *reshard(away, here, mesh), *reshard(there, rows, mesh)]
            moves += _moves(slopes, sizes, mesh, "backward")
        found.append(Way(f"rows and results travel, and the router's weights {how}", moves))
    return found


def _of_split_cache(case: Case, mesh: Mesh) -> list[Way]:
    taken: list[Step] = []
    for text in case.texts:
        partial = parse_array(text)
        taken += reshard(partial, replace(partial, partial=()), mesh)
    return [Way(_words(taken), _moves(taken, case.sizes, mesh))]


_WAYS: dict[str, Callable[[Case, Mesh], list[Way]]] = {
    "move": _of_move,
    "einsum": _of_einsum,
    "forward": _of_scheme,
    "backward": _of_scheme,
    "lines": _of_lines,
    "rings": _of_rings,
    "attention": _of_attention,
    "ring": _of_ring,
    "ring trained": _of_ring,
    "experts": _of_experts,
    "experts trained": _of_experts,
    "split cache": _of_split_cache,
}
