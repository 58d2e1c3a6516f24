"""Solutions of the worked problems of the chapter on TPUs."""

from typing import Any

import numpy

from dragonscale.physics.collectives import Wide, collective_time, gather_time, transfer_time
from dragonscale.physics.hardware import Slice, disjoint_paths, hops, load_chip, parse_slice
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.rooflines import (
    Cost,
    array_bytes,
    crossovers,
    einsum_cost,
    rates_of,
    roofline,
    solve_equal,
    symbol,
)
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh, make_mesh, natural_mesh
from tests.book.casebook import solves
from tests.book.solve_roofline import book_chip, sizes_of

SLICE = "v5e:4x4"
CORNER = (0, 0)
Q4 = parse_einsum("int8[B,D] @ int8[F,D] -> int8[B,F]")
Q6 = parse_einsum("A:bf16[B=8, D=131072] @ W:int8[D, F=131072] -> bf16[B, F]")


def move_time(chip: Any, level: str, moved: Any) -> Any:
    """Seconds to move bytes over one memory level or wire of a chip, and nothing else."""
    return roofline(Cost(bytes={level: moved}), rates_of(chip)).lower


@solves("tpus.q1_param_load_latency")
def parameter_load(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v4", given, reading="book-problems", hbm_bw="memory.hbm.bandwidth")
    weights = parse_array("W:bf16[P_X]")
    held = local_bytes(weights, {"P": given["params"]}, Mesh({"X": given["chips"]}))
    return {"bytes_per_chip": held, "t": move_time(chip, "hbm", held)}


@solves("tpus.q2_v5e_pod", "tpus.q2_v5p_pod")
def pod(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip({"16x16": "v5e", "16x20x28": "v5p"}[given["pod"]]).reading("book")
    assert chip.hbm.capacity == given["hbm"]
    assert "x".join(map(str, chip.host_shape)) == given["host"]
    piece = Slice(chip, parse_slice(f"{chip.name}:{given['pod']}").shape)
    return {"hosts": piece.hosts, "cores": piece.cores, "flops": piece.flops, "hbm": piece.hbm}


@solves("tpus.q3_pcie_critical_batch")
def weights_over_pcie(given: dict[str, Any]) -> dict[str, Any]:
    # The problem takes the generic PCIe figure, half of what the table has for this chip.
    chip = book_chip("v6e", given, peak="matrix.bf16").with_facts(pcie=given["pcie"])
    model = symbol("D")
    sizes = {"B": symbol("B"), "D": model, "F": 4 * model}
    line = parse_einsum("bf16[B,D] @ bf16[D,F]")
    result = roofline(einsum_cost(line, sizes, level="pcie", counted=(1,)), rates_of(chip))
    [batch] = solve_equal(result.seconds["matrix"], result.seconds["pcie"], sizes["B"])
    return {"B_crit": batch}


@solves("tpus.q4_hbm_time")
def q4_times(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5e", given, peak_int8="matrix.int8", hbm_bw="memory.hbm.bandwidth")
    sizes = sizes_of(given, "D F")
    batches = numpy.array(given["B_list"])
    return {
        "ops_per_B": einsum_cost(Q4, sizes | {"B": 1}).total_flops,
        "weight_bytes": einsum_cost(Q4, sizes | {"B": 1}, counted=(1,)).bytes["hbm"],
        "act_bytes_per_B": einsum_cost(Q4, sizes | {"B": 1}, counted=(0, 2)).bytes["hbm"],
        "t": roofline(einsum_cost(Q4, sizes | {"B": batches}), rates_of(chip)).lower.tolist(),
    }


def q4_crossover(given: dict[str, Any], chip: Any, level: str) -> Any:
    """Where the int8 matmul, all its bytes counted, turns from memory-bound to compute-bound."""
    sizes = sizes_of(given, "D F") | {"B": symbol("B")}
    [turn] = crossovers(roofline(einsum_cost(Q4, sizes, level=level), rates_of(chip)), sizes["B"])
    assert (turn.below, turn.above) == (level, "matrix")
    return turn.value


@solves("tpus.q4_hbm_crossover")
def q4_hbm(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5e", given, peak_int8="matrix.int8", hbm_bw="memory.hbm.bandwidth")
    return {"B_crit": q4_crossover(given, chip, "hbm")}


@solves("tpus.q4_vmem_crossover")
def q4_vmem(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5e", given, peak_int8="matrix.int8", vmem_bw="memory.vmem.bandwidth")
    return {"vmem_bw": chip.bandwidth("vmem"), "B_crit": q4_crossover(given, chip, "vmem")}


@solves("tpus.q5_point_to_point")
def point_to_point(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip(given["chip"], given, hop_latency="ici.hop_latency", link_oneway="ici.link")
    piece = Slice(chip, tuple(given["topology"]))
    ends = tuple(given["src"]), tuple(given["dst"])
    volume = array_bytes(parse_array("bf16[A, B, C]"), {"A": 8, "B": 128, "C": 8192})
    assert volume == given["bytes"]
    cost = transfer_time(volume, piece, *ends)
    return {
        "hops": hops(piece, *ends),
        "links_usable": disjoint_paths(piece, *ends),
        "t_first_byte": cost.latency,
        "t_bandwidth": cost.bandwidth,
        "t_total": cost.upper,
    }


@solves("tpus.q6_array_and_hosts")
def q6_array(given: dict[str, Any]) -> dict[str, Any]:
    piece = parse_slice(SLICE)
    assert list(piece.shape) == given["topology"]
    sizes = dict(zip("DF", given["shape"], strict=True))
    by_chip, by_host = parse_array("int8[D_X, F_Y]"), parse_array("int8[D_H, F]")
    hosts = make_mesh({"H": piece.hosts})
    return {
        "bytes": array_bytes(parse_array("int8[D, F]"), sizes),
        "hosts": piece.hosts,
        "bytes_per_host": local_bytes(by_host, sizes, hosts),
        "bytes_per_chip": local_bytes(by_chip, sizes, natural_mesh(piece)),
    }


def spread_load(volume: Any) -> Any:
    """Seconds to load an array from the hosts, each chip of the slice taking its part over its own PCIe."""
    piece = parse_slice(SLICE)
    part = local_bytes(parse_array("int8[V_XY]"), {"V": volume}, natural_mesh(piece))
    return move_time(piece.chip, "pcie", part)


@solves("tpus.q6_choice")
def q6_choice(given: dict[str, Any]) -> dict[str, Any]:
    piece, volume = parse_slice(SLICE), given["bytes"]
    one_link = move_time(piece.chip, "pcie", volume)
    over_ici = gather_time(volume, piece, CORNER)
    # First: half of the array crosses the data-centre network to the other host, then all of it one PCIe link.
    cards = Wide(piece.hosts, piece.chip.bandwidth("dcn") * piece.chip.host_chips)
    over_dcn = collective_time("permute", volume / piece.hosts, cards).lower
    options = {
        "gather over DCN, then load over one PCIe link": max(over_dcn, one_link),
        "load shards over all 16 PCIe links, then gather over ICI": spread_load(volume) + over_ici.lower,
    }
    return {
        "best": min(options, key=lambda option: options[option]),
        "t_option1_pcie_one_link": one_link,
        "t_option2": over_ici.lower,
    }


@solves("tpus.q6_pcie")
def q6_pcie(given: dict[str, Any]) -> dict[str, Any]:
    assert parse_slice(SLICE).chips == given["links"]
    book_chip("v5e", given, pcie="pcie")
    return {"t": spread_load(given["bytes"])}


@solves("tpus.q6_ici_gather")
def q6_gather(given: dict[str, Any]) -> dict[str, Any]:
    book_chip("v5e", given, link_oneway="ici.link")
    piece = parse_slice(SLICE)
    whole = given["bytes"] * piece.chips / (piece.chips - 1)  # the case gives the 15/16 that must travel
    return {"t": gather_time(whole, piece, CORNER).lower}


@solves("tpus.q6_allgather")
def q6_all_gather(given: dict[str, Any]) -> dict[str, Any]:
    # As roughly as the book: the corner, the chip with the fewest links, receives the whole array.
    book_chip("v5e", given, link_oneway="ici.link")
    return {"t": gather_time(given["bytes"], parse_slice(SLICE), CORNER, exact=False).lower}


@solves("tpus.q6_hbm")
def q6_hbm(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5e", given, hbm_bw="memory.hbm.bandwidth")
    return {"t": move_time(chip, "hbm", given["bytes"])}


@solves("tpus.q6_vector_bytes")
def q6_vector(given: dict[str, Any]) -> dict[str, Any]:
    assert [Q6.sizes["B"], Q6.sizes["D"]] == given["shape"]
    return {"bytes": einsum_cost(Q6, counted=(0,)).bytes["hbm"]}


@solves("tpus.q6_flops")
def q6_flops(given: dict[str, Any]) -> dict[str, Any]:
    chip = book_chip("v5e", given, peak="matrix.bf16")
    cost = einsum_cost(Q6)
    return {"flops": cost.total_flops, "t": roofline(cost, rates_of(chip)).seconds["matrix"]}
