"""Solutions of the chapter on JAX: asked of JAX itself where it is about JAX, on an abstract mesh or on virtual
devices."""

import math
from typing import Any

import pytest

from dragonscale.physics.notation import Array, Einsum, parse_array, parse_einsum
from dragonscale.physics.rooflines import Cost, Rates, Roofline, einsum_cost, roofline
from dragonscale.physics.sharding import Mesh, local_bytes, local_shape, replicated_over, strategies
from tests.book.casebook import solves
from tests.runtime.conftest import use_virtual_devices
from tests.sharding.wording import BOOK_NAMES

AUTO = parse_einsum("In[B_X, D_Y] @ W[D_Y, F] -> Out[B_X, F]")
UP = parse_einsum("In[B_X, D_Y] @ W_in[D, F_Y] -> Tmp[B_X, F_Y]")
DOWN = parse_einsum("Tmp[B_X, F_Y] @ W_out[F_Y, D] -> Out[B_X, D_Y]")


def jax_of_devices() -> Any:
    use_virtual_devices()
    return pytest.importorskip("jax")


def written(array: Array) -> str:
    return str(array).replace(", ", ",")


def abstract_mesh(kind: str, sizes: dict[str, int]) -> Any:
    jax = jax_of_devices()
    types = (getattr(jax.sharding.AxisType, kind),) * len(sizes)
    return jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=types)


def device_mesh(**sizes: int) -> Any:
    jax = jax_of_devices()
    devices = jax.devices()[: math.prod(sizes.values())]
    types = (jax.sharding.AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=types, devices=devices)


def typed(function: Any, mesh: Any, *arrays: tuple[tuple[int, ...], str, Any]) -> list[str]:
    """What `function` records while JAX gives types to its arguments: (shape, dtype, spec) on a mesh."""
    jax = jax_of_devices()
    seen: list[str] = []
    with jax.sharding.use_abstract_mesh(mesh):
        given = [
            jax.ShapeDtypeStruct(shape, dtype, sharding=jax.NamedSharding(mesh, spec)) for shape, dtype, spec in arrays
        ]
        jax.eval_shape(lambda *traced: function(seen, *traced), *given)
    return seen


@solves("jax-stuff.modes")
def modes(_: dict[str, Any]) -> dict[str, Any]:
    """A mode is seen from inside: the shape of an array, whether its type has a sharding, whether collectives can be
    called."""
    jax = jax_of_devices()
    spec = jax.P("X", "Y")

    def look(seen: list[Any], x: Any) -> Any:
        seen += ["global" if x.shape == (8, 2) else "per-device", jax.typeof(x).str_short() != "float32[8,2]"]
        try:
            jax.lax.psum(x, "X")
            seen.append(True)
        except NameError:
            seen.append(False)
        return x

    def manually(seen: list[Any], x: Any) -> Any:
        return jax.shard_map(lambda x: look(seen, x), mesh=auto, in_specs=spec, out_specs=spec)(x)

    auto, explicit = (abstract_mesh(kind, {"X": 4, "Y": 2}) for kind in ("Auto", "Explicit"))
    array = ((8, 2), "float32", spec)
    return {
        "Auto": typed(look, auto, array),
        "Explicit": typed(look, explicit, array),
        "Manual": typed(manually, auto, array),
    }


@solves("jax-stuff.explicit_typeof")
def explicit_types(_: dict[str, Any]) -> dict[str, Any]:
    jax = jax_of_devices()
    mesh = abstract_mesh("Explicit", {"X": 4, "Y": 2})

    def double(seen: list[str], x: Any) -> Any:
        seen += [str(jax.typeof(x)), str(jax.typeof(x * 2))]
        return x

    def einsum(seen: list[str], x: Any, w: Any) -> Any:
        out = jax.numpy.einsum("BD,DF->BF", x, w, out_sharding=jax.P("X", "Y"))
        seen.append(str(jax.typeof(out)))
        return out

    x, out = typed(double, mesh, ((8, 2), "float32", jax.P("X", "Y")))
    operands = ((8, 2048), "bfloat16", jax.P("X", "Y")), ((2048, 8192), "bfloat16", jax.P("Y", None))
    return {"x": x, "out": out, "einsum": typed(einsum, mesh, *operands)[0]}


