"""Solutions of the chapter on sharded matrices: how collectives work and what they cost."""

from typing import Any

import sympy

from dragonscale.course.closed_forms.operators import as_matrix, transpose_of
from dragonscale.physics.collectives import Options, Ring, Rings, collective_time
from dragonscale.physics.collectives.ring_steps import (
    all_to_all_piece,
    all_to_all_sends,
    hop_bytes,
    hop_seconds,
    ring_hops,
)
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.hardware.slices import parse_slice
from dragonscale.physics.notation import parse_array
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines import solve_equal, symbol
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh, make_mesh
from dragonscale.physics.sharding.reshard import Step, reshard
from tests.book.casebook import NOT_COMPUTED, Both, solves
from tests.sharding.wording import BOOK_NAMES

V, X, N, W, W_BIDI, W_ONEWAY, T_MIN = (symbol(name) for name in ("V", "X", "N", "W", "W_bidi", "W_oneway", "T_min"))
NOT_COMPUTED["sharding.empirical_allgather_v5e:fraction_of_peak"] = (
    "The 95% is read off a curve that the authors measured on a v5e; it is evidence, not a result of a calculation."
)


def ring(size: Number, bidirectional: Number, hop: Number = 0.0) -> Rings:
    """A full ring whose links carry `bidirectional` bytes per second, both directions together."""
    return Rings((Ring(size),), bidirectional / 2, hop)


@solves("sharding.allgather_hops")
def hops_of_a_gather(given: dict[str, Any]) -> dict[str, Any]:
    size, volume = given["N"], given["V"]
    return {
        "uni_hops": Both(ring_hops(N, one_way=True), ring_hops(size, one_way=True)),
        "uni_bytes_per_hop": hop_bytes(V, N, one_way=True),
        "bidi_hops": Both(ring_hops(N), ring_hops(size)),
        "bidi_bytes_per_hop": Both(hop_bytes(V, N), hop_bytes(volume, size)),
    }


@solves("sharding.allgather_hop_time")
def time_of_a_hop(_: dict[str, Any]) -> dict[str, Any]:
    return {"t_hop": hop_seconds(V, X, link=W_BIDI / 2)}


@solves("sharding.allgather_time")
def time_of_a_gather(given: dict[str, Any]) -> dict[str, Any]:
    formula = collective_time("all_gather", V, ring(X, W_BIDI)).bandwidth
    value = collective_time("all_gather", given["V"], ring(given["X"], given["W_bidi"])).bandwidth
    return {"t": Both(formula, value), "depends_on_axis_size": X in formula.free_symbols}


@solves("sharding.latency_bound_rule")
def gather_with_latency(given: dict[str, Any]) -> dict[str, Any]:
    formula = collective_time("all_gather", V, ring(X, W, T_MIN))
    value = collective_time("all_gather", given["V"], ring(given["X"], given["W_bidi"], given["t_min"]))
    return {
        "t_hop": hop_seconds(V, X, W / 2, T_MIN),
        "t_total": Both(formula.lower, value.lower),
        "bound": value.regime,
    }


@solves("sharding.latency_buffer_threshold")
def smallest_buffer(given: dict[str, Any]) -> dict[str, Any]:
    network = load_chip("v5e").network
    assert (network.link, network.hop_latency) == (given["W_oneway"], given["t_min"])
    send = collective_time("permute", V, Rings((Ring(16),), network.link, network.hop_latency))
    (threshold,) = solve_equal(send.bandwidth, send.latency, V)
    return {"bytes": threshold}


@solves("sharding.empirical_allgather_v5e")
def shard_at_peak(given: dict[str, Any]) -> dict[str, Any]:
    mesh = Mesh({"X": given["shards"]})
    return {"bytes_per_device_at_peak": local_bytes(parse_array("A:int8[I_X]"), {"I": given["array"]}, mesh)}


