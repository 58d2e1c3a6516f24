"""The part of the model that a kernel belongs to, told from what runs around it.

A trace of kernels without scopes still shows a Transformer: attention kernels come back once a layer, and between two
of them stand, in order, the output projection, the MLP's matmuls and the next layer's projections of Q, K and V; in the
backward pass the same in reverse, each twice (gradients of inputs and of weights). So the stretch between two attention
kernels is laid against a template of as many matmuls as most stretches have; what is left over in the odd one is the
head, between the last layer and the end of the step. Norms go to the part that they feed, activations and casts to the
matmul that they stand beside. In the backward pass a norm comes after what it fed. Between two steps stand the last
gradients, the update and the lookup of the next tokens.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.plan.ledger import COLLECTIVES

_MATMULS = ("matmul", "grouped matmul")
_WITHIN = 24
"""Kernels between the first and the last matmul of an attention that is not fused, at most."""
_BY_COUNT = {4: (1, 2, 1), 5: (1, 3, 1), 6: (1, 2, 3), 7: (1, 3, 3)}
"""Matmuls of a layer without any other hint: output projection, MLP, Q, K and V (joined or apart)."""


_FIXED = ("loss", "optimizer", "sampling", "router", "experts", "head", "attention")
"""Parts that a kernel's name says without doubt, wherever it stands."""


@dataclass(frozen=True)
class Placing:
    """Where in the model and the step one event stands."""

    section: str = ""
    phase: str = ""
    what: str = ""


@dataclass(frozen=True)
class LayerMatmuls:
    """How many matmuls a layer has, forward: output projection, MLP, and projections before attention."""

    out: int
    mlp: int
    qkv: int
    experts: bool = False

    @property
    def count(self) -> int:
        """All of them."""
        return self.out + self.mlp + self.qkv


@dataclass(frozen=True)
class _Mark:
    """A matmul or an attention kernel with its place in the sequence; attention is `forward` or `backward`."""

    place: int
    attention: str = ""


def place_by_neighbours(sequence: Sequence[OpRole]) -> list[Placing] | None:
    """A placing for each op of one stream, in order of time; None where no attention is found to tell the layers by."""
    if not any(role.kind == "attention" for role in sequence):
        sequence = _unfused(sequence)
    marks = _marks(sequence)
    anchors = [number for number, mark in enumerate(marks) if mark.attention]
    if not anchors:
        return None
    layer = _layer(sequence, marks, anchors)
    if layer is None:
        return None
    ways = _ways(sequence, marks, anchors)
    places = (marks[number].place for number in anchors)
    labels = {place: Placing("attention", way, "scores") for place, way in zip(places, ways, strict=True)}
    bounds, around = [-1, *anchors, len(marks)], ["", *ways, ""]
    for (before, after), (left, right) in zip(pairwise(bounds), pairwise(around), strict=True):
        inside = [mark.place for mark in marks[before + 1 : after]]
        labels.update(zip(inside, _template(left, right, len(inside), layer), strict=True))
    return fill_between(sequence, labels)


def _unfused(sequence: Sequence[OpRole]) -> Sequence[OpRole]:
    """Attention that is no kernel of its own: a softmax with the matmuls before and after it, two each in the backward
    pass."""
    found = list(sequence)
    matmuls = [place for place, role in enumerate(sequence) if role.kind == "matmul"]
    for place, role in enumerate(sequence):
        if role.what != "softmax" or role.section not in ("", "attention"):
            continue
        after = bisect(matmuls, place)
        each = 2 if role.phase == "backward" else 1
        if after < each or after + each > len(matmuls):
            continue
        first, last = matmuls[after - each], matmuls[after + each - 1]
        if last - first > _WITHIN:
            continue
        for inside in (*matmuls[after - each : after + each], place):
            found[inside] = msgspec.structs.replace(
                found[inside], kind="attention", section="attention", phase=role.phase, what="scores"
            )
    return found


def _marks(sequence: Sequence[OpRole]) -> list[_Mark]:
    """Attention kernels and matmuls, in order; kernels of one attention (its pieces and their sum) count once."""
    found: list[_Mark] = []
    for place, role in enumerate(sequence):
        if role.kind == "attention":
            way = "backward" if role.phase == "backward" else "forward"
            if found and found[-1].attention == way:
                continue
            found.append(_Mark(place, way))
        elif role.kind in _MATMULS and role.what != "split-K sum" and role.section not in ("optimizer",):
            found.append(_Mark(place))
    return found


