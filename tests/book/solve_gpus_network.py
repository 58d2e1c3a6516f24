"""Solutions of the chapter on GPUs: nodes, switches and collectives."""

from typing import Any

import numpy
import sympy

from dragonscale.course.closed_forms.networks import (
    binding_tier,
    cables_per_pair,
    egress_from_bisection,
    ports_used,
    tier_bandwidths,
)
from dragonscale.physics.collectives import BOOK, Options, Ring, Rings, Switches, collective_time
from dragonscale.physics.collectives.cost import bus_bandwidth, ragged_fill
from dragonscale.physics.collectives.tiers import switch_traffic, tier_seconds
from dragonscale.physics.hardware import Level, links_of, load_chip, parse_slice
from dragonscale.physics.hardware.fat_tree import fat_tree, load_switch, node_tier
from dragonscale.physics.notation import parse_array
from dragonscale.physics.rooflines import array_bytes, symbol
from tests.book.casebook import Both, solves

EXACT = Options(exact=True)
H100 = load_chip("h100")
H100_NODE = Switches(8, H100.network.levels)
V, W, N, M, B = (symbol(name) for name in "VWNMB")


def flat(size: Any, bandwidth: Any = W, reduces: bool = False) -> Switches:
    """Chips (or nodes) on one tier of switches."""
    return Switches(size, (Level("network", 0, bandwidth, 0.0, reduces),))


def seconds(kind: str, volume: Any, group: Any, options: Options = BOOK) -> Any:
    return collective_time(kind, volume, group, options).bandwidth


def counting(expression: Any, *names: str) -> Any:
    """An expression in which some positive letters are known to be whole numbers, so that max(N, 1) is N."""
    whole = {symbol(name): sympy.Symbol(name, positive=True, integer=True) for name in names}
    back = {letter: plain for plain, letter in whole.items()}
    return sympy.simplify(expression.xreplace(whole).doit()).xreplace(back)


# Nodes and the network above them.


@solves("gpus.nvlink_table")
def nvlink(given: dict[str, Any]) -> dict[str, Any]:
    chips = {"ampere": "a100", "hopper": "h100", "blackwell": "b200"}
    nodes = {generation: node_tier(load_chip(name)) for generation, name in chips.items()}
    assert [node.child_links for node in nodes.values()] == given["ports"]
    assert [node.link / 1e9 for node in nodes.values()] == given["link_GBps"]
    return {generation: node.child_bandwidth for generation, node in nodes.items()}


@solves("gpus.q2_1_node_bandwidth")
def node_bandwidth(given: dict[str, Any]) -> dict[str, Any]:
    node = node_tier(H100, load_switch("nvswitch3"))
    assert (node.switch_bandwidth, node.child_bandwidth, node.chips) == tuple(given.values())
    limits = {"links": "GPU NVLink, not the switches", "switches": "the switches, not GPU NVLink"}
    return {"bandwidth": node.bandwidth, "limit": limits[node.limit]}


@solves("gpus.q2_2_bisection")
def bisection(given: dict[str, Any]) -> dict[str, Any]:
    node = node_tier(H100, load_switch("nvswitch3"))
    assert (node.chips, node.child_bandwidth) == (given["gpus"], given["gpu_egress"])
    return {"bandwidth": node.bisection()}


@solves("gpus.collective_bw_identity")
def bandwidth_from_bisection(given: dict[str, Any]) -> dict[str, Any]:
    node = node_tier(H100)
    assert node.bisection() == given["bisection"]
    assert egress_from_bisection(node.bisection(both_ways=False), given["N"]) == node.child_bandwidth
    return {"collective_bw": egress_from_bisection(node.bisection(both_ways=True), given["N"])}


@solves("gpus.ib_switch")
def infiniband_switch(given: dict[str, Any]) -> dict[str, Any]:
    switch = load_switch("ndr")
    assert (switch.ports, switch.link) == (given["ports"], given["link"])
    return {"bandwidth": switch.bandwidth, "vs_nvswitch": switch.bandwidth / load_switch("nvswitch3").bandwidth}


