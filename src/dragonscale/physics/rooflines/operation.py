"""Operations of one chip as text: an einsum, attention, an elementwise function, or amounts alone.

    bf16[B, 8192] @ bf16[8192, 28672]                     multiply and sum
    attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])            flash attention: every array crosses HBM once
    attention(B=8, T=4096, N=64, K=8, H=128, causal)      the same by its sizes; T=1, S=8192 decodes
    bf16[B, 8192] + bf16[B, 8192], softmax(bf16[B, F])    elementwise: some FLOPs for each element of the result
    2e12FLOP 3GB                                          amounts alone

>>> attention = parse_operation("attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])")
>>> attention.indices, str(attention.line.output)
(('b', 't', 'n', 'h', 's', 'k'), '[b, t, n, h]')
>>> parse_operation("relu(fp32[N])").cost({"N": 1024}).intensity()
0.125
>>> prompt = parse_operation("attention(T=4, N=1, H=64, causal)")
>>> prompt.cost({}).total_flops, 4 * 64 * (1 + 2 + 3 + 4)
(2560, 2560)

"""

import re
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.notation import Array, Dim, Einsum, parse_array, parse_einsum
from dragonscale.physics.notation.array import DTYPE_NAMES, MAX_LENGTH, split_top, without
from dragonscale.physics.notation.einsum import check_sizes
from dragonscale.physics.numbers import Number, is_symbolic, minimum, product
from dragonscale.physics.rooflines.cost import Cost
from dragonscale.physics.rooflines.einsums import all_sizes, compute_dtype, einsum_cost, moved_bytes
from dragonscale.physics.rooflines.elementwise import flops_per_element
from dragonscale.physics.rooflines.given_counts import GivenCounts, parse_counts
from dragonscale.physics.units import parse_count, whole_match

_CALL = re.compile(r"\s*(?P<name>[a-z_]\w*)\s*\((?P<inside>.*)\)\s*(?:(?:->|→)(?P<output>.*))?", re.DOTALL)
ATTENTION_SIZES = ("B", "T", "S", "N", "K", "H")
"""The sizes of attention: sequences, queries and keys of each, query heads, KV heads, and the size of a head."""