@solves("sharding.allgather_multi_axis")
def gather_over_several_axes(given: dict[str, Any]) -> dict[str, Any]:
    rings = Rings(tuple(Ring(size) for size in given["axes"]), given["W_bidi"] / 2, given["t_min"])
    cost = collective_time("all_gather", given["V"], rings)
    return {"t": cost.lower, "latency_floor": cost.latency}


def gather_y(rows: int, columns: int) -> tuple[Step, dict[str, int]]:
    """Pop quiz 2: AllGather_Y of bf16[E_Y, F]."""
    (step,) = reshard(parse_array("A:bf16[E_Y, F]"), parse_array("A:bf16[E, F]"), Mesh({"X": 8, "Y": 4}))
    return step, {"E": rows, "F": columns}


@solves("sharding.pq2_ideal")
def on_a_full_ring(given: dict[str, Any]) -> dict[str, Any]:
    step, sizes = gather_y(given["E"], given["F"])
    mesh = Mesh(given["mesh"], load_chip("v5e"))
    volume = step.volume(sizes, mesh)
    time = collective_time("all_gather", volume, mesh.group(step.axes)).lower
    return {"shard_bytes": local_bytes(step.before, sizes, mesh), "bytes": volume, "t": time}


def on_real_wires(rows: int, columns: int) -> tuple[Any, Any, Any]:
    """The same on a v5e slice of 4x8, whose axes do not close: bytes of a shard, of the array, and the cost."""
    step, sizes = gather_y(rows, columns)
    piece = parse_slice("v5e:4x8")
    assert piece.wrap == (False, False)
    mesh = make_mesh({"X": 8, "Y": 4}, piece.chip, piece)
    volume = step.volume(sizes, mesh)
    return local_bytes(step.before, sizes, mesh), volume, collective_time("all_gather", volume, mesh.group(step.axes))


@solves("sharding.pq2_latency_floor")
def latency_floor(_: dict[str, Any]) -> dict[str, Any]:
    _shard, _volume, cost = on_real_wires(2048, 8192)
    return {"t": cost.latency, "latency_bound": cost.regime == "latency"}


@solves("sharding.pq2_no_wrap")
def without_wraparound(_: dict[str, Any]) -> dict[str, Any]:
    return {"t": on_real_wires(2048, 8192)[2].lower}


@solves("sharding.pq2_small")
def small_array(given: dict[str, Any]) -> dict[str, Any]:
    shard, volume, cost = on_real_wires(given["E"], given["F"])
    per_hop = hop_seconds(volume, given["axis"], given["W_oneway"])
    return {"shard_bytes": shard, "t_hop_bw": per_hop, "bound": cost.regime, "t": cost.lower}


@solves("sharding.logical_axis_over_two_hw_axes")
def axis_over_two_axes(given: dict[str, Any]) -> dict[str, Any]:
    piece = parse_slice("v5p:" + "x".join(map(str, given["topology"])))
    mesh = make_mesh(given["mesh"], piece.chip, piece)
    on_x, on_y = (collective_time("all_gather", given["V"], mesh.group((axis,))).lower for axis in "XY")
    return {"hw_axes_for_X": len(mesh.rings["X"]), "bandwidth_factor": on_y / on_x, "t_allgather_X": on_x}


FOUR = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@solves("sharding.collective_cost_table")
def four_collectives(given: dict[str, Any]) -> dict[str, Any]:
    seconds = {kind: collective_time(kind, given["V"], ring(16, given["W_bidi"])).bandwidth for kind in FOUR}
    relative = {BOOK_NAMES[kind]: time / seconds["all_gather"] for kind, time in seconds.items()}
    return relative | dict(zip(("AG", "RS", "AR", "A2A"), seconds.values(), strict=True))


@solves("sharding.unidirectional_collective")
def one_direction(given: dict[str, Any]) -> dict[str, Any]:
    def time(volume: Any, size: Any, link: Any) -> Any:
        return collective_time("all_gather", volume, Rings((Ring(size),), link), Options(one_way=True)).bandwidth

    return {"t": Both(time(V, X, W_ONEWAY), time(given["V"], given["X"], given["W_oneway"]))}


