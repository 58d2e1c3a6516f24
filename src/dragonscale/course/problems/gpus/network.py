"""Nodes and the switches above them."""

from dataclasses import replace

from dragonscale.course.closed_forms.networks import cables_per_pair
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.fat_tree import TreeSwitch, fat_tree, load_switch, node_tier

NVLINK = ("h100", "a100", "b200", "v100", "gb200", "h800", "b300")


@problem("gpus", "What NVLink lets out of a GPU", cases=("gpus.nvlink_table:hopper",), chip=NVLINK, gpus=(1, 2, 4, 8))
def nvlink_egress(chip: str, gpus: int) -> Posed | None:
    gpu = load_chip(chip)
    node = node_tier(gpu)
    if gpus > node.children:
        return None
    answer = gpus * node.child_bandwidth
    whose = "that GPU" if gpus == 1 else f"{gpus} such GPUs together"
    return Posed(
        ask=f"Each {gpu.title} has {node.child_links} NVLink links of {amount(node.link, 'bytes/s')} one way. What can "
        f"{whose} send at once, one way?",
        answer=answer,
        dimension="bytes/s",
        hints=("Links work side by side.", "bandwidth = GPUs · links · bytes/s of a link"),
        steps=(
            f"one GPU: {node.child_links} · {amount(node.link, 'bytes/s')} = {amount(node.child_bandwidth, 'bytes/s')}",
            f"times {gpus}: {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(2 * answer, "That is both directions together, as NVIDIA advertises it; a collective sends one way."),
            Trap(gpus * node.link, "That is one link of each GPU."),
        ),
        check=calc(f"{gpus} * {node.child_links} * {amount(node.link, 'bytes/s')}"),
    )


@problem(
    "gpus",
    "Bisection of a node",
    cases=("gpus.q2_2_bisection:bandwidth",),
    chip=("h100", "b200", "a100", "gb200", "h800"),
    ways=("both", "one"),
)
def node_bisection(chip: str, ways: str) -> Posed:
    gpu = load_chip(chip)
    node = node_tier(gpu)
    answer = node.bisection(both_ways=ways == "both")
    said = "in both directions together" if ways == "both" else "in one direction"
    return Posed(
        ask=f"A node has {node.children} GPUs behind NVSwitches that pass on whatever the GPUs send; each GPU sends "
        f"{amount(node.child_bandwidth, 'bytes/s')} one way. What is the bisection bandwidth of the node, {said}?",
        answer=answer,
        dimension="bytes/s",
        hints=("Half of the GPUs send to the other half.", "one way: GPUs / 2 · egress of a GPU"),
        steps=(
            f"{number(node.children / 2)} GPUs · {amount(node.child_bandwidth, 'bytes/s')} = "
            f"{amount(node.bisection(both_ways=False), 'bytes/s')} one way",
            f"{said}: {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(node.bisection(both_ways=ways != "both"), f"The question is {said}."),
            Trap(node.child_bandwidth, "That is one GPU."),
        ),
        check=calc(f"{node.children} / 2 * {amount(node.child_bandwidth, 'bytes/s')} * {2 if ways == 'both' else 1}"),
    )


@problem(
    "gpus",
    "A switch of many ports",
    cases=("gpus.ib_switch:bandwidth",),
    ports=(64, 32, 36, 40, 48, 72, 128, 144),
    gigabits=(400, 100, 200, 800),
)
def switch_capacity(ports: int, gigabits: int) -> Posed:
    switch = TreeSwitch("asked", "a switch", ports, gigabits * 1e9 / 8)
    answer = switch.bandwidth
    return Posed(
        ask=f"A network switch has {ports} ports of {gigabits} Gb/s each way. How many bytes a second can it pass on, one "
        "way?",
        answer=answer,
        dimension="bytes/s",
        hints=("Gb/s are bits.", "bandwidth = ports · Gb/s / 8"),
        steps=(
            f"one port: {gigabits} Gb/s / 8 = {amount(switch.link, 'bytes/s')}",
            f"{ports} · {amount(switch.link, 'bytes/s')} = {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(8 * answer, "Links are sold in bits; a byte is eight."),
            Trap(answer / 2, "A port in and a port out are both there: every port sends and receives at once."),
        ),
        check=calc(f"{ports} * {gigabits} Gb/s"),
    )


@problem(
    "gpus",
    "Spine switches of a fat tree",
    cases=("gpus.q3_2_2048:spine",),
    gpus=(2048, 128, 256, 512, 1024, 4096, 8192),
    ports=(64, 32, 128),
)
def spine_switches(gpus: int, ports: int) -> Posed | None:
    nodes, half = gpus // 8, ports // 2
    links = nodes * 8
    if links / half > ports:  # a spine reaches no more leaves than it has ports
        return None
    switch = replace(load_switch("ndr"), ports=ports)
    answer = fat_tree(load_chip("h100"), switch, gpus).tier("spine").total
    if answer != links / ports:
        return None
    return Posed(
        ask=f"{count(gpus)} H100s in nodes of 8; every node has 8 links of 400 Gb/s into leaf switches of {ports} ports, half "
        f"of them down to nodes and half up to spine switches of {ports} ports. How many spine switches give full bisection?",
        answer=answer,
        whole=True,
        hints=("As many cables must leave the leaves upwards as come in from the nodes.", "spines = nodes · 8 / ports"),
        steps=(
            f"{count(nodes)} nodes · 8 = {count(links)} cables into the leaves: {count(links / half)} leaf switches",
            f"as many go up: {count(links)} / {ports} ports = {count(answer)} spine switches",
        ),
        traps=(
            Trap(links / half, "Those are the leaf switches; a spine uses all of its ports downwards."),
            Trap(answer / 8, "Every GPU's share of the node counts: 8 links a node, not one."),
        ),
        check=f'dscale chips h100:{gpus} | grep -E "tier|spine"'
        if ports == 64 and gpus > 256
        else calc(f"{links} / {ports}"),
    )


