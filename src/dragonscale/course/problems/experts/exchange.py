"""How tokens reach their experts, and how long that takes."""

from dragonscale.course.closed_forms.switched import ep_width
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.problems.gpus.across import tiers
from dragonscale.course.words import amount, count, number
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.cost import ragged_fill, wire_bytes
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.chip import dtype_bytes


@problem(
    "experts",
    "Bytes that a GPU dispatches",
    cases=(),
    tokens=(4096, 1024, 2048, 8192, 16384),
    d=(7168, 2048, 4096, 6144),
    picks=(8, 2, 4, 6),
    ways=(64, 8, 16, 32, 128),
    dtype=("bf16", "fp8"),
)
def dispatched_bytes(tokens: int, d: int, picks: int, ways: int, dtype: str) -> Posed:
    row = d * dtype_bytes(dtype)
    answer = wire_bytes("all_to_all", ways * tokens * picks * row, ways)
    return Posed(
        ask=f"Each of {ways} GPUs has {count(tokens)} tokens of width {count(d)} and sends every token, in {dtype}, once for "
        f"each of its {picks} experts; experts lie evenly over the {ways} GPUs. How many bytes does one GPU send in the dispatch "
        "(a row for an expert of its own stays)?",
        answer=answer,
        dimension="bytes",
        hints=("Rows times bytes of a row, less what stays.", "tokens · k · D · bytes · (Z − 1)/Z"),
        steps=(
            f"rows: {count(tokens)} · {picks} = {count(tokens * picks)}, each {d} · {number(dtype_bytes(dtype))} = "
            f"{count(row)} bytes",
            f"{ways - 1}/{ways} of them leave: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / picks, f"Every token is sent {picks} times, once for each expert."),
            Trap(
                answer * (0.5 if dtype == "bf16" else 2),
                f"An element of {dtype} has {number(dtype_bytes(dtype))} bytes.",
            ),
            *(
                (Trap(answer * ways / (ways - 1), "What goes to an expert of the same GPU stays."),)
                if ways <= 16
                else ()
            ),
        ),
        check=calc(f"{tokens} * {picks} * {d} * {dtype_bytes(dtype):g} bytes * {ways - 1}/{ways}"),
    )


@problem(
    "experts",
    "How long a dispatch takes",
    cases=(),
    chip=("h100", "b200", "h200", "a100"),
    tokens=(4096, 1024, 2048, 8192),
    d=(7168, 2048, 4096, 6144),
    picks=(8, 2, 4, 6),
    nodes=(8, 2, 4, 16),
)
def dispatch_time(chip: str, tokens: int, d: int, picks: int, nodes: int) -> Posed:
    levels = tiers(chip)
    leaf, size = levels[1], 8 * nodes
    fill = ragged_fill(picks, nodes)
    # One copy of a token for each node: an array of so many rows, of which `fill` are not empty.
    volume = nodes * tokens * size * d * 2
    answer = collective_time("all_to_all", volume, Switches(size, levels), Options(exact=True, filled=fill)).bandwidth
    every = tokens * 8 * picks * d * 2 * (nodes - 1) / nodes / leaf.bandwidth
    return Posed(
        ask=f"{size} GPUs in {nodes} nodes of 8, each with {count(tokens)} tokens of width {count(d)} in bf16. Each token picks "
        f"{picks} experts at random over all nodes and is sent once to every node that has one of them; a node sends "
        f"{amount(leaf.bandwidth, 'bytes/s')}. How long does the dispatch take between nodes at best?",
        answer=answer,
        dimension="s",
        hints=(
            "A node misses all k picks with a chance of ((M − 1)/M)^k.",
            "tokens of a node · 2D · (M − 1) · (1 − ((M − 1)/M)^k) / W_node",
        ),
        steps=(
            f"a token needs a given node with a chance of 1 − ({nodes - 1}/{nodes})^{picks} = {number(fill)}",
            f"a node has 8 · {count(tokens)} tokens of {2 * d} bytes; to the {nodes - 1} other{'s' if nodes > 2 else ''} it sends "
            f"{amount(answer * leaf.bandwidth, 'bytes')}",
            f"over {amount(leaf.bandwidth, 'bytes/s')}: {amount(answer, 's')}",
        ),
        traps=(
            Trap(every, "That sends a token once for each expert; those on one node share a copy."),
            Trap(answer / 8, "Eight GPUs share the node's links."),
        ),
        check=calc(
            f"8*{tokens} * 2 bytes*{d} * {nodes - 1} * ragged_fill({picks}, {nodes}) / {amount(leaf.bandwidth, 'bytes/s')}"
        ),
    )


