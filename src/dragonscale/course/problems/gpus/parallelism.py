"""Where data, tensor and expert parallelism turn bound by the network under switches."""

from dragonscale.course.closed_forms.switched import dp_tokens, ep_width, tp_ways
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.chips import book_chip, source_of
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number

CLUSTERS = ("h100", "b200", "a100", "h200", "b300")


def rates(name: str, tier: int) -> tuple[float, float]:
    """The peak in bf16 and what one child of a tier sends: a GPU (0) or a node (1)."""
    chip = book_chip(name)
    return float(chip.peak("bf16")), float(chip.network.levels[tier].bandwidth)  # pyright: ignore[reportAttributeAccessIssue]


@problem(
    "gpus",
    "Data parallelism inside a node",
    cases=("gpus.dp_intra_node:B_per_gpu",),
    chip=CLUSTERS,
    adds=(False, True),
)
def dp_inside_a_node(chip: str, adds: bool) -> Posed:
    peak, width = rates(chip, 0)
    answer = dp_tokens(book_chip(chip), 8, in_network=adds)
    how = "The switches add (SHARP), so an AllReduce takes V/W" if adds else "An AllReduce of V bytes takes 2V/W"
    return Posed(
        ask=f"The weights of a layer are copied on the 8 GPUs of a node, each with {amount(peak, 'FLOP/s')} in bf16 and "
        f"{amount(width, 'bytes/s')} to the others. In the backward pass each GPU does 4 FLOPs for each token and parameter, "
        f"and bf16 gradients are AllReduced. {how}. From how many tokens for each GPU on does that hide under compute?",
        answer=answer,
        hints=(
            "Compare, for one parameter, the FLOPs of the tokens with the 2 bytes of its gradient.",
            f"4 · tokens / C = {'1' if adds else '2'} · 2 / W",
        ),
        steps=(
            f"compute: 4 · tokens / {number(peak)}; AllReduce: {2 if adds else 4} / {number(width)}",
            f"tokens = {'C / (2·W)' if adds else 'C / W'} = {number(answer)}",
        ),
        traps=(
            Trap(answer * (2 if adds else 0.5), "That is the other kind of AllReduce."),
            Trap(answer * 8, "That is the node; the question is one GPU."),
        ),
        check=calc(f"dp_tokens({chip}, gpus=8{', in_network=True' if adds else ''})", source_of(chip)),
    )


@problem(
    "gpus",
    "Data parallelism across nodes",
    cases=("gpus.dp_cross_node:B_per_gpu",),
    chip=("h100", "b200", "a100", "h200", "b300", "gb200"),
    gpus=(1024, 144, 256, 512, 2048, 4608),
)
def dp_across_nodes(chip: str, gpus: int) -> Posed | None:
    peak, width = rates(chip, 1)
    node = book_chip(chip).network.levels[0]  # pyright: ignore[reportAttributeAccessIssue]
    if gpus % node.degree or gpus <= node.degree:
        return None
    answer = dp_tokens(book_chip(chip), gpus)
    inside = peak / node.bandwidth
    slower = min(width, node.bandwidth)
    return Posed(
        ask=f"{count(gpus)} GPUs in nodes of {node.degree} train by data parallelism alone. A GPU does {amount(peak, 'FLOP/s')} "
        f"in bf16 and sends {amount(node.bandwidth, 'bytes/s')} inside its node; a node sends {amount(width, 'bytes/s')} to "
        "others. To first order an AllReduce of V bytes takes 2V over the slower of the two. From how many tokens for each "
        "GPU on do bf16 gradients hide under the backward pass (4 FLOPs a token and parameter)?",
        answer=answer,
        hints=("Which of the two is slower?", "tokens = C / min(W_gpu, W_node)"),
        steps=(
            f"the slower: {amount(slower, 'bytes/s')}",
            f"{number(peak)} / {number(slower)} = {number(answer)}",
        ),
        traps=(
            *((Trap(inside, "That is the bound inside a node; across nodes the network is slower."),)
              if width < node.bandwidth else ()),
            Trap(answer * node.degree, "The GPUs of a node reduce together, so the node's whole bandwidth serves each byte "
                 "once."),
        ),
        check=calc(f"dp_tokens({chip}, gpus={gpus})", source_of(chip)),
    )  # fmt: skip