@problem(
    "gpus",
    "A tree with fewer spines",
    cases=("gpus.q3_1_fat_tree:per_node",),
    gpus=(1024, 256, 512, 2048),
    spines=(16, 2, 4, 8, 32),
)
def thinner_spine(gpus: int, spines: int) -> Posed | None:
    h100, switch = load_chip("h100"), load_switch("ndr")
    full = fat_tree(h100, switch, gpus).tier("spine").total
    if spines > full:
        return None
    tree = fat_tree(h100, switch, gpus, spines=spines)
    answer, nodes = tree.per_node, gpus // 8
    each = spines * switch.bandwidth / nodes
    return Posed(
        ask=f"{count(gpus)} H100s in nodes of 8, each node with 8 links of 400 Gb/s (50 GB/s) into its leaf switches. Above "
        f"them are {spines} spine switches of 64 such ports, all used downwards. What can each node send through the spine, "
        "one way, when all do?",
        answer=answer,
        dimension="bytes/s",
        hints=("All spine ports together, shared by the nodes.", "min(8 · 50 GB/s, spines · 64 · 50 GB/s / nodes)"),
        steps=(
            f"the spine: {spines} · 64 · 50 GB/s = {amount(spines * switch.bandwidth, 'bytes/s')}",
            f"over {count(nodes)} nodes: {amount(each, 'bytes/s')}; a node's own links carry 400GB/s",
            f"the smaller: {amount(answer, 'bytes/s')}",
        ),
        traps=(
            Trap(answer / 8, "That is one GPU's share; the question is the node's."),
            Trap(spines * switch.bandwidth, "That is the whole spine, shared by all nodes."),
        ),
        check=calc(f"tree_bandwidth(h100, {gpus}, spines={spines})"),
    )


@problem(
    "gpus",
    "Cables between a leaf and a spine",
    cases=("gpus.q3_2_2048:cables_per_pair",),
    gpus=(2048, 256, 512, 1024),
    ports=(64, 32, 128),
)
def cables_between(gpus: int, ports: int) -> Posed | None:
    tree = fat_tree(load_chip("h100"), replace(load_switch("ndr"), ports=ports), gpus)
    if len(tree.tiers) > 3:
        return None
    spine, leaf = tree.tier("spine"), tree.tier("leaf")
    answer = cables_per_pair(tree)
    if answer != int(answer) or leaf.up * 2 != ports:
        return None
    return Posed(
        ask=f"{count(gpus)} H100s hang on {count(leaf.total)} leaf switches of {ports} ports, half of them up to "
        f"{count(spine.total)} spine switches, equally many cables to each. How many cables join one leaf with one spine?",
        answer=answer,
        whole=True,
        hints=("A leaf deals its upward ports out to all spines.", "cables = ports / 2 / spines"),
        steps=(
            f"{ports} / 2 = {ports // 2} cables leave a leaf upwards",
            f"{ports // 2} / {count(spine.total)} spines = {count(answer)}",
        ),
        traps=(
            Trap(2 * answer, "Half of a leaf's ports go down to the nodes."),
            Trap(float(leaf.total), "Those are the leaves."),
        ),
        check=calc(f"{ports} / 2 / {spine.total}"),
    )


@problem(
    "gpus",
    "What leaves a rack",
    cases=("gpus.gb200_node_egress:egress",),
    trays=(18, 9, 12, 16, 36),
    nics=(4, 2, 8),
    gigabits=(400, 200, 800),
)
def rack_egress(trays: int, nics: int, gigabits: int) -> Posed:
    switch = TreeSwitch("asked", "a switch", 64, gigabits * 1e9 / 8)
    tree = fat_tree(load_chip("gb200"), switch, 144, node_links=trays * nics)
    leaf = tree.tier("leaf")
    answer = leaf.child_links * leaf.link
    return Posed(
        ask=f"A rack of {4 * trays} GPUs in one NVLink domain has {trays} trays with {nics} network cards of {gigabits} Gb/s "
        "each. How many bytes a second can the rack send into the network, one way?",
        answer=answer,
        dimension="bytes/s",
        hints=("Every card sends at once; Gb/s are bits.", "egress = trays · cards · Gb/s / 8"),
        steps=(
            f"{trays} · {nics} = {trays * nics} cards of {amount(switch.link, 'bytes/s')}",
            f"{trays * nics} · {amount(switch.link, 'bytes/s')} = {amount(answer, 'bytes/s')}; an H100 node of 8 has "
            "400GB/s",
        ),
        traps=(
            Trap(8 * answer, "Links are sold in bits; a byte is eight."),
            Trap(answer / trays, "That is one tray."),
        ),
        check=calc(f"{trays} * {nics} * {gigabits} Gb/s"),
    )
