"""A model as a short program of named einsums.

A program is a few *sections* (the embedding, each kind of block with how often it repeats, the head), and a section is
a dozen lines such as

    attention: Q[b,t,n,h] = X[b,t,d] · Wq[d,n,h]
    attention: O[b,t,n,g] = attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,g])
    norm:      X[b,t,d]   = norm(R[b,t,d]; w_norm[d])
    attention: cache(K[b,s,k,h], V[b,s,k,g])

Before the colon stands the part of the model the line belongs to. A line is an einsum, or a call of one of the
functions under `calls` in `programs.toml` with its tensors and, after a semicolon, its weights. Arrays whose names
begin with W or w are weights; all others are activations. `cache(...)` says what decoding must remember: arrays with
the dim `s` grow with the sequence, others are a fixed state. Everything else in Dragonscale that knows about models
(parameters, FLOPs, KV bytes, activations, shardings, the JAX program) is a *reading* of these lines.

The letters of dims: b batch, t query tokens, s key tokens, m keys that each stand for several tokens, d model, n query
heads, k KV heads, h and g head sizes, f hidden, e experts, x experts per token, v vocabulary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import filterfalse

from dragonscale.errors import InputError
from dragonscale.physics.notation import Array, Einsum, parse_array
from dragonscale.physics.notation.array import split_top
from dragonscale.physics.numbers import Number, product
from dragonscale.tables import beside

TEXTS = beside(__file__, "programs.toml")
CALLS: tuple[str, ...] = tuple(TEXTS["calls"])
_LINE = re.compile(r"(?P<part>\w+)\s*:\s*(?:(?P<output>[^=]+?\])\s*=\s*)?(?P<body>.+)")
_CALL = re.compile(r"(?P<function>[a-z]+)\((?P<arguments>.*)\)")


@dataclass(frozen=True)
class Op:
    """One line: `output = function(inputs; weights)`. An einsum has the function `einsum`. Weights of a `frozen` line
    are not trained."""

    part: str
    function: str
    inputs: tuple[Array, ...]
    weights: tuple[Array, ...]
    output: Array | None
    frozen: bool = False

    def __str__(self) -> str:
        if self.function == "einsum":
            return f"{self.part}: {self.output} = {' · '.join(map(str, (*self.inputs, *self.weights)))}"
        weights = f"; {', '.join(map(str, self.weights))}" if self.weights else ""
        call = f"{self.function}({', '.join(map(str, self.inputs))}{weights})"
        return f"{self.part}: {self.output} = {call}" if self.output else f"{self.part}: {call}"

    @property
    def einsum(self) -> Einsum:
        """The line as an einsum over all its arrays."""
        assert self.function == "einsum"
        assert self.output is not None
        return Einsum((*self.inputs, *self.weights), self.output)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Everything the line reads and writes."""
        return (*self.inputs, *self.weights, *([self.output] if self.output else []))


@dataclass(frozen=True)
class Section:
    """Lines that run `repeat` times, with the sizes of their dims.

    `span` caps the keys a query sees (a sliding window); `chunk` cuts the sequence into chunks that only see
    themselves; `top` is how many keys an indexer keeps; `compress` is how many tokens each key of dim `m` stands for.
    `soft_cap` says whether attention's scores are bent by a tanh. `shared` names weights that belong to the whole
    program: other sections, and every repeat, use the same ones.
    """

    name: str
    ops: tuple[Op, ...]
    dims: dict[str, int]
    repeat: int = 1
    span: int | None = None
    chunk: int | None = None
    top: int | None = None
    compress: int | None = None
    shared: tuple[str, ...] = ()
    soft_cap: bool = False

    def __str__(self) -> str:
        times = f" x{self.repeat}" if self.repeat != 1 else ""
        return "\n".join([f"{self.name}{times}", *(f"  {op}" for op in self.ops)])

    def copies(self, weight: Array) -> int:
        """How many of a weight there are: one for each repeat, unless it is shared."""
        return 1 if weight.name in self.shared else self.repeat

    def size(self, array: Array, **sizes: Number) -> Number:
        """The number of elements of an array; `sizes` gives b, t and s."""
        if self.compress is not None and "s" in sizes:
            sizes = {"m": sizes["s"] / self.compress} | sizes
        return product(dim_size(self.dims | sizes, dim.name, array) for dim in array.dims)


@dataclass(frozen=True)
class Program:
    """The sections of a model: each kind of block once. `order` names the section of every layer, first to last."""

    name: str
    sections: tuple[Section, ...]
    order: tuple[str, ...] = ()
    extras: tuple[Section, ...] = field(default=())
    """Sections that a checkpoint holds beside the language model itself: multi-token heads, a vision tower."""

    def __iter__(self) -> Iterator["Section"]:
        """Its sections, so that whatever reads sections reads a program."""
        return iter(self.sections)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.sections, *self.extras)))


def dim_size(dims: dict[str, Number], name: str, where: object) -> Number:
    """The size of a dim, or an error that names the array or the line lacking it."""
    if name not in dims:
        raise InputError(f"The dim {name} of {where} has no size.")
    return dims[name]


