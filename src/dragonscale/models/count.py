"""Readings of a program that count: parameters, FLOPs, cache bytes, activations, all by part.

*Parameters.* Every weight once; a weight that an earlier section already holds under the same name (a tied embedding)
is not counted again. A dim written `e:x` holds `e` experts of which a token uses `x`.

*FLOPs.* A multiply-add is two. An einsum is twice the product of its indices; attention is 2·t·keys·n·(h+g), with the
keys a query really sees under `causal=True` and all of them under `causal=False` (many published figures count the full
square). Backward is twice forward for matmuls: one product for each operand's gradient. Pointwise work is left out of
the FLOPs, as everywhere in the literature; it is under 1% of them and bound by memory anyway.

*Caches.* What `cache(...)` names. A sliding window caps the tokens ideally kept; an engine without a hybrid allocator
reserves the whole sequence for every layer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.program import Op, Program, Section, dim_size
from dragonscale.notation import Array
from dragonscale.numbers import Number, ceil_to, maximum, minimum, product, where


def _weight_size(section: Section, weight: Array, active: bool) -> int:
    """Elements of a weight; of those a token uses if `active`."""
    return product(
        dim_size(section.dims, dim.select if dim.select and active else dim.name, str(weight)) for dim in weight.dims
    )


def parameters(sections: Iterable[Section], active: bool = False) -> dict[str, int]:
    """Parameters by part. With `active`, those that one token's forward pass uses (chosen experts only).

    An embedding table is a lookup of one row, so `active` leaves it out unless it is also the head.
    """
    by_part: dict[str, int] = {}
    seen: set[str] = set()
    for section in sections:
        for op in section.ops:
            for weight in op.weights:
                key = weight.name if section.repeat == 1 else f"{section.name}.{weight.name}"
                if key in seen or (active and op.function == "lookup"):
                    continue
                seen.add(key)
                size = _weight_size(section, weight, active) * section.repeat
                by_part[op.part] = by_part.get(op.part, 0) + size
    return by_part


def keys_seen(section: Section, queries: Number, keys: Number, causal: bool) -> Number:
    """The mean number of keys that a query attends to.

    `queries` new tokens come last in a sequence of `keys`. Under a causal mask query i sees keys − queries + i of
    them, half a square when the two are equal (the diagonal is left out, as the book does).
    """
    extent = keys if section.chunk is None else minimum(keys, section.chunk)
    if section.top is not None:
        extent = minimum(extent, section.top)
    if section.span is None:
        if not causal:
            return extent
        # Chunks and chosen keys: the ramp up to the cap is a triangle, the rest is flat.
        return _causal_mean(queries if section.chunk is None else minimum(queries, section.chunk), keys, extent)
    if not causal:
        return minimum(extent, section.span)
    return _causal_mean(queries, keys, minimum(extent, section.span))


def _causal_mean(queries: Number, keys: Number, cap: Number) -> Number:
    """The mean over queries of min(cap, keys before the query), in the continuum limit."""
    start = maximum(keys - queries, 0)
    ramp_end = minimum(maximum(cap, start), start + queries)  # where the ramp meets the cap
    area = (ramp_end * ramp_end - start * start) / 2 + (start + queries - ramp_end) * cap
    return where(queries > 0, area / maximum(queries, 1), 0)


def op_flops(section: Section, op: Op, batch: Number, queries: Number, keys: Number, causal: bool = True) -> Number:
    """Forward FLOPs of one line, once."""
    sizes = section.dims | {"b": batch, "t": queries, "s": keys}
    if op.function == "einsum":
        return op.einsum.flops(sizes)
    if op.function == "attend":
        query = op.inputs[0]
        seen = keys_seen(section, queries, keys, causal)
        heads = product(sizes[dim.name] for dim in query.dims if dim.name not in ("b", "t"))
        values = (
            product(sizes[dim.name] for dim in op.output.dims if dim.name not in ("b", "t")) if op.output else heads
        )
        return 2 * batch * queries * seen * (heads + values)
    if op.function == "score":
        query = op.inputs[0]
        seen = _causal_mean(queries, keys, keys) if causal else keys
        return 2 * batch * queries * seen * product(sizes[dim.name] for dim in query.dims if dim.name not in ("b", "t"))
    if op.function == "scan":
        # Each token updates and reads the state once: 2 + 2 FLOPs per state element, and the delta rule's 2 more.
        state = op.inputs[-1]
        return 6 * batch * queries * product(sizes[dim.name] for dim in state.dims if dim.name != "b")
    if op.function == "conv":
        weight = op.weights[0]
        return 2 * batch * queries * product(sizes[dim.name] for dim in weight.dims)
    return 0


@dataclass(frozen=True)
class Workload:
    """How much is computed: `batch` sequences of `queries` new tokens against `keys` (the new ones included)."""

    batch: Number
    queries: Number
    keys: Number
    causal: bool = True


def forward_flops(sections: Iterable[Section], work: Workload) -> dict[str, Number]:
    """Forward FLOPs by part; the attention's dot products stand apart as `scores`."""
    by_part: dict[str, Number] = {}
    for section in sections:
        for op in section.ops:
            flops = op_flops(section, op, work.batch, work.queries, work.keys, work.causal) * section.repeat
            part = "scores" if op.function in ("attend", "score", "scan") else op.part
            by_part[part] = by_part.get(part, 0) + flops
    return {part: flops for part, flops in by_part.items() if not (isinstance(flops, (int, float)) and flops == 0)}


