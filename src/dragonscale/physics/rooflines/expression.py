"""What one chip is asked to do, as text: an einsum, attention, an elementwise function, or amounts alone.

    bf16[B, 8192] @ bf16[8192, 28672]                     multiply and sum
    attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])            flash attention: every array crosses HBM once
    attention(B=8, T=4096, N=64, K=8, H=128, causal)      the same by its sizes; T=1, S=8192 decodes
    bf16[B, 8192] + bf16[B, 8192], softmax(bf16[B, F])    elementwise: some FLOPs for each element of the result
    2e12FLOP 3GB                                          amounts alone

>>> asked = parse_operation("attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])")
>>> asked.indices, str(asked.line.output)
(('b', 't', 'n', 'h', 's', 'k'), '[b, t, n, h]')
>>> parse_operation("relu(fp32[N])").cost({"N": 1024}).intensity()
0.125
>>> prompt = parse_operation("attention(T=4, N=1, H=64, causal)")
>>> prompt.cost({}).total_flops, 4 * 64 * (1 + 2 + 3 + 4)
(2560, 2560)

Elementwise functions and reductions over a row, and the FLOPs they take for each element.

A FLOP here is one arithmetic operation of the function as it is usually written, an exponential, a root
or a division counted as one. Most of these run on the vector unit and are bound by memory by an order of
magnitude, so the count decides little; what matters is that every array crosses memory once.

>>> flops_per_element("softmax"), flops_per_element("relu"), flops_per_element("anything")
(5, 1, 1)
"""

import re
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.notation import Array, Dim, Einsum, parse_array, parse_einsum
from dragonscale.physics.notation.array import DTYPE_NAMES, MAX_LENGTH, split_top
from dragonscale.physics.numbers import Number, is_symbolic, minimum, product, widened
from dragonscale.physics.rooflines.cost import Cost
from dragonscale.physics.rooflines.counts import GivenCounts, array_bytes, compute_dtype, einsum_cost, parse_counts
from dragonscale.physics.units import parse_count
from dragonscale.tables import beside

_CALL = re.compile(r"\s*(?P<name>[a-z_]\w*)\s*\((?P<inside>.*)\)\s*(?:(?:->|→)(?P<output>.*))?", re.DOTALL)
HEADS = ("B", "T", "S", "N", "K", "H")
"""The sizes of attention: sequences, queries and keys of each, query heads, KV heads, and the size of a head."""


@dataclass(frozen=True)
class Operation:
    """An operation on whole arrays; `function` is empty for an einsum, `attend`, or an elementwise function's name.

    Attention runs over the dim `keys` of its keys; `causal` says that a query sees no later key, the queries being
    the last of the tokens.
    """

    line: Einsum
    function: str = ""
    keys: str = ""
    causal: bool = False

    def __str__(self) -> str:
        if self.function == "attend" and self.line.operands[0].names == ("B", "T", "N", "H"):
            return self._by_sizes
        arrays = ", ".join([*map(str, self.line.operands), *(["causal"] if self.causal else [])])
        return f"{self.function}({arrays}) -> {self.line.output}" if self.function else str(self.line)

    @property
    def _by_sizes(self) -> str:
        sizes = self.line.sizes
        dims = [f"{name}={sizes[name]}" if name in sizes else name for name in HEADS if name in self.indices]
        dtype = self.line.operands[0].dtype
        return f"attention({', '.join([dtype or 'bf16', *dims, *(['causal'] if self.causal else [])])})"

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
        """The dims worth varying alone. The heads of attention are not, for query heads share KV heads; nor are causal
        queries without their keys, since there cannot be more of them."""
        fixed = [array.names[-2] for array in self.line.operands if self.function == "attend" and len(array.dims) > 2]
        if self.causal and self._queries != self.keys:
            fixed.append(self._queries)
        return [name for name in self.line.indices if name not in fixed]

    @property
    def _queries(self) -> str:
        """The queries' dim: the one that stands where the keys' does."""
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

        `per_element` are the FLOPs of an elementwise function for each element of its result, where they are not those
        of `dragonscale.physics.rooflines.expression`.
        """
        counted = (len(self.line.operands) - 1,) if weights_only else None
        if not self.function:
            return einsum_cost(self.line, sizes, level=level, counted=counted)
        sizes = self.line.sizes | {name: widened(size) for name, size in sizes.items()}
        arrays = (*self.line.operands, self.line.output)
        moved = sum(array_bytes(arrays[place], sizes) for place in counted or range(len(arrays)))
        if self.function == "attend":
            work = {("matrix", compute_dtype(self.line)): self._attention_flops(sizes)}
        else:
            elements = product(sizes[dim.name] for dim in self.line.output.dims)
            each = flops_per_element(self.function) if per_element is None else per_element
            work = {("vector", "fp32"): each * elements}
        return Cost(flops=work, bytes={level: moved})

    def _attention_flops(self, sizes: dict[str, Number]) -> Number:
        """Scores and their sum over the values, for every pair of a query and a key that it sees; softmax left out."""
        queries, _, values = self.line.operands
        others = product(sizes[name] for name in queries.names[:-1] if name != self._queries)
        asked, seen = sizes[self._queries], sizes[self.keys]
        pairs = asked * seen
        if self.causal:
            # the first query sees all keys but those of the later queries, the last one every key
            some = asked if is_symbolic(asked) or is_symbolic(seen) else minimum(asked, seen)
            pairs = some * (seen - some) + some * (some + 1) / 2
        flops = 2 * others * pairs * (sizes[queries.names[-1]] + sizes[values.names[-1]])
        return int(flops) if isinstance(flops, float) and flops < 2**53 else flops


def parse_operation(text: str) -> Operation | GivenCounts:
    """Read what one chip is asked to do. See the module's examples."""
    counts = parse_counts(text) if len(text) < 100 else None
    if counts is not None:
        return counts
    call = _CALL.fullmatch(text) if len(text) <= MAX_LENGTH else None
    left, _, right = text.replace("→", "->").partition("->")
    terms = list(split_top(left, "+-"))
    if call is None and len(terms) > 1 and len(text) <= MAX_LENGTH:
        return _elementwise("add", [parse_array(part) for part in terms], right, text)
    if call is None:
        return Operation(parse_einsum(text))
    name, parts = call["name"], [part.strip() for part in split_top(call["inside"], ",")]
    causal = "causal" in parts
    parts = [part for part in parts if part != "causal"]
    if name == "attention" and not any("[" in part for part in parts):
        return _by_sizes(parts, causal, text)
    operands = [parse_array(part) for part in parts]
    if name in ("attend", "attention"):
        return _attended(operands, call["output"], causal, text)
    return _elementwise(name, operands, call["output"] or "", text)