def _layer(sequence: Sequence[OpRole], marks: list[_Mark], anchors: list[int]) -> LayerMatmuls | None:
    """The matmuls of a layer, as most stretches between two forward attentions have them."""
    votes: Counter[LayerMatmuls] = Counter()
    for first, second in pairwise(anchors):
        if (marks[first].attention, marks[second].attention) == ("forward", "forward"):
            found = _split(sequence, [mark.place for mark in marks[first + 1 : second]], marks[first].place)
            if found:
                votes[found] += 1
    return votes.most_common(1)[0][0] if votes else None


def _split(sequence: Sequence[OpRole], places: list[int], start: int) -> LayerMatmuls | None:
    """How the matmuls between two attentions divide, by activations and norms that stand between them, else by their
    number."""
    if len(places) < 3:
        return None
    gaps = [sequence[a + 1 : b] for a, b in pairwise(places)]
    norms = [number for number, gap in enumerate(gaps) if any(is_norm(role) for role in gap)]
    active = [any(role.what == "activation" or role.section == "mlp" for role in gap) for gap in gaps]
    acts = [number for number, activates in enumerate(active) if activates and number >= 1]
    inside = sequence[start : places[-1]]
    experts = any(role.section in ("experts", "router") or role.kind == "grouped matmul" for role in inside)
    out = 1 + norms[0] if norms and norms[0] <= 2 and (not acts or norms[0] < acts[0]) else 1
    # the first norm after the MLP's activation ends it: an MLP with a gate may have a matmul between the activation and
    # the last one
    later = [number for number in norms if number >= max([out + 1, *(act + 1 for act in acts)])]
    if later:
        return LayerMatmuls(out, later[0] + 1 - out, len(places) - later[0] - 1, experts)
    if acts and len(places) > acts[-1] + 2:
        return LayerMatmuls(out, acts[-1] + 2 - out, len(places) - acts[-1] - 2, experts)
    known = _BY_COUNT.get(len(places))
    return LayerMatmuls(*known, experts) if known else None


def _ways(sequence: Sequence[OpRole], marks: list[_Mark], anchors: list[int]) -> list[str]:
    """Each attention's way: forward, backward, or computed again. That is a forward right before its backward, and
    after something of the backward pass: another layer's attention, or the loss."""
    found: list[str] = []
    for at, number in enumerate(anchors):
        way = marks[number].attention
        following = marks[anchors[at + 1]].attention if at + 1 < len(anchors) else ""
        if way == "forward" and following == "backward" and at:
            last = anchors[at - 1]
            between = sequence[marks[last].place + 1 : marks[number].place]
            turned = any(role.phase == "backward" or role.section == "loss" for role in between)
            fresh = any(role.section in ("embedding", "optimizer") and role.phase != "backward" for role in between)
            if (marks[last].attention == "backward" or turned) and not fresh:
                way = "recompute"
        found.append(way)
    return found


def _template(left: str, right: str, count: int, layer: LayerMatmuls) -> list[Placing]:
    """Placings of the matmuls between two attentions: what follows the first, what precedes the second, and between
    them the head."""
    mlp = "experts" if layer.experts else "mlp"
    start: list[Placing] = []
    end: list[Placing] = []
    if left == "backward":
        start = [Placing("attention", "backward", "QKV")] * (2 * layer.qkv)
    elif left:
        start = [Placing("attention", left, "Wo")] * layer.out + _mlp(mlp, left, layer.mlp)
    if right == "backward":
        end = _mlp(mlp, "backward", 2 * layer.mlp)[::-1] + [Placing("attention", "backward", "Wo")] * (2 * layer.out)
    elif right:
        end = [Placing("attention", right, "QKV")] * layer.qkv
    if (left, right) == ("recompute", "backward") or len(start) + len(end) > count:
        start = start[: max(0, count - len(end))]
    end = end[max(0, len(end) - (count - len(start))) :]
    middle = count - len(start) - len(end)
    return [*start, *_middle(left, right, middle), *end]


