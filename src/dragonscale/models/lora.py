"""A reading of a program: the parameters that low-rank adapters add to its matmuls.

LoRA (Hu et al. 2021, arXiv:2106.09685) leaves a weight of `inputs` by `outputs` as it is and trains
two thin matrices beside it, `inputs x r` and `r x outputs`: r·(inputs + outputs) parameters. Which
dims of a weight are which is read off its line: what the line's input has and its output lacks is
contracted, what only the output has is made, and what both have (experts, or heads with a matrix
each) counts matrices, every one of which gets adapters of its own.
"""

from collections.abc import Iterable

from dragonscale.models.program import Op, Section, dim_size
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, product

ROUTER = "router"
"""The part that stays as it is: adapters are put on attention and on the matmuls of MLPs and experts."""


def adapted_lines(section: Section) -> list[tuple[Op, Array]]:
    """The matmuls of a section that get adapters, each with its weight."""
    return [(op, op.weights[0]) for op in section.ops if op.function == "einsum" and op.weights and op.part != ROUTER]


def adapter_parameters(sections: Iterable[Section], rank: Number) -> dict[str, Number]:
    """Parameters of the adapters of some sections, by part.

    >>> from dragonscale.models.program import parse_ops
    >>> line = parse_ops("attention: Q[b, t, n, h] = X[b, t, d] · Wq[d, n, h]")
    >>> adapter_parameters([Section("block", line, {"d": 4096, "n": 32, "h": 128}, 32)], 16)
    {'attention': 4194304}
    """
    by_part: dict[str, Number] = {}
    for section in sections:
        seen: set[str] = set()
        for op, weight in adapted_lines(section):
            if weight.name in seen:
                continue
            seen.add(weight.name)
            many = 1 if weight.name in section.shared else section.repeat
            by_part[op.part] = by_part.get(op.part, 0) + rank * _sides(section, op, weight) * many
    return by_part


def adapted_parameters(sections: Iterable[Section]) -> Number:
    """Parameters of the weights that get adapters: those that QLoRA stores in 4 bits."""
    total: Number = 0
    for section in sections:
        weights = {weight.name: weight for _, weight in adapted_lines(section)}
        for name, weight in weights.items():
            size = product(dim_size(section.dims, dim.name, weight) for dim in weight.dims)
            total = total + size * (1 if name in section.shared else section.repeat)
    return total


def _sides(section: Section, op: Op, weight: Array) -> Number:
    """Inputs and outputs of a weight's matrices, over all of them."""
    assert op.output is not None
    reads, makes = {name for array in op.inputs for name in array.names}, set(op.output.names)
    many, inputs, outputs = [], [], []
    for dim in weight.dims:
        name = dim.select or dim.name
        side = many if name in reads and name in makes else inputs if name in reads else outputs
        side.append(dim_size(section.dims, dim.name, weight))
    return product(many) * (product(inputs) + product(outputs))
