"""Solutions of the chapter on sharded matrices: layouts, and what each kind of matmul needs."""

from typing import Any

from dragonscale.errors import InputError
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import Einsum, parse_array, parse_einsum
from dragonscale.physics.rooflines import Cost, rates_of, roofline
from dragonscale.physics.sharding.algebra import Strategy, book_case, derive, strategies
from dragonscale.physics.sharding.layout import block_of, local_bytes, local_shape, replicated_over, total_bytes
from dragonscale.physics.sharding.mesh import Mesh
from tests.book import solve_sharding_collectives, solve_sharding_questions  # noqa: F401  (they register their solvers)
from tests.book.casebook import solves
from tests.sharding.readings import natural_output
from tests.sharding.wording import BOOK_NAMES, told, words
from tests.sharding.xla.moves import moves

DTYPES = {1: "int8", 2: "bf16", 4: "fp32"}
SIZES = {"I": 4096, "J": 4096, "K": 4096}
RING = Mesh({"X": 4})


@solves("sharding.pq_2d_over_1dim", "sharding.pq_replication_memory")
def shard_of_an_array(given: dict[str, Any]) -> dict[str, Any]:
    array = parse_array(f"A:{DTYPES[given['dtype_bytes']]}{given['spec']}")
    mesh, sizes = Mesh(given["mesh"]), dict(zip("IJ", given["shape"], strict=True))
    shape, held = list(local_shape(array, sizes, mesh)), local_bytes(array, sizes, mesh)
    if not replicated_over(array, mesh):
        return {"local_shape": shape, "bytes": held}
    return {"local_shape": shape, "bytes_per_device": held, "bytes_total": total_bytes(array, sizes, mesh)}


@solves("sharding.pq_2d_load_time")
def load_time(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100").reading("book")
    assert chip.hbm.bandwidth == given["hbm_bw"]
    return {"t": roofline(Cost(bytes={"hbm": given["bytes"]}), rates_of(chip)).lower}


@solves("sharding.order_of_axes")
def order_of_axes(given: dict[str, Any]) -> dict[str, Any]:
    mesh = Mesh(given["mesh"])
    places = [(x, y) for x in range(2) for y in range(2)]
    return {
        order: {f"({x},{y})": block_of(tuple(order), {"X": x, "Y": y}, mesh) for x, y in places}
        for order in ("XY", "YX")
    }


def legal(text: str) -> bool:
    try:
        parse_array(text)
    except InputError as error:
        return "used twice" not in str(error)
    return True


@solves("sharding.invalid_same_axis_twice")
def same_axis_twice(given: dict[str, Any]) -> dict[str, Any]:
    return {"valid": legal(f"A{given['spec']}")}


@solves("sharding.partial_replication")
def partial_replication(given: dict[str, Any]) -> dict[str, Any]:
    mesh = Mesh(dict.fromkeys(given["mesh_axes"], 2))
    return {"replicated_over": list(replicated_over(parse_array(f"A{given['spec']}"), mesh))}


def best(line: Einsum, mesh: Mesh) -> Strategy:
    return strategies(line, SIZES, mesh)[0]


def comms_of(strategy: Strategy) -> str:
    return ", ".join(words(step, full=True) for step in strategy.collectives) or "none"


@solves("sharding.case1_2", "sharding.case1_4")
def without_communication(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum(f"{given['lhs']} @ {given['rhs']} -> C[I, K]")
    out = natural_output(line)
    laid_out = Einsum(line.operands, out or line.output)
    return {"case": book_case(line), "comms": comms_of(best(laid_out, Mesh({"X": 4, "Y": 4}))), "out": str(out)}


@solves("sharding.q6c")
def inference_tensor_parallel(_: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]")
    return {"case": book_case(line), "comms": comms_of(best(line, Mesh({"X": 4, "Y": 4})))}


@solves("sharding.case2_gather_noncontracting")
def two_ways(given: dict[str, Any]) -> dict[str, Any]:
    ways = derive(parse_einsum(f"{given['lhs']} @ {given['rhs']} -> {given['out']}"), RING)
    return {"options": sorted(told(way) for way in ways)}


def split_outputs(line: Einsum) -> list[Einsum]:
    """The line with the axis X on each dim of its output in turn."""
    return [Einsum(line.operands, line.output.with_layout({dim.name: ("X",)})) for dim in line.output.dims]


@solves("sharding.case3_reducescatter")
def cheaper_finish(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum(f"{given['lhs']} @ {given['rhs']} -> C[I, K]")
    whole = best(line, RING).wire_bytes(SIZES, RING)
    ways = {str(option.output): best(option, RING) for option in split_outputs(line)}
    assert all(way.wire_bytes(SIZES, RING) == whole / 2 for way in ways.values())
    (comms,) = {words(step).partition("(")[0] for way in ways.values() for step in way.collectives}
    return {"comms": comms, "out_options": list(ways)}


@solves("sharding.q9_reducescatter")
def sharded_result(_: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("A[N, M_X] @ B[M_X, K] -> C[N, K]")
    ways = {
        option.output.dims[place].name: strategies(option, {"N": 4096, "M": 4096, "K": 4096}, RING)[0]
        for place, option in enumerate(split_outputs(line))
    }
    (kind,) = {step.kind for way in ways.values() for step in way.collectives}
    return {"comms": f"{BOOK_NAMES[kind]} over {' or '.join(ways)}"}


@solves("sharding.case4")
def one_axis_on_both(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum(f"{given['lhs']} @ {given['rhs']} -> C[I, K]")
    assert natural_output(line) is None
    options = split_outputs(line)
    gathers = {f"{words(step)} -> {option.output}" for option in options for step in best(option, RING).collectives}
    return {"case": book_case(line), "naive_out_valid": legal("C[I_X, K_X]"), "options": sorted(gathers)}


@solves("sharding.reducescatter_signature", "sharding.alltoall_signature")
def signature(given: dict[str, Any]) -> dict[str, Any]:
    array = parse_array(given["in"])
    kind, axis = ("reduce_scatter", array.partial[0]) if array.partial else ("all_to_all", array.axes[0])
    found = moves(array, Mesh({"X": 4, "Y": 4}), frozenset({kind}))
    (out,) = [str(step.after) for step in found if axis in step.after.dim(given["dim"]).axes]
    return {"out": out}
