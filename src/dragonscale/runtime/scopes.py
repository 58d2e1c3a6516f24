"""Names for what the compiler and the profilers see: which part of the model an op belongs to, and which line made it.

`jax.named_scope` puts words into the `op_name` of every instruction and changes nothing else. An op is found under the
part of its block, then its line: `attention/Q/Wq` is the matmul that makes Q with Wq, `attention/norm/X` the norm
before it, `mlp/act/H` a nonlinearity. Norms and residual sums belong to the part that they feed or, where they close a
block, to the one before them: whoever reads a profile wants all of a block's attention in one place. What belongs to no
line has a scope of its own: `loss`, `optimizer`.

>>> from dragonscale.models import load_model
>>> block = load_model("gemma2-9b").program().sections[1]
>>> [scope_of(op, block) for op in block.ops[:2]], scope_of(block.ops[7], block), scope_of(block.ops[8], block)
(['attention/norm/X', 'attention/Q/Wq'], 'attention/norm/A', 'attention/add/R')
>>> weight_scope(block, "Wd"), weight_scope(block, "w_ffn")
('mlp/M/Wd', 'mlp/norm/X')
"""

from dragonscale.models.program import Op, Section

WORDS = {"embed": "embedding", "router": "experts", "shared": "experts", "indexer": "attention"}
"""Parts of a program that are known by another word in profiles; all others keep their own."""
_BETWEEN = ("norm", "residual")


def scope_of(op: Op, section: Section) -> str:
    """Where an op of a section's line is found."""
    made = op.output or op.inputs[0]
    line = (made.name, op.weights[0].name) if op.function == "einsum" and op.weights else (op.function, made.name)
    return "/".join((_part(op, section), *line))


def weight_scope(section: Section, weight: str) -> str:
    """Where work on a weight itself is found (casts, moves, sums of its gradient): at the line that uses it first."""
    users = (op for op in section.ops if any(array.name == weight for array in op.weights))
    found = next(users, None)
    return scope_of(found, section) if found else f"{WORDS.get(section.name, section.name)}/{weight}"


def _part(op: Op, section: Section) -> str:
    """The part of the block that a line counts to."""
    if op.part not in _BETWEEN:
        return WORDS.get(op.part, op.part)
    place = next(at for at, one in enumerate(section.ops) if one is op)
    before = [one.part for one in section.ops[:place] if one.part not in _BETWEEN]
    found = _reader(op, section.ops[place + 1 :]) if op.part == "norm" else None
    found = found or (
        before[-1] if before else next((one.part for one in section.ops if one.part not in _BETWEEN), op.part)
    )
    return WORDS.get(found, found)


def _reader(op: Op, later: tuple[Op, ...]) -> str | None:
    """The part of the line that reads a norm's result next; None where that is the residual sum."""
    for one in later:
        if op.output is not None and any(array.name == op.output.name for array in one.inputs):
            return None if one.part in _BETWEEN else one.part
    return None