@problem(
    "gpus",
    "Data parallelism beside model parallelism",
    cases=("gpus.q5_2c_pp:B_crit",),
    chip=("h100", "b200", "h200", "a100"),
    tensor=(8, 4, 2),
    stages=(8, 1, 2, 4, 16),
)
def dp_beside_a_split_model(chip: str, tensor: int, stages: int) -> Posed:
    split = tensor * stages
    peak, width = rates(chip, 1)
    answer = dp_tokens(book_chip(chip), 4096, split=split)
    alone = dp_tokens(book_chip(chip), 4096)
    return Posed(
        ask=f"4,096 GPUs in nodes of 8 (a node sends {amount(width, 'bytes/s')}, a GPU does {amount(peak, 'FLOP/s')} in bf16). "
        f"One copy of the model lies over {split} neighbouring GPUs (TP={tensor}, {stages} pipeline stage"
        f"{'s' if stages > 1 else ''}); the rest is data parallelism. To first order, from how many tokens for each GPU on do "
        "the gradients hide under the backward pass? The network between nodes is the limit.",
        answer=answer,
        hints=(
            "Each GPU reduces only its part of the gradients; how many nodes carry one copy's traffic?",
            "tokens = C / (W_node · max(1, TP·PP / 8))",
        ),
        steps=(
            f"one copy spans {number(max(1, split / 8))} node{'s' if split > 8 else ''}: "
            f"{amount(width * max(1, split / 8), 'bytes/s')} for its gradients",
            f"{number(peak)} / {number(width * max(1, split / 8))} = {number(answer)} tokens for each GPU",
        ),
        traps=(
            *((Trap(alone, "A copy over several nodes has the links of all of them."),) if split > 8 else ()),
            *((Trap(alone / split, "GPUs of one node share its links: only whole nodes add bandwidth."),)),
        ),
        check=calc(f"dp_tokens({chip}, gpus=4096, split={split})", source_of(chip)),
    )


@problem(
    "gpus",
    "A batch for a whole cluster",
    cases=("gpus.dp_llama3:tokens",),
    chip=("h100", "b200", "a100", "h200"),
    gpus=(16000, 1024, 2048, 4096, 8192, 24576),
)
def batch_for_a_cluster(chip: str, gpus: int) -> Posed:
    peak, width = rates(chip, 1)
    each = dp_tokens(book_chip(chip), gpus)
    answer = each * gpus
    return Posed(
        ask=f"{count(gpus)} GPUs of {amount(peak, 'FLOP/s')} (bf16) in nodes of 8 that send {amount(width, 'bytes/s')} each "
        "train by data parallelism or FSDP alone. To first order, how many tokens must one batch have so that compute binds?",
        answer=answer,
        hints=("First the tokens for one GPU, C/W.", "batch = GPUs · C / W_node"),
        steps=(
            f"one GPU: {number(peak)} / {number(width)} = {number(each)} tokens",
            f"{count(gpus)} · {number(each)} = {number(answer / 1e6)}M tokens",
        ),
        traps=(
            Trap(answer / 8, "C/W is for each GPU, not for each node."),
            Trap(each, "That is one GPU."),
        ),
        check=calc(f"{gpus} * dp_tokens({chip}, gpus={gpus})", source_of(chip)),
    )


@problem(
    "gpus",
    "The most tensor parallelism that hides",
    cases=("gpus.tp_rule:Y_max_intra", "gpus.q5_2c_max_tp:Y_max"),
    chip=("h100", "b200", "a100", "h200"),
    width=(28672, 14336, 16384, 20480, 24576, 53248),
    tier=("node", "leaf"),
)
def most_tensor_parallelism(chip: str, width: int, tier: str) -> Posed:
    peak, rate = rates(chip, 0 if tier == "node" else 1)
    answer = tp_ways(book_chip(chip), width, tier)
    where = "inside a node, a GPU" if tier == "node" else "over nodes, a node"
    return Posed(
        ask=f"A layer of two matmuls, D·F and F·D with F = {count(width)}, is split Y ways over F. A GPU does "
        f"{amount(peak, 'FLOP/s')} in bf16; {where} sends {amount(rate, 'bytes/s')}. The forward pass of B tokens gathers "
        "2BD bytes and scatters 2BD bytes, to first order 4BD/W. Up to which Y (not rounded) does compute bind?",
        answer=answer,
        hints=("Each GPU computes 4BDF/Y FLOPs.", "4·B·D·F / (Y·C) = 4·B·D / W, so Y = F·W / C"),
        steps=(
            f"C / W = {number(peak)} / {number(rate)} = {number(peak / rate)}",
            f"Y = {count(width)} / {number(peak / rate)} = {number(answer)}",
        ),
        traps=(
            Trap(peak / rate, "That is C/W; divide F by it."),
            Trap(2 * answer, "Both the gather and the scatter take time: 4BD bytes in all."),
        ),
        check=calc(f"tp_ways({chip}, {width}, '{tier}')", source_of(chip)),
    )