@solves("sharding.allgather_no_wrap_rule")
def along_a_line(given: dict[str, Any]) -> dict[str, Any]:
    def time(volume: Any, size: Any, link: Any) -> Any:
        return collective_time("all_gather", volume, Rings((Ring(size, wrap=False),), link)).bandwidth

    values = [time(given["V"], size, given["W_oneway"]) for size in given["N"]]
    return {"t": Both(time(V, N, W_ONEWAY), values)}


@solves("sharding.alltoall_chunk_count")
def pieces_of_an_all_to_all(given: dict[str, Any]) -> dict[str, Any]:
    size, volume = given["N"], given["V"]
    half = sympy.Symbol("half", positive=True, integer=True)
    sends = all_to_all_sends(2 * half).subs(half, N / 2)  # of an even ring
    return {
        "chunks_total": Both(sends, all_to_all_sends(size)),
        "chunk_bytes": all_to_all_piece(V, N),
        "bytes_per_device": Both(
            sends * all_to_all_piece(V, N), all_to_all_sends(size) * all_to_all_piece(volume, size)
        ),
    }


def ratio(first: tuple[str, Options], second: tuple[str, Options]) -> Any:
    """The bandwidth terms of two collectives on one ring of X chips, one over the other."""
    times = [collective_time(kind, V, ring(X, W), options).bandwidth for kind, options in (first, second)]
    return sympy.simplify(times[0] / times[1])


ONE_WAY, TWO_WAY = Options(exact=True, one_way=True), Options(exact=True)


@solves("sharding.alltoall_1d")
def all_to_all_on_a_ring(_: dict[str, Any]) -> dict[str, Any]:
    time = collective_time("all_to_all", V, ring(X, W_BIDI)).bandwidth
    return {"t": time, "ratio_to_allgather": ratio(("all_to_all", Options()), ("all_gather", Options()))}


@solves("sharding.q10_3")
def one_way_all_to_all(_: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": ratio(("all_to_all", ONE_WAY), ("all_gather", ONE_WAY))}


@solves("sharding.q10_4")
def gain_of_a_gather(_: dict[str, Any]) -> dict[str, Any]:
    return {"factor": ratio(("all_gather", ONE_WAY), ("all_gather", TWO_WAY))}


@solves("sharding.q10_5")
def gain_of_an_all_to_all(_: dict[str, Any]) -> dict[str, Any]:
    return {"factor": sympy.limit(ratio(("all_to_all", ONE_WAY), ("all_to_all", TWO_WAY)), X, sympy.oo)}


@solves("sharding.allgather_vjp")
def backward_collectives(_: dict[str, Any]) -> dict[str, Any]:
    return {BOOK_NAMES[kind]: BOOK_NAMES[transpose_of(kind)] for kind in ("all_gather", "reduce_scatter")}


@solves("sharding.kron_broadcast_reduce")
def kronecker_products(given: dict[str, Any]) -> dict[str, Any]:
    copy, add = (as_matrix(kind, given["n"], given["p"]) for kind in ("broadcast", "reduce"))
    return {"broadcast": (copy @ given["x"]).tolist(), "reduce": (add @ given["y"]).tolist()}


@solves("sharding.kron_shapes")
def operator_shapes(given: dict[str, Any]) -> dict[str, Any]:
    gather, scatter = (as_matrix(kind, given["n"], given["p"]) for kind in ("all_gather", "reduce_scatter"))
    return {
        "allgather_shape": list(gather.shape),
        "reducescatter_shape": list(scatter.shape),
        "transpose_equal": bool((scatter == gather.T).all()),
    }


def with_rates(name: str, peak: Any, bidirectional: Any) -> Chip:
    """A chip whose peak and links are symbols, and whose hops are free."""
    return load_chip(name).with_facts(**{"matrix.bf16": peak, "ici.link": bidirectional / 2, "ici.hop_latency": 0})