@solves("gpus.v5p_egress")
def v5p_egress(given: dict[str, Any]) -> dict[str, Any]:
    cube = parse_slice("v5p:4x4x4")
    links = links_of(cube, (0, 0, 0))
    assert (cube.chip.network.link, links) == (given["link"], given["links"])
    return {"egress": cube.chip.network.link * links}


@solves("gpus.gb200_node_egress")
def rack_egress(given: dict[str, Any]) -> dict[str, Any]:
    superpod = fat_tree(load_chip("gb200"), load_switch("ndr"), chips=576)
    assert f"4*{superpod.tier('leaf').child_links // 4}" == given["links"]
    assert superpod.full_bisection
    rack, node = load_chip("gb200").network.levels, H100.network.levels
    return {
        "egress": rack[1].bandwidth,
        "vs_h100": rack[1].bandwidth / node[1].bandwidth,
        "gpus_ratio": rack[0].degree / node[0].degree,
    }


@solves("gpus.node_h100", "gpus.node_b200", "gpus.node_gb200_nvl72")
def node_row(given: dict[str, Any]) -> dict[str, Any]:
    node, leaf, *_ = load_chip(given["node"].removesuffix("_nvl72")).network.levels
    return {"gpus": node.degree, "gpu_egress": node.bandwidth, "node_egress": leaf.bandwidth}


@solves("gpus.q3_1_fat_tree")
def superpod(given: dict[str, Any]) -> dict[str, Any]:
    tree = fat_tree(H100, load_switch("ndr"), chips=1024)
    leaf, spine = tree.tier("leaf"), tree.tier("spine")
    found = (leaf.child_links, leaf.switches, leaf.down, spine.total, cables_per_pair(tree))
    names = ("node_links", "leaf_switches", "leaf_down_ports", "spine_switches", "cables_per_leaf_spine")
    assert found == tuple(given[name] for name in names)
    return {
        "node_to_leaf": leaf.child_bandwidth,
        "leaf_switch_in": leaf.switch_bandwidth,
        "su_to_spine": spine.child_bandwidth,
        "spine_switch_total": spine.switch_bandwidth,
        "per_node": tree.per_node,
    }


@solves("gpus.q3_2_2048")
def superpod_2048(given: dict[str, Any]) -> dict[str, Any]:
    tree = fat_tree(H100, load_switch("ndr"), given["gpus"])
    assert tree.full_bisection
    return {
        "sus": tree.tier("leaf").groups,
        "spine": tree.tier("spine").total,
        "cables_per_pair": cables_per_pair(tree),
        "leaf_ports_used": ports_used(tree, "leaf"),
        "spine_ports_used": ports_used(tree, "spine"),
    }


@solves("gpus.q3_2_4096")
def superpod_4096(given: dict[str, Any]) -> dict[str, Any]:
    switch = load_switch("ndr")
    assert (switch.ports, switch.link) == (given["ports"], given["link"])
    needed = fat_tree(H100, switch, given["gpus"])
    built = fat_tree(H100, switch, given["gpus"], spines=given["spine"], cores=given["core"])
    return {"extra_level_needed": len(needed.tiers) > 3, "per_node": built.per_node}


@solves("gpus.appB_levels")
def tiers_of_the_superpod(_: dict[str, Any]) -> dict[str, Any]:
    tree = fat_tree(H100, load_switch("ndr"), chips=1024)
    tiers = {
        "node": node_tier(H100, load_switch("nvswitch3")),
        "su": tree.tier("leaf"),
        "spine": tree.tier("spine"),
    }
    answer: dict[str, Any] = {}
    for name, tier in tiers.items():
        answer |= {f"{name}_switch": tier.switch_bandwidth, f"{name}_link": tier.link_bandwidth}
        answer[f"per_gpu_{name}"] = tier.per_chip
    return answer


# Collectives within a node.