@problem(
    "gpus",
    "Tensor parallelism over exactly two nodes",
    cases=("gpus.tp_llama3:Y_two_node",),
    chip=("h100", "b200", "a100", "h200"),
    width=(28000, 14336, 16384, 20480, 24576, 53248),
)
def tensor_over_two_nodes(chip: str, width: int) -> Posed:
    peak, rate = rates(chip, 1)
    answer = tp_ways(book_chip(chip), width, "leaf", exact=True)
    rough = tp_ways(book_chip(chip), width, "leaf")
    return Posed(
        ask=f"A layer of two matmuls with F = {count(width)} is split Y ways over F, over Y/8 nodes of 8. A GPU does "
        f"{amount(peak, 'FLOP/s')} in bf16, a node sends {amount(rate, 'bytes/s')}, and only what crosses nodes counts. "
        "Counted exactly, a gather or scatter of V bytes over M nodes takes V·(M − 1)/M over that. Up to which Y (not "
        "rounded) does compute bind?",
        answer=answer,
        hints=("Put M = Y/8 into (M − 1)/M.", "4·F / (Y·C) = 4·(Y − 8) / (Y·W), so Y = F·W/C + 8"),
        steps=(
            f"F·W/C = {count(width)} · {number(rate)} / {number(peak)} = {number(rough)}",
            f"Y = {number(rough)} + 8 = {number(answer)}",
        ),
        traps=(
            Trap(rough, "That is to first order, V/W; over two nodes only half of the bytes cross."),
            Trap(2 * rough, "Halving the bytes is right for two nodes only; (M − 1)/M depends on Y."),
        ),
        check=calc(f"{width} * {rate:g} / {peak:g} + 8"),
        tolerance=0.01,
    )


@problem(
    "gpus",
    "Experts wide enough for many nodes",
    cases=("gpus.ep_threshold_h100:F_min",),
    chip=("h100", "b200", "a100", "h200", "b300", "gb200"),
    dtype=("bf16", "fp8"),
)
def width_for_many_nodes(chip: str, dtype: str) -> Posed | None:
    gpu = book_chip(chip)
    if dtype not in gpu.matrix:
        return None
    node, leaf, *_ = gpu.network.levels  # pyright: ignore[reportAttributeAccessIssue]
    peak, answer = gpu.peak(dtype), ep_width(gpu, dtype=dtype)
    return Posed(
        ask=f"Whole experts of two matmuls (D·F, F·D) are spread over far more nodes than a token has experts, so each token is "
        f"sent once, as 2D bytes, to each of its k experts and back. A node has {node.degree} GPUs of {amount(peak, 'FLOP/s')} "
        f"in {dtype} and sends {amount(leaf.bandwidth, 'bytes/s')}. Above which hidden width F does compute bind?",
        answer=answer,
        hints=(
            "For one token and one expert: 4·D·F FLOPs against 2·D bytes there and 2·D back, over what one GPU has of the "
            "node's bandwidth.",
            "F = GPUs of a node · C / W_node",
        ),
        steps=(
            f"C / W_node = {number(peak)} / {number(leaf.bandwidth)} = {number(peak / leaf.bandwidth)}",
            f"{node.degree} · {number(peak / leaf.bandwidth)} = {number(answer)}",
        ),
        traps=(
            Trap(answer / node.degree, "The node's bandwidth is shared by all of its GPUs."),
            Trap(2 * answer, "Tokens travel there and back: 4D bytes against 4DF FLOPs."),
        ),
        check=calc(f"{node.degree} * {amount(peak, 'FLOP/s')} / {amount(leaf.bandwidth, 'bytes/s')}"),
    )


@problem(
    "gpus",
    "Experts over a few nodes",
    cases=(),
    chip=("h100", "b200", "h200", "a100"),
    nodes=(2, 3, 4, 5, 6, 8),
    picks=(8, 4, 6, 10),
)
def width_for_few_nodes(chip: str, nodes: int, picks: int) -> Posed | None:
    if picks < nodes:
        return None
    peak, rate = rates(chip, 1)
    ways = 8 * nodes
    answer = ep_width(book_chip(chip), ways, picks)
    return Posed(
        ask=f"Experts of two matmuls (D·F, F·D) are spread over Z = {ways} GPUs in {nodes} nodes of 8. Each token has "
        f"{picks} experts and is sent once to every node (some expert of it is on each), 2D bytes there and back. A GPU does "
        f"{amount(peak, 'FLOP/s')} in bf16, a node sends {amount(rate, 'bytes/s')}. Counted exactly, above which F does "
        "compute bind?",
        answer=answer,
        hints=(
            "An AllToAll of copies to M nodes moves 2·B·D·(M − 1)/M bytes in and out of each node.",
            "F = C/W · (Z − 8) / k",
        ),
        steps=(
            f"compute: 4·B·k·D·F / (Z·C); AllToAlls: 4·B·D·(M − 1)/M / W with M = {nodes}",
            f"F = {number(peak / rate)} · ({ways} − 8) / {picks} = {number(answer)}",
        ),
        traps=(
            Trap(ep_width(book_chip(chip)), "That is the bound for many more nodes than experts of a token."),
            Trap(peak / rate * ways / picks, "A node keeps its own share: (M − 1)/M."),
        ),
        check=calc(f"ep_width({chip}, ways={ways}, picks={picks})", source_of(chip)),
    )