def _elementwise(name: str, operands: list[Array], output: str, text: str) -> Operation:
    """A function of each element: dims without a name are matched from the last on, as NumPy broadcasts."""
    used = {dim.name for array in operands for dim in array.dims}
    fresh = iter([letter for letter in "IJKLMNOPQRSTUVWXYZ" if letter not in used])
    names: dict[int, str] = {}
    for array in operands:
        for place, dim in enumerate(reversed(array.dims)):
            if dim.name:
                names.setdefault(place, dim.name)
    wanted = [parse_array(output)] if output else []
    named: list[Array] = []
    for array in (*operands, *wanted):
        dims: list[Dim] = []
        for place, dim in enumerate(reversed(array.dims)):
            dims.append(dim if dim.name else replace(dim, name=names.setdefault(place, next(fresh, "Z9"))))
        named.append(replace(array, dims=tuple(reversed(dims))))
    inputs = named[: len(operands)]
    widest = max(inputs, key=lambda array: len(array.dims))
    line = Einsum(tuple(inputs), named[-1] if wanted else replace(widest, name="", partial=()))
    strange = [dim for dim in line.output.dims if all(dim.name not in array.names for array in inputs)]
    if strange:
        raise InputError(f"In {shorten(text)} the result has the dim {strange[0]}, which no operand has.")
    sizes: dict[str, int] = {}
    for dim in (dim for array in named for dim in array.dims if dim.size is not None):
        if sizes.setdefault(dim.name, dim.size or 0) != dim.size:
            two = f"{sizes[dim.name]} and {dim.size}"
            raise InputError(f"In {shorten(text)} the dim {dim.name} has two sizes, {two}; they must agree.")
    return Operation(line, name)


def _by_sizes(parts: list[str], causal: bool, text: str) -> Operation:
    """Attention from its sizes. Without S keys are as many as queries, without K every query head has its own, B is 1
    unless said; a letter alone leaves its size open."""
    given: dict[str, int | None] = {}
    dtype = "bf16"
    for part in filter(None, parts):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals and name in DTYPE_NAMES:
            dtype = name
        elif name not in HEADS:
            raise unknown("size of attention called", name, (*HEADS, "causal"))
        else:
            given[name] = parse_count(size, f"{name} in {shorten(text)}") if equals else None
    missing = [name for name in ("T", "N", "H") if name not in given]
    if missing:
        example = "'attention(B=8, T=4096, S=4096, N=64, K=8, H=128)'"
        raise InputError(f"{shorten(text)} does not say {missing[0]}; write e.g. {example}.")
    if 0 in given.values():
        raise InputError(f"In {shorten(text)} a size is 0; a dim has at least one element.")
    sizes = {"B": 1} | given

    def dim(name: str) -> Dim:
        return Dim(name, sizes[name])

    tokens, heads = ("S" if "S" in given else "T"), ("K" if "K" in given else "N")
    queries = Array("Q", (dim("B"), dim("T"), dim("N"), dim("H")), dtype)
    keys, values = (Array(name, (dim("B"), dim(tokens), dim(heads), dim("H")), dtype) for name in "KV")
    result = replace(queries, name="")
    return Operation(Einsum((queries, keys, values), result), "attend", tokens, causal)


def _attended(operands: list[Array], output: str | None, causal: bool, text: str) -> Operation:
    """Attention on named arrays; its result has the queries' dims, with the last of the values."""
    unnamed = [dim for array in operands for dim in array.dims if not dim.name]
    if unnamed:
        raise InputError(f"In {shorten(text)} the dim {unnamed[0]} has no name; write it as D={unnamed[0].size}.")
    if len(operands) != 3 or not all(array.dims for array in operands):
        example = "'attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])'"
        raise InputError(f"{shorten(text)} is not attention; write queries, keys and values, such as {example}.")
    queries, keys, values = operands
    own = [name for name in keys.names if name not in queries.names]
    if queries.dims[-1].name != keys.dims[-1].name or not own or len(queries.dims) <= keys.names.index(own[0]):
        ends = f"In {shorten(text)} the keys {keys} must end in the queries' {queries.dims[-1].name}"
        raise InputError(f"{ends} and have a dim of their own.")
    made = replace(queries, name="", dims=(*queries.dims[:-1], values.dims[-1]))
    line = Einsum((queries, keys, values), parse_array(output) if output else made)
    return Operation(line, "attend", own[0], causal)


FLOPS: dict[str, int] = beside(__file__, "elementwise.toml")
"""FLOPs for each element of the result, by the definitions beside them."""


def flops_per_element(function: str) -> int:
    """FLOPs of a function for each element of its result; one for a function that is not known."""
    return FLOPS.get(function.lower().replace("_", ""), 1)
