"""FLOPs of a program, by part.

A multiply-add is two. An einsum has twice the product of its indices; attention has 2·n·(h+g) for each pair of a query
and a key that it sees: with `causal` the keys before the query, without it all of them (many published figures count
the full square). The backward pass has twice the FLOPs of the forward pass: one matmul for each operand's gradient.
Elementwise work is left out, as everywhere in the literature; it is under 1% and bound by memory anyway.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dragonscale.models.program import Op, Section, dim_size
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, floor, maximum, minimum, product


@dataclass(frozen=True)
class Workload:
    """The amount of work: `batch` sequences of `queries` new tokens against `keys` (the new ones included). Sequences
    may be packed with `documents` of so many tokens on average, which do not attend to each other."""

    batch: Number
    queries: Number
    keys: Number
    causal: bool = True
    documents: Number | None = None

    def one_document(self) -> "tuple[Workload, Number]":
        """The work of one document, and the number of documents in a sequence; without packing a sequence is one."""
        if self.documents is None:
            return self, 1
        length = minimum(self.documents, self.keys)
        return replace(self, queries=length, keys=length, documents=None), self.keys / length


def key_pairs(section: Section, work: Workload, dim: str = "s") -> Number:
    """The pairs of a query and a key that one sequence's attention computes, over keys of the dim `s` or `m`.

    The `queries` new tokens come last in a sequence of `keys`, and the one at position p sees the p keys before it (the
    diagonal is left out, as the book does), up to the section's window, chunk or choice.

    >>> section = Section("block", (), {}, span=100)
    >>> key_pairs(section, Workload(1, 1000, 1000))
    95000.0
    >>> key_pairs(section, Workload(1, 1000, 1000, documents=50))
    25000.0
    """
    if work.documents is not None:
        document, documents = work.one_document()
        return key_pairs(section, document, dim) * documents
    ratio = _tokens_per_key(section, dim)
    # tokens that a query sees at most: by its choice of keys, and by the window
    caps: list[Number] = []
    if section.top is not None and (dim == "m" or not section.compress):
        caps.append(section.top * ratio)
    if section.span is not None and dim == "s":
        caps.append(section.span)
    if not work.causal:
        if section.chunk is not None and dim == "s":
            caps.append(section.chunk)
        return work.queries * minimum(work.keys, *caps) / ratio
    if section.chunk is not None and dim == "s":
        return _within_chunks(work.keys, section.chunk) - _within_chunks(work.keys - work.queries, section.chunk)
    if not caps:
        start = work.keys - work.queries
        return (work.keys * work.keys - start * start) / 2 / ratio
    return _under_cap(work.queries, work.keys, min(caps)) / ratio


def score_pairs(section: Section, work: Workload, dim: str = "s") -> Number:
    """The pairs that an indexer scores to choose keys: every query with every key that it may see."""
    if work.documents is not None:
        document, documents = work.one_document()
        return score_pairs(section, document, dim) * documents
    pairs = work.queries * work.keys
    if work.causal:
        start = work.keys - work.queries
        pairs = (work.keys * work.keys - start * start) / 2
    return pairs / _tokens_per_key(section, dim)


def _tokens_per_key(section: Section, dim: str) -> Number:
    """Tokens that one key stands for: several where the cache is compressed along the sequence (the dim m)."""
    if dim == "m" and section.compress is not None:
        return section.compress
    return 1


def keys_seen(section: Section, work: Workload, dim: str = "s") -> Number:
    """The mean number of keys that a query attends to."""
    return key_pairs(section, work, dim) / work.queries


def _under_cap(queries: Number, keys: Number, cap: Number) -> Number:
    """The sum over positions p of min(p, cap), p from keys − queries to keys: a ramp, then flat."""
    start = keys - queries
    meet = minimum(maximum(cap, start), keys)  # where the ramp meets the cap
    return (meet * meet - start * start) / 2 + (keys - meet) * cap


def _within_chunks(position: Number, chunk: int) -> Number:
    """The sum of p mod chunk up to a position: half a square for every whole chunk, and the last part's."""
    whole = floor(position / chunk)
    rest = position - whole * chunk
    return (whole * chunk * chunk + rest * rest) / 2


def _per_token(section: Section, array: Array) -> Number:
    """The elements of an array for one token of one sequence."""
    dims = [dim for dim in array.dims if dim.name not in ("b", "t", "s", "m")]
    return product(dim_size(section.dims, dim.name, array) for dim in dims)


def op_flops(section: Section, op: Op, work: Workload) -> Number:
    """Forward FLOPs of one op, for one repeat of its section."""
    tokens = work.batch * work.queries
    if op.function == "einsum":
        return op.einsum.flops(section.dims | {"b": work.batch, "t": work.queries, "s": work.keys})
    if op.function == "attend":
        assert op.output is not None
        dims = {name for array in op.inputs[1:] for name in array.names if name in ("s", "m")}
        pairs = sum(key_pairs(section, work, dim) for dim in sorted(dims))
        return 2 * work.batch * pairs * (_per_token(section, op.inputs[0]) + _per_token(section, op.output))
    if op.function == "score":
        dim = "m" if "m" in op.inputs[1].names else "s"
        return 2 * work.batch * score_pairs(section, work, dim) * _per_token(section, op.inputs[0])
    if op.function == "scan":  # a write and a read of the state
        return 4 * tokens * _per_token(section, op.inputs[-1])
    if op.function == "delta":  # the delta rule reads it twice
        return 6 * tokens * _per_token(section, op.inputs[-1])
    if op.function == "conv":
        return 2 * tokens * _per_token(section, op.weights[0])
    return 0


def forward_flops(sections: Iterable[Section], work: Workload) -> dict[str, Number]:
    """Forward FLOPs by part; those of ops that mix tokens (attention's dot products, scans) are the part `scores`."""
    by_part: dict[str, Number] = {}
    for section in sections:
        for op in section.ops:
            if op.function not in ("einsum", "attend", "score", "scan", "delta", "conv"):
                continue
            part = "scores" if op.function in ("attend", "score", "scan", "delta") else op.part
            by_part[part] = by_part.get(part, 0) + op_flops(section, op, work) * section.repeat
    return by_part


def training_flops(sections: Iterable[Section], work: Workload) -> dict[str, Number]:
    """Forward and backward: three times forward, since each matmul has two gradients of the same size; twice where its
    weight is frozen."""
    sections = tuple(sections)
    frozen = [replace(section, ops=tuple(op for op in section.ops if op.frozen)) for section in sections]
    saved = forward_flops(frozen, work)  # gradients of frozen weights, which nobody computes
    return {part: 3 * flops - saved.get(part, 0) for part, flops in forward_flops(sections, work).items()}