@dataclass(frozen=True)
class Operation:
    """An operation on whole arrays; `function` is empty for an einsum, `attend`, or an elementwise function's name.

    Attention runs over the dim `keys` of its keys. With `causal` a query sees no later key; the queries are the last of
    the tokens.
    """

    line: Einsum
    function: str = ""
    keys: str = ""
    causal: bool = False

    def __str__(self) -> str:
        if self.function == "attend" and self.line.operands[0].names == ("B", "T", "N", "H"):
            return self._by_sizes
        if not self.function:
            return str(self.line)
        arguments = [*map(str, self.line.operands), *self._flags]
        return f"{self.function}({', '.join(arguments)}) -> {self.line.output}"

    @property
    def _by_sizes(self) -> str:
        arguments = [self.line.operands[0].dtype or "bf16"]
        for name in ATTENTION_SIZES:
            if name in self.sizes:
                arguments.append(f"{name}={self.sizes[name]}")
            elif name in self.indices:
                arguments.append(name)
        return f"attention({', '.join([*arguments, *self._flags])})"

    @property
    def _flags(self) -> list[str]:
        return ["causal"] if self.causal else []

    @property
    def indices(self) -> tuple[str, ...]:
        return self.line.indices

    @property
    def sizes(self) -> dict[str, int]:
        return self.line.sizes

    @property
    def axes(self) -> tuple[str, ...]:
        return self.line.axes

    @property
    def varied(self) -> list[str]:
        """The dims that can be varied alone. The heads of attention cannot, as query heads share KV heads; nor can
        causal queries, of which there are at most as many as keys."""
        fixed: list[str] = []
        if self.function == "attend":
            fixed = [array.names[-2] for array in self.line.operands if len(array.dims) > 2]
        if self.causal and self._queries != self.keys:
            fixed.append(self._queries)
        return list(without(self.line.indices, fixed))

    @property
    def _queries(self) -> str:
        """The dim of the queries: it has the position of the keys' dim."""
        queries, keys = self.line.operands[:2]
        return queries.names[keys.names.index(self.keys)]

    def cost(
        self,
        sizes: dict[str, Number],
        level: str = "hbm",
        weights_only: bool = False,
        per_element: float | None = None,
    ) -> Cost:
        """FLOPs, and the bytes of every array (or of the last operand alone) over one memory level.

        `per_element` are the FLOPs of an elementwise function for each element of its result, if not those of
        `dragonscale.physics.rooflines.elementwise`.
        """
        counted = (len(self.line.operands) - 1,) if weights_only else None
        if not self.function:
            return einsum_cost(self.line, sizes, level=level, counted=counted)
        sizes = all_sizes(self.line, sizes)
        moved = moved_bytes(self.line, sizes, counted)
        if self.function == "attend":
            flops = {("matrix", compute_dtype(self.line)): self._attention_flops(sizes)}
        else:
            elements = product(sizes[name] for name in self.line.output.names)
            if per_element is None:
                per_element = flops_per_element(self.function)
            flops = {("vector", "fp32"): per_element * elements}
        return Cost(flops=flops, bytes={level: moved})

    def _attention_flops(self, sizes: dict[str, Number]) -> Number:
        """FLOPs of Q·Kᵀ and P·V, for every pair of a query and a key that it sees; softmax is not counted."""
        queries, _, values = self.line.operands
        heads = product(sizes[name] for name in queries.names[:-1] if name != self._queries)  # of all sequences
        rows, keys = sizes[self._queries], sizes[self.keys]
        pairs = rows * keys
        if self.causal:
            # the first query sees all keys but those of the later queries, the last one every key
            if not is_symbolic(rows) and not is_symbolic(keys):
                rows = minimum(rows, keys)
            pairs = rows * (keys - rows) + rows * (rows + 1) / 2
        flops = 2 * heads * pairs * (sizes[queries.names[-1]] + sizes[values.names[-1]])
        if isinstance(flops, float) and flops < 2**53:
            return int(flops)  # exact below 2^53; the halves of a causal mask add up to whole pairs
        return flops


def parse_operation(text: str) -> Operation | GivenCounts:
    """Read an operation of one chip. See the module's examples."""
    counts = parse_counts(text) if len(text) < 100 else None
    if counts is not None:
        return counts
    call = whole_match(_CALL, text, MAX_LENGTH + 1)
    left, _, right = text.replace("→", "->").partition("->")
    terms = list(split_top(left, "+-"))
    if call is None and len(terms) > 1 and len(text) <= MAX_LENGTH:
        return _elementwise("add", list(map(parse_array, terms)), right, text)
    if call is None:
        return Operation(parse_einsum(text))
    name, arguments = call["name"], list(map(str.strip, split_top(call["inside"], ",")))
    causal = "causal" in arguments  # a flag among the arrays or sizes
    parts = [argument for argument in arguments if argument != "causal"]
    if name == "attention" and "[" not in "".join(parts):
        return _attention_of_sizes(parts, causal, text)
    operands = list(map(parse_array, parts))
    if name in ("attend", "attention"):
        return _attention_of_arrays(operands, call["output"], causal, text)
    return _elementwise(name, operands, call["output"] or "", text)


