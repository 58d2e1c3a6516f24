"""Attention without a kernel of its own: matmuls of queries with keys, and of their scores with values, around a
softmax.

A plan has one line for them, `attention`, whatever computes it, so such matmuls are of the kind `attention` here too. A
projection multiplies with a weight, which has no index that is in the other operand and in the result as well;
attention has the sequence and the head there.
"""

import math
import re
from collections.abc import Sequence

import msgspec

from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import OpText
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.sections import components

SCORES = "scores"
_EINSUM = re.compile(r"(?:^|/)([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)(?:/|$)")
_CORE = frozenset(table("scopes.toml")["core"])
"""Scopes in which attention stands without its projections."""
_AROUND = ("elementwise", "reduction", "copy", "memory", "gather")
_BATCHED = ("aten::bmm", "aten::baddbmm")


def with_scores(op: OpText, role: OpRole, reader: HloReader) -> OpRole:
    """The role of a matmul of attention's scores as one of attention; any other as it is."""
    if role.kind != "matmul" or role.section != "attention" or role.what in ("QKV", "Wo") or not _is_scores(op, reader):
        return role
    return msgspec.structs.replace(role, kind="attention", what=SCORES)


def around_scores(ops: Sequence[OpText], roles: list[OpRole], reader: HloReader) -> list[OpRole]:
    """Softmaxes, masks and copies in the same scope as scores, told as theirs: a plan's line of
    attention has them too."""
    programs = {
        op.module for op, role in zip(ops, roles, strict=True) if role.kind == "attention" and role.what == SCORES
    }
    found = list(roles)
    for number, (op, role) in enumerate(zip(ops, roles, strict=True)):
        if (
            op.module in programs
            and role.section == "attention"
            and role.kind in _AROUND
            and role.what in ("", "softmax")
        ):
            place = reader.found(op)
            scope = (place[0].part(*place[1])[0].scope if place else "") or op.scope
            if _CORE.intersection(components(scope)):
                found[number] = msgspec.structs.replace(role, what=SCORES)
    return found


def _is_scores(op: OpText, reader: HloReader) -> bool:
    found = reader.found(op)
    scope = (found[0].said(found[1][1]).scope if found else "") or op.scope
    if (einsum := _EINSUM.search(scope)) is not None:
        return is_batched(einsum[1], einsum[2], einsum[3])
    if op.shapes:
        return op.caller.endswith(_BATCHED)
    if _CORE.intersection(components(scope)):
        return True
    work = reader.work(op)
    matmuls = work.matmuls if work else ()
    return bool(matmuls) and all(each.batch > 1 for each in matmuls) and not _has_weight(op, reader)


def is_batched(left: str, right: str, out: str) -> bool:
    """Whether an einsum has an index in both operands and in the result.

    >>> is_batched("btkgh", "bskh", "bkgts"), is_batched("abc", "cde", "abde")
    (True, False)
    """
    return bool(set(left) & set(right) & set(out))


def _has_weight(op: OpText, reader: HloReader) -> bool:
    """Whether a matmul reads or makes as many numbers as a weight has; True where the program does not say what it is
    given."""
    found = reader.found(op)
    if found is None or not found[0].weights:
        return True
    sizes = {math.prod(dims) for dims in found[0].weights}
    made = [shape.dims for shape in found[1][1].shapes]
    return any(math.prod(dims) in sizes for dims in (*reader.operands(op), *made))
