"""The cases in JAX, lowered for devices that are only described: shapes and layouts, no values.

Where the question is what the partitioner does, a program has layouts on its arguments and results, and of a chain on
its intermediates as the scheme computes them; the rest it finds itself. The library's own forms run in `jax.shard_map`,
as they do in the trainer and the server.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.course.closed_forms.schemes import read_scheme
from dragonscale.models.program import is_weight
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, Einsum, parse_array, parse_einsum
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.runtime.attention import Reach, Scoring
from dragonscale.runtime.expert_exchange import Sending, send
from dragonscale.runtime.experts import ExpertRows, multiply
from dragonscale.runtime.lines import PassSetting, SectionPass, run_section
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.place import Place
from dragonscale.runtime.ring_attention import ring_attend
from dragonscale.runtime.weight_stationary import weight_stationary_mlp
from tests.evidence.book_programs.cases import Case
from tests.evidence.book_programs.predictions import attention_section
from tests.runtime.split_cache import attend_split_cache
from tests.sharding.xla.einsum_worker import formula_of

Program = tuple[Any, tuple[Any, ...]]
"""A function under `jax.jit`, and what it is lowered for."""


def lower_case(case: Case, piece: str, devices: Sequence[Any]) -> Any:
    """A case on one of its slices, traced and lowered for the slice's devices."""
    sizes = case.slices[piece]
    mesh = Mesh(numpy.array(devices).reshape(tuple(sizes.values())), tuple(sizes))
    function, shapes = _PROGRAMS[case.form](case, mesh)
    return function.lower(*shapes)


def _laid(array: Array, mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, to_partition_spec(array))


def _shape(array: Array, sizes: dict[str, int], mesh: Mesh) -> Any:
    dtype = jnp.float32 if array.dtype and dtype_bytes(array.dtype) == 4 else jnp.bfloat16
    return jax.ShapeDtypeStruct(tuple(sizes[name] for name in array.names), dtype, sharding=_laid(array, mesh))


def _move(case: Case, mesh: Mesh) -> Program:
    before, after = (parse_array(text) for text in case.texts)
    return jax.jit(lambda x: x + 1, out_shardings=_laid(after, mesh)), (_shape(before, case.sizes, mesh),)


def _multiply(line: Einsum, mesh: Mesh) -> Callable[..., Any]:
    """A line, its result laid out as it says."""
    formula, out = formula_of(line), _laid(line.output, mesh)
    return lambda *each: jax.lax.with_sharding_constraint(jnp.einsum(formula, *each), out)


def _lines(case: Case, mesh: Mesh) -> Program:
    """One line, or several that hand their results on."""
    lines = [parse_einsum(text) for text in case.texts]

    def run(x: Any, *weights: Any) -> Any:
        for line, weight in zip(lines, weights, strict=True):
            x = _multiply(line, mesh)(x, weight)
        return x

    given = (lines[0].operands[0], *(line.operands[1] for line in lines))
    return jax.jit(run), tuple(_shape(array, case.sizes, mesh) for array in given)


def _forward(case: Case, mesh: Mesh) -> Program:
    first, second = (planned.line for planned in read_scheme(case.texts[0]).forward)

    def run(x: Any, w_in: Any, w_out: Any) -> Any:
        return _multiply(second, mesh)(_multiply(first, mesh)(x, w_in), w_out)

    given = (*first.operands, second.operands[1])
    return jax.jit(run), tuple(_shape(array, case.sizes, mesh) for array in given)


def _backward(case: Case, mesh: Mesh) -> Program:
    """The gradients of the input and both weights; what the forward pass made in between is given, as a trainer keeps
    it."""
    first, second = (planned.line for planned in read_scheme(case.texts[0]).forward)

    def run(x: Any, w_in: Any, middle: Any, w_out: Any, slope: Any) -> Any:
        _, to_second = jax.vjp(_multiply(second, mesh), middle, w_out)
        to_middle, to_w_out = to_second(slope)
        _, to_first = jax.vjp(_multiply(first, mesh), x, w_in)
        return *to_first(to_middle), to_w_out

    results = (*first.operands, second.operands[1])
    given = (*first.operands, *second.operands, second.output)
    function = jax.jit(run, out_shardings=tuple(_laid(array, mesh) for array in results))
    return function, tuple(_shape(array, case.sizes, mesh) for array in given)


def _rings(case: Case, mesh: Mesh) -> Program:
    lines = [parse_einsum(text) for text in case.texts]
    given = (lines[0].operands[0], *(line.operands[1] for line in lines))
    function = weight_stationary_mlp(mesh, act=lambda x: x, gated=False)
    return jax.jit(function), tuple(_shape(array, case.sizes, mesh) for array in given)