def local(array: Array, sizes: dict[str, int], mesh: Mesh) -> list[int]:
    return [int(size) for size in local_shape(array, sizes, mesh)]


@solves("jax-stuff.auto_local_shapes")
def auto_local_shapes(given: dict[str, Any]) -> dict[str, Any]:
    sizes = dict(zip("BDF", (*given["In"], given["W"][1]), strict=True))
    shapes = [local(a, sizes, Mesh({"X": given["X"], "Y": given["Y"]})) for a in (*AUTO.operands, AUTO.output)]
    return dict(zip(("In_local", "W_local", "out_local"), shapes, strict=True))


@solves("jax-stuff.auto_collective")
def auto_collective(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum(f"In[{given['In']}] @ W[{given['W']}] -> Out[{given['out']}]")
    best = strategies(line, {"B": 8, "D": 2048, "F": 8192}, Mesh({"X": 4, "Y": 2}))[0]
    (step,) = best.collectives
    return {"collective": f"{BOOK_NAMES[step.kind]} over {', '.join(step.axes)}", "partial": written(step.before)}


@solves("jax-stuff.auto_allreduce_bytes")
def auto_allreduce_bytes(given: dict[str, Any]) -> dict[str, Any]:
    rows, columns = given["out_local"]
    return {"bytes": local_bytes(parse_array("Out:bf16[B, F]{U_Y}"), {"B": rows, "F": columns}, Mesh({"Y": 2}))}


@solves("jax-stuff.auto_sharding_degrees")
def auto_sharding_degrees(given: dict[str, Any]) -> dict[str, Any]:
    mesh = Mesh({"X": given["X"], "Y": given["Y"]})
    chips = given["X"] * given["Y"]

    def ways(array: Array) -> int:
        for axis in replicated_over(array, mesh):
            return chips // mesh.axes[axis]
        return chips

    return {array.name: ways(array) for array in AUTO.operands}


@solves("jax-stuff.shard_map_slice_average")
def slice_and_average(given: dict[str, Any]) -> dict[str, Any]:
    jax = jax_of_devices()
    mesh = device_mesh(X=2, Y=given["devices"] // 2)
    lengths: list[int] = []

    def average(x: Any) -> Any:
        lengths.append(x.shape[0])
        return jax.lax.pmean(x[: given["k"]], axis_name=("X", "Y"))

    mapped = jax.shard_map(average, mesh=mesh, in_specs=jax.P(("X", "Y")), out_specs=jax.P())
    out = jax.jit(mapped)(jax.numpy.arange(given["n"], dtype="float32"))
    return {"local_len": lengths[0], "out": out.tolist()}


@solves("jax-stuff.q1_2_roll_minus")
def roll_minus(given: dict[str, Any]) -> dict[str, Any]:
    jax = jax_of_devices()
    rows, cols, shift = given["rows"], given["cols"], given["shift"]
    mesh = device_mesh(X=4)
    x = jax.numpy.arange(4 * rows * cols).reshape(4 * rows, cols)
    rolled = jax.shard_map(
        lambda x: jax.numpy.roll(x, shift, axis=0) - x, mesh=mesh, in_specs=jax.P("X"), out_specs=jax.P("X")
    )
    shards = jax.jit(rolled)(x).reshape(4, rows, cols)
    first, others = set(shards[:, :shift].ravel().tolist()), set(shards[:, shift:].ravel().tolist())
    assert len(first) == len(others) == 1
    return {"first_rows": first.pop(), "other_rows": others.pop()}


@solves("jax-stuff.collective_matmul_shapes")
def collective_matmul_shapes(given: dict[str, Any]) -> dict[str, Any]:
    """Counted in the program that JAX traces from the line, at the book's sizes."""
    jax = jax_of_devices()
    from dragonscale.runtime.collective_matmul import collective_matmul

    sizes = {name: given[name] for name in "BDF"}
    axes = {"X": given["X"], "Y": given["Y"]}
    line = parse_einsum("A[B_X, D_Y] @ W[D, F_Y] -> Out[B_X, F_Y]")
    shapes = [tuple(sizes[dim] for dim in array.names) for array in line.operands]
    function = collective_matmul(str(line), abstract_mesh("Auto", axes))
    traced = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes))
    (body,) = (equation.params["jaxpr"] for equation in traced.eqns if equation.primitive.name == "shard_map")
    inside = [equation.primitive.name for equation in body.eqns]
    a, w, out = (local(array, sizes, Mesh(axes)) for array in (*line.operands, line.output))
    assert [list(v.aval.shape) for v in (*body.invars, *body.outvars)] == [a, w, out]
    return {
        "A_local": a,
        "W_local": w,
        "out_local": out,
        "chunk": a[1],
        "permutes": inside.count("ppermute"),
        "matmuls": inside.count("dot_general"),
    }