def is_weight(array: Array) -> bool:
    """Weights are the arrays whose names begin with W or w."""
    return array.name[:1] in ("W", "w")


def parse_op(line: str) -> Op:
    """Read one line of a program.

    >>> op = parse_op("mlp: G[b,t,f] = X[b,t,d] · Wg[d,f]")
    >>> op.function, [a.name for a in op.inputs], [a.name for a in op.weights]
    ('einsum', ['X'], ['Wg'])
    """
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise InputError(f"{line.strip()!r} is not a line of a program; write 'part: Y[b,t,f] = X[b,t,d] · W[d,f]'.")
    output = parse_array(match["output"]) if match["output"] else None  # `cache(...)` writes nothing
    call = _CALL.fullmatch(match["body"].strip())
    if call is None:
        arrays = list(map(parse_array, split_top(match["body"], "·@")))
        inputs, weights = filterfalse(is_weight, arrays), filter(is_weight, arrays)
        return Op(match["part"], "einsum", tuple(inputs), tuple(weights), output)
    if call["function"] not in (*CALLS, "cache"):
        raise InputError(
            f"{line.strip()!r} calls {call['function']!r}; a program knows {', '.join((*CALLS, 'cache'))}."
        )
    tensors, _, weights = call["arguments"].partition(";")
    return Op(match["part"], call["function"], _arrays(tensors), _arrays(weights), output)


def _arrays(text: str) -> tuple[Array, ...]:
    if not text.strip():
        return ()
    return tuple(map(parse_array, split_top(text, ",")))


def parse_ops(text: str) -> tuple[Op, ...]:
    """Read a program's lines; blank lines are skipped."""
    return tuple(map(parse_op, filter(str.strip, text.splitlines())))


_parsed = cache(parse_op)


def parsed(lines: Iterable[str]) -> tuple[Op, ...]:
    """Lines are few and repeat from model to model: each is parsed once."""
    return tuple(map(_parsed, lines))


def renamed(ops: Iterable[Op], names: Mapping[str, str], dims: Mapping[str, str] | None = None) -> tuple[Op, ...]:
    """The same lines with other names for some of their arrays and dims.

    >>> print(*renamed([parse_op("mlp: U[b,t,f] = X[b,t,d] · Wu[d,f]")], {"X": "R"}, {"f": "f0"}))
    mlp: U[b, t, f0] = R[b, t, d] · Wu[d, f0]
    """

    new_dims = dims or {}

    def array(old: Array) -> Array:
        dims_ = tuple(replace(dim, name=new_dims.get(dim.name, dim.name)) for dim in old.dims)
        return replace(old, name=names.get(old.name, old.name), dims=dims_)

    return tuple(
        replace(
            op,
            inputs=tuple(map(array, op.inputs)),
            weights=tuple(map(array, op.weights)),
            output=op.output and array(op.output),
        )
        for op in ops
    )


def suffixed(ops: Iterable[Op], suffix: str, dims: Mapping[str, str] | None = None) -> tuple[Op, ...]:
    """The same lines with a suffix after the names of all arrays but the block's input `X`."""
    ops = tuple(ops)
    names = {array.name: array.name + suffix for op in ops for array in op.arrays if array.name != "X"}
    return renamed(ops, names, dims)


@dataclass(frozen=True)
class Stretch:
    """Layers that are scanned together: a pattern of sections, repeated; `starts` is how many of each
    were used before."""

    pattern: tuple[str, ...]
    times: int
    starts: tuple[int, ...]


def stretches(order: tuple[str, ...]) -> list[Stretch]:
    """The order of layers as few patterns, each repeated as often as possible.

    >>> [(s.pattern, s.times) for s in stretches(("a", "a", "a", "b", "c", "b", "c"))]
    [(('a',), 3), (('b', 'c'), 2)]
    """
    runs: list[Stretch] = []
    used: dict[str, int] = {}
    start = 0
    while start < len(order):
        # the longest run from here: the pattern's size and how often it comes, of at most 12 layers
        best, times = 1, 1
        for size in range(1, min(12, len(order) - start) + 1):
            pattern, repeats = order[start : start + size], 1
            while order[start + repeats * size : start + (repeats + 1) * size] == pattern:
                repeats += 1
            if repeats > 1 and size * repeats > best * times:
                best, times = size, repeats
        pattern = order[start : start + best]
        # a section that stands twice in a pattern uses its weights one after the other
        starts = tuple(used.get(name, 0) + pattern[:index].count(name) for index, name in enumerate(pattern))
        runs.append(Stretch(pattern, times, starts))
        for name in pattern:
            used[name] = used.get(name, 0) + times
        start += best * times
    return runs


@cache
def longest_run(order: tuple[str, ...]) -> tuple[int, Stretch]:
    """The stretch of an order with the most layers, and its place.

    >>> longest_run(("dense", "moe", "moe", "moe"))
    (1, Stretch(pattern=('moe',), times=3, starts=(0,)))
    """
    return max(enumerate(stretches(order)), key=lambda run: run[1].times * len(run[1].pattern))
