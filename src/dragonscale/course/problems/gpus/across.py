"""Collectives across nodes."""

from dragonscale.course.closed_forms.networks import binding_tier, tier_bandwidths
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.physics.collectives import Switches, collective_time
from dragonscale.physics.collectives.cost import BOOK, EXACT
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.chip import Level

CLUSTERS = ("h100", "b200", "a100", "h200")


def tiers(chip: str) -> tuple[Level, ...]:
    """The tiers of switches above a chip."""
    return load_chip(chip).network.levels  # pyright: ignore[reportAttributeAccessIssue]


def told_tiers(chip: str) -> str:
    """Where a question says how fast each tier is."""
    node, leaf, *_ = tiers(chip)
    return (
        f"A GPU sends {amount(node.bandwidth, 'bytes/s')} inside its node of {node.degree}, a node "
        f"{amount(leaf.bandwidth, 'bytes/s')} into the leaf switches; the spine is not the limit"
    )


@problem(
    "gpus",
    "How fast an AllGather runs on several nodes",
    cases=("gpus.q4_5_two_node_allgather:node_level_bw",),
    chip=CLUSTERS,
    nodes=(2, 3, 4, 6, 8, 12, 16, 32),
)
def gather_across_nodes(chip: str, nodes: int) -> Posed:
    levels = tiers(chip)
    node, leaf, *_ = levels
    group = Switches(node.degree * nodes, levels)
    rates = tier_bandwidths("all_gather", group, EXACT)
    answer = min(rates.values())
    below, size = binding_tier("all_gather", group, EXACT), node.degree
    return Posed(
        ask=f"{told_tiers(chip)}. At how many bytes of the whole array a second does an AllGather over all GPUs of {nodes} "
        "nodes run at best, counted exactly at both tiers (a child does not receive its own part)?",
        answer=answer,
        dimension="bytes/s",
        hints=(
            "Each tier alone: V · (children − 1)/children over the link of one child; the slower one binds.",
            "min(W_gpu · 8/7, W_node · M/(M − 1))",
        ),
        steps=(
            f"inside a node: {amount(node.bandwidth, 'bytes/s')} · {size}/{size - 1} = {amount(rates['node'], 'bytes/s')}",
            f"between nodes: {amount(leaf.bandwidth, 'bytes/s')} · {nodes}/{nodes - 1} = {amount(rates['leaf'], 'bytes/s')}",
            f"The {below} tier binds: {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(max(rates.values()), "That is the faster of the two tiers; the slower one binds."),
            Trap(min(node.bandwidth, leaf.bandwidth) / size, "A node's links are shared by its GPUs, but each byte of the "
                 "array enters the node only once."),
        ),
        check=f"dscale collective all_gather 1GB --on {chip}:{size * nodes} | grep -E 'tier|node |leaf |algorithm'",
        tolerance=0.01,
    )  # fmt: skip


@problem(
    "gpus",
    "An AllToAll over many nodes",
    cases=(),
    chip=CLUSTERS,
    nodes=(4, 2, 8, 16, 32),
    megabytes=(64, 128, 256, 512, 1024),
)
def all_to_all_across_nodes(chip: str, nodes: int, megabytes: int) -> Posed:
    levels = tiers(chip)
    leaf = levels[1]
    volume, group = megabytes * 1e6, Switches(8 * nodes, levels)
    answer = collective_time("all_to_all", volume, group, EXACT).bandwidth
    first = collective_time("all_to_all", volume, group, BOOK).bandwidth
    return Posed(
        ask=f"{told_tiers(chip)}. {count(megabytes)} MB lie evenly over {nodes} nodes, and an AllToAll sends equal pieces from "
        "every GPU to every other. How long does it take at best, counted exactly and without latency?",
        answer=answer,
        dimension="s",
        hints=(
            "What leaves each node?",
            "T = V/M · (M − 1)/M / W_node: each node holds V/M and keeps 1/M of that",
        ),
        steps=(
            f"each node holds {amount(volume / nodes, 'bytes')} and sends {nodes - 1}/{nodes} of it: "
            f"{amount(volume * (nodes - 1) / nodes**2, 'bytes')}",
            f"over {amount(leaf.bandwidth, 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(volume / leaf.bandwidth, "That is an AllGather; here each byte goes to one place."),
            *(
                (Trap(first, "V/(M·W) holds for many nodes; here a good part stays in its node."),)
                if nodes <= 8
                else ()
            ),
        ),
        check=f"dscale collective all_to_all {megabytes}MB --on {chip}:{8 * nodes} | grep -E '^bandwidth|^book'",
    )


