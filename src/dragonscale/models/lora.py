"""Low-rank adapters in a program: two thin einsums beside each targeted matmul, and nothing else trained.

LoRA (Hu et al. 2021, arXiv:2106.09685) leaves a weight of `inputs` by `outputs` as it is and trains two thin matrices
beside it, `inputs x r` and `r x outputs`: r·(inputs + outputs) parameters. Which dims of a weight are which is read off
its line: what the line's input has and its output lacks is contracted, what only the output has is made, and what both
have (experts, or heads with a matrix each) counts matrices, every one of which gets adapters of its own.

>>> from dragonscale.models.program import parse_ops
>>> line = parse_ops("attention: Q[b, t, n, h] = X[b, t, d] · Wq[d, n, h]")
>>> print(with_adapters(Section("block", line, {"d": 4096, "n": 32, "h": 128}), Adapters(16)))
block
  attention: Q[b, t, n, h] = X[b, t, d] · Wq[d, n, h]
  adapters: Q_a[b, t, lr] = X[b, t, d] · Wq_a[d, lr]
  adapters: Q_b[b, t, n, h] = Q_a[b, t, lr] · Wq_b[lr, n, h]
  adapters: Q[b, t, n, h] = add(Q[b, t, n, h], Q_b[b, t, n, h])
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from dragonscale.errors import unknown
from dragonscale.models.count import weight_size
from dragonscale.models.program import Op, Program, Section, dim_size
from dragonscale.physics.notation import Array, Dim
from dragonscale.physics.numbers import Number, product
from dragonscale.tables import beside

LEFT_OUT = ("router",)
"""Parts that stay as they are: adapters are put on attention and on the matmuls of MLPs and experts."""
RANK = Dim("lr")
PART = "adapters"
_NAMES = beside(__file__, "adapters.toml")


@dataclass(frozen=True)
class Adapters:
    """Adapters of a `rank` (0: none) on weights of these names, all matmuls of the layers without any. `scalar`: the
    head gives one number a token, as a reward model's does."""

    rank: int = 0
    weights: frozenset[str] = frozenset()
    scalar: bool = False

    def takes(self, op: Op) -> bool:
        """Whether an op gets adapters."""
        is_matmul = op.function == "einsum" and len(op.inputs) == len(op.weights) == 1
        if not is_matmul or op.part in LEFT_OUT:
            return False
        return not self.weights or op.weights[0].name.partition("_shared")[0] in self.weights


def target_weights(names: Iterable[str]) -> frozenset[str]:
    """The weights that target names stand for.

    >>> sorted(target_weights(["q_proj", "linear_fc2"]))
    ['Wd', 'Wiq', 'Wq', 'Wqa', 'Wqb', 'Wsd']
    """
    weights: set[str] = set()
    for word in names:
        for name in _NAMES["also"].get(word, [word]):
            if name not in _NAMES["targets"]:
                raise unknown("LoRA target called", word, ["all", "attention", *_NAMES["targets"], *_NAMES["also"]])
            weights.update(_NAMES["targets"][name])
    return frozenset(weights)


ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "kv_a_proj_with_mqa")


def adapted(program: Program, adapters: Adapters) -> Program:
    """A program whose layers have adapters, and in which nothing else is trained; modules that predict further tokens
    are left out."""
    if adapters.scalar:
        *others, head = program.sections
        head = replace(head, dims=head.dims | {"v": 1})
        program = replace(program, sections=(*others, head), extras=_towers(program))
    if not adapters.rank:
        return program
    embed, *blocks, head = map(_frozen, program.sections)
    sections = (embed, *(with_adapters(block, adapters) for block in blocks), head)
    return replace(program, sections=sections, extras=_towers(program))


def _towers(program: Program) -> tuple[Section, ...]:
    return tuple(section for section in program.extras if not section.name.startswith("mtp"))


def _frozen(section: Section) -> Section:
    return replace(section, ops=tuple(replace(op, frozen=bool(op.weights)) for op in section.ops))


def with_adapters(section: Section, adapters: Adapters) -> Section:
    """A section with adapters beside its matmuls."""
    ops: list[Op] = []
    for op in section.ops:
        ops.append(op)
        if adapters.takes(op):
            ops += _beside(op)
    return replace(section, ops=tuple(ops), dims=section.dims | {RANK.name: adapters.rank})


def _beside(op: Op) -> Iterator[Op]:
    assert op.output is not None
    (source,), (weight,) = op.inputs, op.weights
    many, inputs, outputs = _dims(op, weight)
    unchanged = tuple(dim for dim in op.output.dims if dim.name in source.names)
    # (batch, tokens, r), and what the matmul itself makes
    thin = Array(f"{op.output.name}_a", (*unchanged, RANK))
    wide = replace(op.output, name=f"{op.output.name}_b")
    down, up = Array(f"{weight.name}_a", (*many, *inputs, RANK)), Array(f"{weight.name}_b", (*many, RANK, *outputs))
    yield Op(PART, "einsum", (source,), (down,), thin)
    yield Op(PART, "einsum", (thin,), (up,), wide)
    yield Op(PART, "add", (op.output, wide), (), op.output)


def _dims(op: Op, weight: Array) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """The dims of a weight that count matrices, that are contracted, and that are made."""
    assert op.output is not None
    reads, makes = {name for array in op.inputs for name in array.names}, set(op.output.names)
    many: list[Dim] = []
    inputs: list[Dim] = []
    outputs: list[Dim] = []
    for dim in weight.dims:
        name = dim.select or dim.name
        if name not in reads:
            outputs.append(dim)
        elif name in makes:
            many.append(dim)
        else:
            inputs.append(dim)
    return many, inputs, outputs


def adapted_lines(section: Section) -> list[tuple[Op, Array]]:
    """The matmuls of a section that get adapters where all do, each with its weight."""
    return [(op, op.weights[0]) for op in section.ops if Adapters(1).takes(op)]


def adapter_parameters(sections: Iterable[Section], rank: Number) -> dict[str, Number]:
    """Parameters of the adapters of some sections, by part.

    >>> from dragonscale.models.program import parse_ops
    >>> line = parse_ops("attention: Q[b, t, n, h] = X[b, t, d] · Wq[d, n, h]")
    >>> adapter_parameters([Section("block", line, {"d": 4096, "n": 32, "h": 128}, 32)], 16)
    {'attention': 4194304}
    """
    by_part: dict[str, Number] = {}
    for section in sections:
        counted: set[str] = set()
        for op, weight in adapted_lines(section):
            if weight.name in counted:
                continue
            counted.add(weight.name)
            size = rank * _sides(section, op, weight) * section.copies(weight)
            by_part[op.part] = by_part.get(op.part, 0) + size
    return by_part


def adapted_parameters(sections: Iterable[Section]) -> Number:
    """Parameters of the weights that get adapters: those that QLoRA stores in 4 bits."""
    total: Number = 0
    for section in sections:
        weights = {weight.name: weight for _, weight in adapted_lines(section)}
        for weight in weights.values():
            total = total + weight_size(section, weight) * section.copies(weight)
    return total


def _sides(section: Section, op: Op, weight: Array) -> Number:
    """Inputs and outputs of a weight's matrices, over all of them."""
    # many of inputs x outputs: many x (inputs + outputs) numbers for each of the adapter's r channels
    many, inputs, outputs = map(partial(_elements, section, weight), _dims(op, weight))
    return many * (inputs + outputs)


def _elements(section: Section, weight: Array, dims: Iterable[Dim]) -> Number:
    return product(dim_size(section.dims, dim.name, weight) for dim in dims)