@problem(
    "experts",
    "Experts inside one node",
    cases=(),
    chip=("h100", "b200", "a100", "h200", "b300"),
    matrices=(3, 2),
    dtype=("bf16", "fp8"),
)
def width_inside_a_node(chip: str, matrices: int, dtype: str) -> Posed | None:
    gpu = load_chip(chip)
    if dtype not in gpu.matrix:
        return None
    node = tiers(chip)[0]
    peak = gpu.peak(dtype)
    # Rows of one expert, D = 1: what a row costs to send there and back, and to multiply.
    sent = 2 * 2 * collective_time("all_to_all", 8.0, Switches(8, tiers(chip))).bandwidth
    answer = sent * peak / (2 * matrices)
    return Posed(
        ask=f"Experts of {matrices} matrices D·F lie over the 8 GPUs of a node. A GPU multiplies {amount(peak, 'FLOP/s')} in "
        f"{dtype} and sends {amount(node.bandwidth, 'bytes/s')}; each row travels to its expert and back as 2D bytes, to first "
        "order all of them over the wire. From which hidden width F on do the AllToAlls hide under the matmuls of the forward "
        "pass?",
        answer=answer,
        hints=(
            f"For one row: 2·{matrices}·D·F FLOPs against 4·D bytes.",
            f"2·{matrices}·F / C = 4 / W, so F = {number(2 / matrices)}·C/W",
        ),
        steps=(
            f"C / W = {number(peak)} / {number(node.bandwidth)} = {number(peak / node.bandwidth)}",
            f"F = 4 / (2·{matrices}) · {number(peak / node.bandwidth)} = {number(answer)}",
        ),
        traps=(
            Trap(answer / 2, "Rows come back too: 4D bytes each."),
            Trap(ep_width(gpu, dtype=dtype), "That is the bound across many nodes; NVLink is faster."),
        ),
        check=calc(f"4 / (2*{matrices}) * {chip}.{dtype} / {amount(node.bandwidth, 'bytes/s')}"),
    )


@problem(
    "experts",
    "Nodes that a token visits",
    cases=(),
    picks=(8, 2, 4, 6, 10, 16),
    nodes=(8, 2, 3, 4, 6, 12, 16, 32),
)
def nodes_a_token_visits(picks: int, nodes: int) -> Posed:
    answer = nodes * ragged_fill(picks, nodes)
    return Posed(
        ask=f"A token picks {picks} experts; experts lie evenly over {nodes} nodes, and each pick falls on any node with the same "
        "chance, independently. On how many different nodes do its experts lie on average?",
        answer=answer,
        hints=("What is the chance that a node has none of them?", "M · (1 − ((M − 1)/M)^k)"),
        steps=(
            f"a node has none with a chance of ({nodes - 1}/{nodes})^{picks} = {number(1 - answer / nodes)}",
            f"{nodes} · (1 − {number(1 - answer / nodes)}) = {number(answer)}",
        ),
        traps=(
            Trap(float(min(picks, nodes)), "Some picks fall on the same node."),
            Trap(answer / nodes, "That is the share of the nodes."),
        ),
        check=calc(f"{nodes} * ragged_fill({picks}, {nodes})"),
        tolerance=0.01,
    )