@solves("gpus.q2_3_allgather", "gpus.pq1_allgather")
def gather_in_a_node(given: dict[str, Any]) -> dict[str, Any]:
    quiz2 = "N" in given
    array = parse_array("bf16[I=4096_X, J=65536]" if quiz2 else "bf16[I=1024_X, J=16384]")
    volume = array_bytes(array, {dim.name: dim.size for dim in array.dims})
    assert (volume, H100_NODE.levels[0].bandwidth) == (given["bytes"], given["W"])
    times = {
        "t_exact": seconds("all_gather", volume, H100_NODE, EXACT),
        "t_approx": seconds("all_gather", volume, H100_NODE),
    }
    return times | ({"bytes": volume} if quiz2 else {})


@solves("gpus.tree_hops")
def hops_of_tree_and_ring(given: dict[str, Any]) -> dict[str, Any]:
    tree = Switches(given["N"], (Level("node", 0, 1.0, latency=1.0),))
    ring = Rings((Ring(given["N"]),), link=1.0, hop=1.0)
    return {
        "tree": collective_time("all_gather", 0.0, tree).latency,
        "ring": collective_time("all_gather", 0.0, ring, Options(one_way=True)).latency,
    }


@solves("gpus.a2a_vs_tpu")
def all_to_all_against_tpu(_: dict[str, Any]) -> dict[str, Any]:
    tpu = seconds("all_to_all", V, Rings((Ring(8),), link=W / 2))
    gpu = seconds("all_to_all", V, flat(8))
    return {"tpu": tpu, "gpu": gpu, "speedup": tpu / gpu}


@solves("gpus.ragged_a2a")
def ragged_all_to_all(given: dict[str, Any]) -> dict[str, Any]:
    k = symbol("k")
    fill = ragged_fill(k, N, random=False)
    dense = counting(seconds("all_to_all", V, flat(N), Options(filled=fill)), "N")
    sample = Options(filled=ragged_fill(given["k"], given["N"], random=False))
    few = ragged_fill(k, 8, random=False).replace(sympy.Min, lambda *parts: max(parts, key=lambda part: part.has(k)))
    return {
        "deterministic": Both(dense, seconds("all_to_all", given["V"], flat(given["N"], given["W"]), sample)),
        "random_approx": counting(seconds("all_to_all", V, flat(N), Options(exact=True, filled=fill)), "N"),
        "takeaway_8gpu": seconds("all_to_all", V, flat(8), Options(filled=few)),
    }


@solves("gpus.pq2_a2a")
def dense_and_sparse(given: dict[str, Any]) -> dict[str, Any]:
    half = Options(filled=ragged_fill(given["k"], given["N"], random=False))
    dense, sparse = (counting(seconds("all_to_all", V, flat(N), options), "N") for options in (Options(), half))
    return {
        "dense_exact": counting(seconds("all_to_all", V, flat(N), EXACT), "N"),
        "dense_approx": dense,
        "sparse": sparse,
        "sparse_ratio": sparse / dense,
    }


@solves("gpus.bus_bandwidth")
def nccl_bus_bandwidth(given: dict[str, Any]) -> dict[str, Any]:
    rate = symbol("algo_bw")
    formula = bus_bandwidth("all_reduce", V, N, V / rate)
    return {"bus_bw": Both(formula, bus_bandwidth("all_reduce", 1.0, given["N"], 1 / given["algo_bw"]))}


@solves("gpus.q4_2_sharp_bytes")
def sharp_bytes(given: dict[str, Any]) -> dict[str, Any]:
    formula = switch_traffic("all_reduce", B, (N,))
    value = switch_traffic("all_reduce", given["B"], (given["N"],))
    return {"ingress": Both(formula.ingress, value.ingress), "egress": Both(formula.egress, value.egress)}


# Collectives across nodes.


@solves("gpus.crossnode_ag")
def gather_across_nodes(given: dict[str, Any]) -> dict[str, Any]:
    levels = (Level("node", 8, symbol("W_gpu"), 0.0), Level("leaf", 0, symbol("W_node"), 0.0))
    cluster = Switches(1024, load_chip(given["node"]).network.levels)
    return {
        "t": Both(seconds("all_gather", V, Switches(1024, levels)), seconds("all_gather", given["V"], cluster)),
        "h100": seconds("all_gather", V, cluster),
    }