@problem(
    "gpus",
    "An AllToAll that leaves its node",
    cases=("gpus.a2a_degradation:factor",),
    chip=CLUSTERS,
    nodes=(2, 3, 4, 6, 8, 16),
)
def slower_beyond_the_node(chip: str, nodes: int) -> Posed:
    levels = tiers(chip)
    node, leaf = levels[0].bandwidth, levels[1].bandwidth
    one, more = (collective_time("all_to_all", 1.0, Switches(size, levels), EXACT).bandwidth for size in (8, 8 * nodes))
    rough = collective_time("all_to_all", 1.0, Switches(8 * nodes, levels), BOOK).bandwidth
    answer = more / one
    return Posed(
        ask=f"{told_tiers(chip)}. By which factor does an AllToAll of V bytes in all get slower when the same V bytes lie over "
        f"{nodes} nodes instead of one (both counted exactly, without latency)?",
        answer=answer,
        hints=(
            "One node: each GPU sends 7/8 of its V/8.",
            f"(V/M · (M − 1)/M / W_node) / (V/8 · 7/8 / W_gpu) with M = {nodes}",
        ),
        steps=(
            f"one node: V · 7/64 / {number(node)} = V · {number(one)} s/byte",
            f"{nodes} nodes: V · {nodes - 1}/{nodes**2} / {number(leaf)} = V · {number(more)} s/byte",
            f"{number(more)} / {number(one)} = {number(answer, 3)}",
        ),
        traps=(
            Trap(rough / (1 / (8 * node)), "That takes the forms for many nodes, V/(M·W), on both sides."),
            Trap(node / leaf, "The links alone do not say it: how much of the array crosses them differs."),
        ),
        check=calc(f"(1/{nodes} * {nodes - 1}/{nodes} / {leaf:g}) / (1/8 * 7/8 / {node:g})"),
    )  # fmt: skip


@problem(
    "gpus",
    "Gathering what another axis splits",
    cases=(),
    chip=("h100", "b200", "h200"),
    other=(64, 1, 2, 4, 8, 16, 32),
    megabytes=(400, 100, 800, 1600),
)
def gather_of_a_split_array(chip: str, other: int, megabytes: int) -> Posed:
    levels = tiers(chip)
    volume, leaf = megabytes * 1e6, levels[1].bandwidth
    group = Switches(1024 // other, levels, other)
    answer = collective_time("all_gather", volume / other, group).bandwidth
    part = "" if other == 1 else f" Its other dim is split over Y = {other} neighbouring GPUs."
    return Posed(
        ask=f"{told_tiers(chip)}. An array of {count(megabytes)} MB in all is gathered over X on 1,024 GPUs, X = "
        f"{1024 // other}.{part} All groups gather at the same time. How long does it take to first order (V/W, without "
        "(N − 1)/N or latency)?",
        answer=answer,
        dimension="s",
        hints=(
            "How many bytes must enter one node?",
            "T = max(V/W_gpu / min(Y, 8), V/W_node · 8/max(8, Y))",
        ),
        steps=(
            f"with Y = {other}, the GPUs of a node together receive "
            + ("the whole array" if other <= 8 else f"8/{other} of the array")
            + f": {amount(volume * 8 / max(8, other), 'bytes')}",
            f"over {amount(leaf, 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            *((Trap(volume / leaf, "Splitting beyond a node divides what each node must receive."),) if other > 8 else ()),
            *((Trap(volume / other / leaf, "The groups of one node share its links, so up to 8 ways nothing is gained."),)
              if other > 1 else ()),
            Trap(8 * answer, "A node's GPUs send together: the node's bandwidth counts, not one GPU's share of it."),
        ),
        check=f"dscale collective all_gather {megabytes / other:g}MB --on {chip}:1024 --mesh X={1024 // other},Y={other} --axis X "
        "| grep -E '^bandwidth|^book'",
    )  # fmt: skip