def _elementwise(name: str, operands: list[Array], output: str, text: str) -> Operation:
    """A function of each element. Dims without a name are matched from the last on, as NumPy broadcasts."""
    arrays = list(operands)
    if output:
        arrays.append(parse_array(output))
    unused = iter(without("IJKLMNOPQRSTUVWXYZ", set().union(*(array.names for array in operands))))
    name_of: dict[int, str] = {}  # by position from the last dim
    for array in operands:
        for index, dim_name in enumerate(reversed(array.names)):
            if dim_name:
                name_of.setdefault(index, dim_name)
    # a dim that no array names gets an unused letter, the same one in every array
    named: list[Array] = []
    for array in arrays:
        dims = list(array.dims)
        for index, dim in enumerate(reversed(array.dims)):
            if not dim.name:
                dims[-1 - index] = replace(dim, name=name_of.setdefault(index, next(unused, "Z9")))
        named.append(replace(array, dims=tuple(dims)))
    inputs = named[: len(operands)]
    widest = max(inputs, key=lambda array: len(array.dims))
    result = replace(widest, name="", partial=())
    if output:
        result = named[-1]
    for dim in result.dims:
        if not any(dim.name in array.names for array in inputs):
            raise InputError(f"In {shorten(text)} the result has the dim {dim}, which no operand has.")
    line = Einsum(tuple(inputs), result)
    check_sizes(line, text)
    return Operation(line, name)


def _attention_of_sizes(parts: list[str], causal: bool, text: str) -> Operation:
    """Attention from its sizes. Without S there are as many keys as queries, without K every query head has a KV head,
    B is 1 unless given; a letter alone leaves its size open."""
    sizes: dict[str, int | None] = {"B": 1}
    dtype = "bf16"
    for part in filter(None, parts):
        name, equals, size = map(str.strip, part.partition("="))
        if not equals and name in DTYPE_NAMES:
            dtype = name
        elif name not in ATTENTION_SIZES:
            raise unknown("size of attention called", name, (*ATTENTION_SIZES, "causal"))
        else:
            sizes[name] = None
            if equals:
                sizes[name] = parse_count(size, f"{name} in {shorten(text)}")
    for name in ("T", "N", "H"):
        if name not in sizes:
            example = "'attention(B=8, T=4096, S=4096, N=64, K=8, H=128)'"
            raise InputError(f"{shorten(text)} does not say {name}; write e.g. {example}.")
    if 0 in sizes.values():
        raise InputError(f"In {shorten(text)} a size is 0; a dim has at least one element.")
    tokens = "S" if "S" in sizes else "T"
    kv_heads = "K" if "K" in sizes else "N"

    def array(name: str, *names: str) -> Array:
        return Array(name, tuple(Dim(dim_name, sizes[dim_name]) for dim_name in names), dtype)

    operands = (
        array("Q", "B", "T", "N", "H"),
        array("K", "B", tokens, kv_heads, "H"),
        array("V", "B", tokens, kv_heads, "H"),
    )
    return Operation(Einsum(operands, array("", "B", "T", "N", "H")), "attend", tokens, causal)


def _attention_of_arrays(operands: list[Array], output: str | None, causal: bool, text: str) -> Operation:
    """Attention on named arrays. The result has the dims of the queries, but for the last, which is that of the
    values."""
    for array in operands:
        for dim in array.dims:
            if not dim.name:
                raise InputError(f"In {shorten(text)} the dim {dim} has no name; write it as D={dim.size}.")
    if len(operands) != 3 or not all(array.dims for array in operands):
        example = "'attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])'"
        raise InputError(f"{shorten(text)} is not attention; write queries, keys and values, such as {example}.")
    queries, keys, values = operands
    head_dim = queries.names[-1]
    only_keys = without(keys.names, queries.names)
    if head_dim != keys.names[-1] or not only_keys or len(queries.dims) <= keys.names.index(only_keys[0]):
        raise InputError(
            f"In {shorten(text)} the keys {keys} must end in the queries' {head_dim} and have a dim of their own."
        )
    if output:
        result = parse_array(output)
    else:
        result = replace(queries, name="", dims=(*queries.dims[:-1], values.dims[-1]))
    return Operation(Einsum((queries, keys, values), result), "attend", only_keys[0], causal)