@solves("gpus.tree_ag_bandwidth")
def gather_up_the_tree(given: dict[str, Any]) -> dict[str, Any]:
    names = ("node", "leaf", "spine")
    levels = [Level(name, degree, rate, 0.0) for name, (degree, rate) in zip(names, given["levels"], strict=True)]
    group = Switches(1024, tuple(levels))
    rates = tier_bandwidths("all_gather", group, EXACT)
    overall = 1 / seconds("all_gather", 1.0, group, EXACT)
    return rates | {"overall": overall, "bottleneck": binding_tier("all_gather", group, EXACT)}


@solves("gpus.crossnode_sharp_bw")
def sharp_across_nodes(_: dict[str, Any]) -> dict[str, Any]:
    options = Options(exact=True, in_network=True)
    return {"bandwidth": 1 / seconds("all_reduce", 1.0, Switches(1024, H100.network.levels), options)}


@solves("gpus.crossnode_a2a")
def all_to_all_across_nodes(given: dict[str, Any]) -> dict[str, Any]:
    node = symbol("W_node")
    levels = (H100.network.levels[0], Level("leaf", 0, given["W_node"], 0.0))
    clusters = Switches(8 * numpy.array(given["M"]), levels)
    exact = seconds("all_to_all", given["V"], clusters, EXACT)
    approx = seconds("all_to_all", given["V"], clusters)
    (per_gpu,) = set(numpy.round(given["V"] / clusters.size / approx, 3).tolist())
    return {
        "exact": Both(counting(seconds("all_to_all", V, flat(M, node), EXACT), "M"), exact.tolist()),
        "approx": Both(counting(seconds("all_to_all", V, flat(M, node)), "M"), approx.tolist()),
        "effective_per_gpu": per_gpu,
    }


@solves("gpus.a2a_degradation")
def all_to_all_from_one_node_to_two(_: dict[str, Any]) -> dict[str, Any]:
    one, two = (seconds("all_to_all", 1.0, Switches(size, H100.network.levels), EXACT) for size in (8, 16))
    return {"factor": two / one}


@solves("gpus.sharded_reduction")
def sharded_reduction(given: dict[str, Any]) -> dict[str, Any]:
    y, size, node, leaf = symbol("Y"), symbol("D_node"), symbol("W_gpu"), symbol("W_node")
    levels = (Level("node", size, node, 0.0), Level("leaf", 0, leaf, 0.0))
    above = tier_seconds("all_gather", V / y, Switches(symbol("X"), levels, stride=y))["leaf"]
    stride = numpy.array(given["Y"])
    group = Switches(1024 // stride, load_chip(given["node"]).network.levels, stride)
    return {
        # min(Y, D)·max(Y, D) is Y·D: SymPy needs to be told.
        "t_scaleout": above.replace(sympy.Min, lambda *parts: y * size / sympy.Max(*parts)),
        "t": seconds("all_gather", given["V"] / stride, group).tolist(),
    }


@solves("gpus.q4_1_su_allgather_node_switch")
def node_switch_bytes(given: dict[str, Any]) -> dict[str, Any]:
    formula = switch_traffic("all_gather", B, (N, M), tier=0)
    value = switch_traffic("all_gather", given["B"], (given["N"], given["M"]), tier=0)
    return {
        "ingress": Both(sympy.simplify(formula.ingress), value.ingress),
        "egress": Both(sympy.simplify(formula.egress), value.egress),
        "t": value.egress / node_tier(H100).bandwidth,
    }


@solves("gpus.q4_5_two_node_allgather")
def gather_over_two_nodes(_: dict[str, Any]) -> dict[str, Any]:
    group = Switches(16, H100.network.levels)
    rates = tier_bandwidths("all_gather", group, EXACT)
    rounded = 1e9 * round(1 / seconds("all_gather", 1.0, group, EXACT) / 1e9)  # as the book prints it
    return {
        "node_level_bw": rates["node"],
        "leaf_level_bw": rates["leaf"],
        "bottleneck": binding_tier("all_gather", group, EXACT),
        "t": V / rounded,
    }