def _mlp(section: str, phase: str, count: int) -> list[Placing]:
    if section == "experts":
        return [Placing(section, phase)] * count
    down = max(1, count // 3)
    return [Placing(section, phase, "up")] * (count - down) + [Placing(section, phase, "down")] * down


def _middle(left: str, right: str, count: int) -> list[Placing]:
    """What stands between two layers that do not follow each other: after a forward pass the head, forward and
    backward."""
    if left == "backward":  # joined projections may be apart here
        return [Placing("attention", "backward", "QKV")] * count
    if not left:
        return [Placing()] * count
    if right in ("backward", "recompute"):
        return [Placing("head", "forward" if number < max(1, count // 3) else "backward") for number in range(count)]
    return [Placing("head", left)] * count


# What stands between two matmuls


def is_norm(role: OpRole) -> bool:
    """Whether an op is a norm, or a piece of one: a mean that no name places elsewhere."""
    named = role.what == "norm" or (role.section == "norm" and role.kind in ("reduction", "elementwise"))
    return named or (role.kind == "reduction" and role.section == "" and role.what == "")


def fill_between(sequence: Sequence[OpRole], labels: dict[int, Placing]) -> list[Placing]:
    """Everything between the matmuls, by those on both sides."""
    found = [Placing()] * len(sequence)
    places = sorted(labels)
    for place, following in pairwise([*places, len(sequence)]):
        behind = sequence[place + 1 : following]
        routes = sequence[place].kind == "matmul" and any(role.section == "router" for role in behind)
        chosen = Placing("router", labels[place].phase) if routes else labels[place]
        found[place] = _named(sequence[place], chosen)
    for left, right in zip([-1, *places], [*places, len(sequence)], strict=False):
        if right - left < 2:
            continue
        gap = range(left + 1, right)
        before, after = labels.get(left, Placing()), labels.get(right, Placing())
        for place, placing in zip(gap, _gap([sequence[place] for place in gap], before, after), strict=True):
            found[place] = placing
    return found


def _named(role: OpRole, placing: Placing) -> Placing:
    """A matmul that its name already places stays there."""
    if not role.section or role.section == "norm":
        return placing
    what = role.what or (placing.what if role.section == placing.section else "")
    return Placing(role.section, role.phase or placing.phase, what)


def _gap(roles: list[OpRole], before: Placing, after: Placing) -> list[Placing]:
    """The ops between two matmuls. At the ends of a step lookups, losses and sampling keep the part that their names
    say."""
    if before.phase == "backward" and after.phase in ("forward", ""):
        return _between_steps(roles, before, after)
    norms = [number for number, role in enumerate(roles) if is_norm(role)]
    again = before.phase == "backward" and after.phase == "recompute"
    back = (before.phase == "backward" or after.phase == "backward") and not again
    turn = len(roles) if not norms else (norms[-1] + 1 if back else norms[0])
    if again:
        turn = 1 + max((number for number, role in enumerate(roles) if role.phase == "backward"), default=-1)
    edge = before.section in ("head", "") or after.section == ""
    lookup = _lookup(roles) if edge else len(roles)
    found: list[Placing] = []
    for number, role in enumerate(roles):
        near = before if number < turn and not (role.kind in ("copy", "memory") and not norms) else after
        if lookup < len(roles):
            near = before if number < lookup else after
        near = near if near.section else (after if after.section else before)
        ends = edge or (before.section != after.section and "head" in (before.section, after.section))
        section, phase = near.section, role.phase or near.phase
        if role.section in _FIXED or (role.section == "embedding" and ends):
            section, phase = role.section, role.phase or ("update" if role.section == "optimizer" else near.phase)
        elif role.kind in COLLECTIVES:
            section = before.section
        elif role.section == "mlp" and section != "experts":
            section = "mlp"
        found.append(Placing(section, phase, role.what))
    return found


def _between_steps(roles: list[OpRole], before: Placing, after: Placing) -> list[Placing]:
    """From the last gradient of a step to the first matmul of the next: gradients, the update, the lookup of the next
    tokens."""
    lookup = _lookup(roles)
    if lookup == len(roles) and after.phase == "forward":
        lookup = max((number for number, role in enumerate(roles) if role.kind == "gather"), default=len(roles))
    found: list[Placing] = []
    for number, role in enumerate(roles):
        if role.section in _FIXED or role.section == "embedding" or number == lookup:
            section = "embedding" if number == lookup else role.section
            phase = role.phase or (
                "update" if section == "optimizer" else "forward" if number >= lookup else "backward"
            )
            found.append(Placing(section, phase, role.what))
        elif number > lookup:
            found.append(Placing(after.section, role.phase or after.phase, role.what))
        elif role.phase == "backward" or role.section == "norm":
            found.append(Placing(before.section, role.phase or before.phase, role.what))
        else:
            found.append(Placing("optimizer", "update", role.what))
    return found


def _lookup(roles: list[OpRole]) -> int:
    """Where the embedding of the tokens is looked up; the number of ops where that cannot be told."""
    forward = [role.section == "embedding" and role.phase != "backward" for role in roles]
    return forward.index(True) if any(forward) else len(roles)
