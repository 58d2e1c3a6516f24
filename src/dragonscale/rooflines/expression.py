"""What one chip is asked to do, as text: an einsum, attention, or an elementwise function.

    bf16[B, 8192] @ bf16[8192, 28672]                     multiply and sum
    attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])            flash attention: every array crosses HBM once
    act(bf16[B, F]), add(A[B, D], B[B, D]) -> C[B, D]     elementwise: a FLOP or more for each element of the result

>>> asked = parse_operation("attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])")
>>> asked.line.indices, str(asked.line.output)
(('b', 't', 'n', 'h', 's', 'k'), '[b, t, n, h]')
>>> parse_operation("relu(fp32[N])").cost({"N": 1024}).intensity()
0.125
"""

import re
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten
from dragonscale.notation import Array, Einsum, parse_array, parse_einsum
from dragonscale.notation.array import MAX_LENGTH, split_top
from dragonscale.numbers import Number, product, widened
from dragonscale.rooflines.cost import Cost
from dragonscale.rooflines.operations import array_bytes, compute_dtype, einsum_cost

_CALL = re.compile(r"\s*(?P<name>[a-z_]\w*)\s*\((?P<inside>.*)\)\s*(?:(?:->|→)(?P<output>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Operation:
    """An operation on whole arrays; `function` is empty for an einsum, `attend`, or an elementwise function's name."""

    line: Einsum
    function: str = ""

    def __str__(self) -> str:
        arrays = ", ".join(map(str, self.line.operands))
        return f"{self.function}({arrays}) -> {self.line.output}" if self.function else str(self.line)

    @property
    def varied(self) -> list[str]:
        """The dims worth varying alone: the heads of attention are not, for query heads share KV heads."""
        heads = [array.names[-2] for array in self.line.operands if self.function == "attend" and len(array.dims) > 2]
        return [name for name in self.line.indices if name not in heads]

    def cost(
        self, sizes: dict[str, Number], level: str = "hbm", weights_only: bool = False, per_element: float = 1
    ) -> Cost:
        """FLOPs, and the bytes of every array (or of the last operand alone) over one memory level.

        `per_element` are the FLOPs of an elementwise function for each element of its result.
        """
        counted = (len(self.line.operands) - 1,) if weights_only else None
        if not self.function:
            return einsum_cost(self.line, sizes, level=level, counted=counted)
        sizes = self.line.sizes | {name: widened(size) for name, size in sizes.items()}
        arrays = (*self.line.operands, self.line.output)
        moved = sum(array_bytes(arrays[place], sizes) for place in counted or range(len(arrays)))
        if self.function == "attend":
            work = {("matrix", compute_dtype(self.line)): _attention_flops(self.line, sizes)}
        else:
            elements = product(sizes[dim.name] for dim in self.line.output.dims)
            work = {("vector", "fp32"): per_element * elements}
        return Cost(flops=work, bytes={level: moved})


def parse_operation(text: str) -> Operation:
    """Read an einsum or a call of a function on arrays. See the module's examples."""
    call = _CALL.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if call is None:
        return Operation(parse_einsum(text))
    operands = tuple(parse_array(part) for part in split_top(call["inside"], ","))
    unnamed = [dim for array in operands for dim in array.dims if not dim.name]
    if unnamed:
        raise InputError(f"In {shorten(text)} the dim {unnamed[0]} has no name; write it as D={unnamed[0].size}.")
    given = parse_array(call["output"]) if call["output"] else None
    if call["name"] == "attend":
        return Operation(Einsum(operands, given or _attended(operands, text)), "attend")
    widest = max(operands, key=lambda array: len(array.dims))
    output = given or replace(widest, name="", partial=())
    line = Einsum(operands, output)
    strange = [dim for dim in output.dims if all(dim.name not in array.names for array in operands)]
    if strange:
        raise InputError(f"In {shorten(text)} the result has the dim {strange[0]}, which no operand has.")
    return Operation(line, call["name"])


def _attended(operands: tuple[Array, ...], text: str) -> Array:
    """The result of attention: the queries' dims, with the last of the values."""
    if len(operands) != 3 or not all(array.dims for array in operands):
        example = "'attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])'"
        raise InputError(f"{shorten(text)} is not attention; write queries, keys and values, such as {example}.")
    queries, keys, values = operands
    if queries.dims[-1].name != keys.dims[-1].name or not _key_dims(queries, keys):
        ends = f"In {shorten(text)} the keys {keys} must end in the queries' {queries.dims[-1].name}"
        raise InputError(f"{ends} and have a dim of their own.")
    return replace(queries, name="", dims=(*queries.dims[:-1], values.dims[-1]))


def _key_dims(queries: Array, keys: Array) -> list[str]:
    return [name for name in keys.names if name not in queries.names]


def _attention_flops(line: Einsum, sizes: dict[str, Number]) -> Number:
    """Scores and their sum over the values, for every pair of a query and a key: no mask, softmax left out."""
    queries, keys, values = line.operands
    pairs = product(sizes[name] for name in queries.names[:-1]) * sizes[_key_dims(queries, keys)[0]]
    return 2 * pairs * (sizes[queries.names[-1]] + sizes[values.names[-1]])