@solves("jax-stuff.collective_matmul_schedule")
def collective_matmul_schedule(given: dict[str, Any]) -> dict[str, Any]:
    jax_of_devices()
    from dragonscale.runtime.rings import shard_held

    return {"chunks": [shard_held(given["idx"], step, given["Y"]) for step in range(given["Y"])]}


def timed(matmul: float, comms: float) -> Roofline:
    """A matmul and a collective that take these times on a machine of rate one."""
    cost = Cost(flops={("matrix", "bf16"): matmul}, wire={"Y": comms})
    return roofline(cost, Rates(flops={("matrix", "bf16"): 1.0}, wire={"Y": 1.0}))


@solves("jax-stuff.collective_matmul_times")
def collective_matmul_times(given: dict[str, Any]) -> dict[str, Any]:
    exposed = given["naive"] - given["unsharded"]
    bounds = timed(given["unsharded"], exposed)
    assert bounds.lower <= given["overlapped"] <= bounds.upper
    return {
        "speedup": bounds.upper / given["overlapped"],
        "overhead": given["overlapped"] / bounds.lower,
        "exposed_naive": exposed,
    }


@solves("jax-stuff.overlap_model")
def overlap_model(given: dict[str, Any]) -> dict[str, Any]:
    bounds = timed(given["t_mm"], given["t_comm"])
    return {"serial": bounds.upper, "ideal_overlap": bounds.lower}


@solves("jax-stuff.q2_moe_masked_flops")
def moe_masked_flops(given: dict[str, Any]) -> dict[str, Any]:
    """A loop gives every token to every expert; routed, a token has a row for each expert it chose."""
    sizes = {name: given[name] for name in "SDFE"}
    masked = einsum_cost(parse_einsum("bf16[S, D] @ bf16[E, D, F] -> bf16[E, S, F]"), sizes).total_flops
    routed = einsum_cost(parse_einsum("bf16[R, D] @ bf16[D, F]"), sizes | {"R": sizes["S"] * given["k"]}).total_flops
    return {"masked": masked, "ideal": routed, "waste": masked / routed}


@solves("jax-stuff.q2_moe_comms")
def moe_comms(given: dict[str, Any]) -> dict[str, Any]:
    sizes, mesh = {"S": given["S"], "D": given["D"]}, Mesh({"X": given["X"]})
    gathered, routed = (local_bytes(parse_array(f"A:fp32[{rows}, D]"), sizes, mesh) for rows in ("S", "S_X"))
    return {"allgather_bytes": gathered, "alltoall_bytes": routed, "saving": gathered / routed}


def hidden_collective(line: Einsum) -> str:
    jax_of_devices()
    from dragonscale.runtime.collective_matmul import pattern_of

    return BOOK_NAMES[pattern_of(line).collective]


@solves("jax-stuff.q3_1_allreduce_collective")
def allreduce_collective(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum(given["op"].replace("*_D", "@"))
    assert hidden_collective(line) == "AllReduce"
    mesh = Mesh({"X": 2, "Y": 4})
    over = replicated_over(line.output, mesh)
    split = [axis for axis in mesh.axes if axis not in over]
    return {"output": f"sharded on {', '.join(split)} only, replicated over {', '.join(over)}"}


@solves("jax-stuff.q3_3_block")
def overlapped_block(_: dict[str, Any]) -> dict[str, Any]:
    def told(line: Einsum) -> str:
        return f"{hidden_collective(line)} collective matmul ({' '.join(map(written, line.operands))})"

    return {"up": told(UP), "down": told(DOWN)}


@solves("jax-stuff.q4_bidirectional")
def bidirectional(given: dict[str, Any]) -> dict[str, Any]:
    jax_of_devices()
    from dragonscale.runtime.rings import hops

    one, both = hops(given["Y"]), hops(given["Y"], both_ways=True)
    return {"time_factor": both.shard_times / one.shard_times, "steps": both.steps}