def _attention(case: Case, mesh: Mesh) -> Program:
    """Forward and backward: of (x, weights, the slope of the result)."""
    section = attention_section(case.texts[0])
    place = Place({str(axis): int(size) for axis, size in mesh.shape.items()})
    sizes = {**section.dims, **case.sizes}
    first, last = section.ops[0].inputs[0], section.ops[-1].output
    assert last is not None
    weights = {array.name: array for op in section.ops for array in op.arrays if is_weight(array)}
    at_rest = {name: place.fit(place.at_rest(array), section.dims) for name, array in weights.items()}
    x, out = (place.fit(place.at_rest(array), section.dims) for array in (first, last))

    def local(value: Any, own: Any, slope: Any) -> Any:
        positions = jnp.arange(sizes["t"])[None]

        def attended(value: Any, own: Any) -> Any:
            run = SectionPass(
                section, PassSetting(Numerics(), place=place), positions, own, tensors={first.name: value}
            )
            return run_section(run)[last.name]

        made, pull = jax.vjp(attended, value, own)
        return made, *pull(slope)

    specs = {name: to_partition_spec(array) for name, array in at_rest.items()}
    inputs, result = to_partition_spec(x), to_partition_spec(out)
    function = jax.shard_map(
        local, mesh=mesh, in_specs=(inputs, specs, result), out_specs=(result, inputs, specs), check_vma=False
    )
    own = {name: _shape(array, sizes, mesh) for name, array in at_rest.items()}
    return jax.jit(function), (_shape(x, sizes, mesh), own, _shape(out, sizes, mesh))


def _ring(case: Case, mesh: Mesh) -> Program:
    """Of (queries, keys, values, positions), and in training the slope of the result."""
    each = case.sizes
    query = jax.ShapeDtypeStruct((each["B"], each["S"], each["N"], each["H"]), jnp.bfloat16)
    held = jax.ShapeDtypeStruct((each["B"], each["S"], each["K"], each["H"]), jnp.bfloat16)
    at = jax.ShapeDtypeStruct((each["B"], each["S"]), jnp.int32)

    def local(query: Any, key: Any, value: Any, at: Any) -> Any:
        return ring_attend(query, key, value, at, Scoring(Reach(), each["H"] ** -0.5), axis="X")

    def trained(query: Any, key: Any, value: Any, at: Any, slope: Any) -> Any:
        made, pull = jax.vjp(lambda q, k, v: local(q, k, v, at), query, key, value)
        return made, *pull(slope)

    split = PartitionSpec(None, "X")
    with_slope = case.form == "ring trained"
    arguments = (query, held, held, at, query) if with_slope else (query, held, held, at)
    function = jax.shard_map(
        trained if with_slope else local,
        mesh=mesh,
        in_specs=(split,) * len(arguments),
        out_specs=(split,) * 4 if with_slope else split,
        check_vma=False,
    )
    return jax.jit(function), arguments


def _experts(case: Case, mesh: Mesh) -> Program:
    """Rows that are sorted by expert already, through one matrix of each expert; of (rows, experts,
    weights, scales)."""
    chips, each = mesh.size, case.sizes
    experts, capacity = each["E"], each["C"]
    count = experts * capacity

    def local(values: Any, numbers: Any, weight: Any, scale: Any) -> Any:
        sizes = jnp.zeros(experts, jnp.int32).at[numbers].add(1)
        rows = ExpertRows(values, sizes, numbers, jnp.arange(count), scale)
        there, way = send(rows, experts, "X", Sending(capacity))
        return way(multiply(there, weight)).values

    def trained(values: Any, numbers: Any, weight: Any, scale: Any, slope: Any) -> Any:
        made, pull = jax.vjp(lambda *inside: local(inside[0], numbers, *inside[1:]), values, weight, scale)
        return made, *pull(slope)

    split = PartitionSpec("X")
    arguments = (
        jax.ShapeDtypeStruct((chips * count, each["D"]), jnp.bfloat16),
        jax.ShapeDtypeStruct((chips * count,), jnp.int32),
        jax.ShapeDtypeStruct((experts, each["D"], each["D"]), jnp.bfloat16),
        jax.ShapeDtypeStruct((chips * count,), jnp.float32),
    )
    with_slope = case.form == "experts trained"
    arguments = (*arguments, arguments[0]) if with_slope else arguments
    function = jax.shard_map(
        trained if with_slope else local,
        mesh=mesh,
        in_specs=(split,) * len(arguments),
        out_specs=(split,) * 4 if with_slope else split,
        check_vma=False,
    )
    return jax.jit(function), arguments


def _split_cache(case: Case, mesh: Mesh) -> Program:
    """Every chip has the queries and a part of the cache; of (queries, keys, values, positions)."""
    each = case.sizes
    own = each["S"] // mesh.size

    def local(query: Any, key: Any, value: Any, positions: Any) -> Any:
        at = jax.lax.axis_index("X") * own + jnp.arange(own)
        keys = jnp.broadcast_to(at, (each["B"], own))
        return attend_split_cache(query, key, value, positions, keys, Reach(), each["H"] ** -0.5, "X")

    cache = PartitionSpec(None, "X")
    whole = PartitionSpec()
    function = jax.shard_map(local, mesh=mesh, in_specs=(whole, cache, cache, whole), out_specs=whole, check_vma=False)
    query = jax.ShapeDtypeStruct((each["B"], each["T"], each["N"], each["H"]), jnp.bfloat16)
    stored = jax.ShapeDtypeStruct((each["B"], each["S"], each["K"], each["H"]), jnp.bfloat16)
    return jax.jit(function), (query, stored, stored, jax.ShapeDtypeStruct((each["B"], each["T"]), jnp.int32))


_PROGRAMS: dict[str, Callable[[Case, Mesh], Program]] = {
    "move": _move,
    "einsum": _lines,
    "forward": _forward,
    "backward": _backward,
    "lines": _lines,
    "rings": _rings,
    "attention": _attention,
    "ring": _ring,
    "ring trained": _ring,
    "experts": _experts,
    "experts trained": _experts,
    "split cache": _split_cache,
}