def training_flops(sections: Iterable[Section], work: Workload) -> dict[str, Number]:
    """Forward and backward: three times forward, since each product has two gradients of the same size."""
    return {part: 3 * flops for part, flops in forward_flops(sections, work).items()}


def cache_bytes(
    sections: Iterable[Section],
    tokens: Number,
    dtype: str = "bf16",
    page: int | None = None,
    hybrid: bool = True,
) -> dict[str, Number]:
    """Bytes that one sequence of `tokens` keeps while decoding, by section.

    Ideally a window keeps only its last tokens; `hybrid=False` reserves the whole sequence in every layer, and `page`
    rounds what is kept up to whole pages, as a paged engine does. Fixed states (linear attention) do not grow.
    """
    kept: dict[str, Number] = {}
    for section in sections:
        for op in section.ops:
            if op.function != "cache":
                continue
            cap = section.span if section.span is not None else section.chunk
            held = minimum(tokens, cap) if cap is not None and hybrid else tokens
            held = ceil_to(held, page) if page else held
            size = sum(section.size(array, b=1, s=held, t=1) * dtype_bytes(array.dtype or dtype) for array in op.inputs)
            kept[section.name] = kept.get(section.name, 0) + size * section.repeat
    return kept


REMAT = ("none", "selective", "matmuls", "block")
"""What training keeps for the backward pass: everything; everything but the attention's own tensors; the outputs of
matrix multiplications; only each block's input."""


def saved_tensors(section: Section, policy: str) -> tuple[Array, ...]:
    """The activations that one pass through a section keeps for its backward pass, under a policy of `REMAT`."""
    outputs = tuple(op.output for op in section.ops if op.output is not None)
    entry = tuple(array for array in section.ops[0].inputs[:1] if "b" in array.names)
    if policy == "none":
        return entry + outputs
    if policy == "matmuls":
        return tuple(op.output for op in section.ops if op.function == "einsum" and op.output is not None)
    if policy == "selective":
        return entry + tuple(
            op.output for op in section.ops if op.output and op.function not in ("attend", "act", "norm")
        )
    if policy == "block":
        return entry
    from dragonscale.errors import unknown

    raise unknown("remat policy", policy, REMAT)


def activation_bytes(
    sections: Iterable[Section], work: Workload, policy: str, dtype: str = "bf16"
) -> dict[str, Number]:
    """Bytes of saved activations of one microbatch, by section."""
    total: dict[str, Number] = {}
    for section in sections:
        sizes = {"b": work.batch, "t": work.queries, "s": work.keys}
        elements = sum(
            section.size(array, **sizes) * dtype_bytes(array.dtype or dtype) for array in saved_tensors(section, policy)
        )
        total[section.name] = total.get(section.name, 0) + elements * section.repeat
    return total


def all_sections(program: Program, extras: bool = False) -> tuple[Section, ...]:
    """The sections of the language model, with the extras of its checkpoint if asked."""
    return program.sections + (program.extras if extras else ())
