"""Runs that were published, on the back of an envelope."""

from dragonscale.course.closed_forms.rules_of_thumb import state_bytes
from dragonscale.course.closed_forms.switched import dp_tokens
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.chips import book_chip, source_of
from dragonscale.course.problems.commands import calc
from dragonscale.course.problems.gpus.parallelism import rates
from dragonscale.course.words import amount, count, number
from dragonscale.physics.sharding.mesh import Mesh


@problem(
    "gpus",
    "Tokens for each GPU of a run",
    cases=("gpus.ex_deepseek:tokens_per_gpu",),
    experts=(64, 8, 16, 32),
    stages=(16, 4, 8),
    replicas=(2, 4, 8, 16),
    sequences=(15360, 1920, 3840, 7680),
)
def tokens_of_a_gpu(experts: int, stages: int, replicas: int, sequences: int) -> Posed:
    mesh = Mesh({"X": replicas, "P": stages, "Y": experts}, book_chip("h100"))
    tokens = sequences * 4096
    answer = tokens / mesh.chips
    return Posed(
        ask=f"A run has EP={experts}, {stages} pipeline stages and {replicas} replicas of that, and steps of {count(sequences)} "
        "sequences of 4,096 tokens. How many tokens of a step are there for each GPU?",
        answer=answer,
        hints=("How many GPUs, how many tokens?", "tokens = sequences · length / (EP · PP · DP)"),
        steps=(
            f"GPUs: {experts} · {stages} · {replicas} = {count(mesh.chips)}",
            f"tokens: {count(sequences)} · 4,096 = {count(tokens)}",
            f"{count(tokens)} / {count(mesh.chips)} = {number(answer)}",
        ),
        traps=(
            Trap(tokens / (mesh.chips / stages), "Stages of a pipeline are GPUs too."),
            Trap(sequences / mesh.chips, "Those are sequences."),
        ),
        check=calc(f"{sequences} * 4096 / ({experts} * {stages} * {replicas})"),
    )


@problem(
    "gpus",
    "Is this run bound by its gradients?",
    cases=("gpus.q5_3_bounds:70B",),
    tensor=(8, 4),
    stages=(2, 1, 4, 8),
    gpus=(768, 384, 1536, 3072, 6144, 12288),
    sequences=(384, 96, 192, 768, 1536),
)
def bound_by_gradients(tensor: int, stages: int, gpus: int, sequences: int) -> Posed | None:
    chip, split = book_chip("h100"), tensor * stages
    needed, given = dp_tokens(chip, gpus, split=split), sequences * 4096 / gpus
    if not (given > 1.3 * needed or given < needed / 1.3):
        return None
    nodes, (peak, leaf) = max(1, split / 8), rates("h100", 1)
    return Posed(
        ask=f"{count(gpus)} H100s ({amount(peak, 'FLOP/s')} in bf16, {amount(leaf, 'bytes/s')} out of a node of 8) train a model with TP={tensor} and "
        f"{stages} pipeline stage{'s' if stages > 1 else ''} and steps of {sequences} sequences of 4,096 tokens; the rest is "
        "data parallelism. Does compute bind the backward pass, or the reduction of gradients between nodes (comms)?",
        answer="compute" if given > needed else "comms",
        hints=(
            "Compare the tokens of a step for each GPU with what data parallelism needs.",
            "needed: C / (W_node · max(1, TP·PP/8)) tokens for each GPU, `dp_tokens` of `dscale calc`",
        ),
        steps=(
            f"there are {sequences} · 4096 / {count(gpus)} = {number(given)} tokens for each GPU",
            f"needed: {number(peak)} / ({number(nodes)} · {number(leaf)}) = {number(needed)}",
            f"{number(given)} is {'more' if given > needed else 'less'}, so "
            f"{'compute binds' if given > needed else 'the gradients bind'}.",
        ),
        options=("compute", "comms"),
        check=calc(
            f"{sequences} * 4096 / {gpus} {'>' if given > needed else '<'} dp_tokens(h100, {gpus}, split={split})",
            source_of("h100"),
        ),
    )


@problem(
    "gpus",
    "What tensor parallelism leaves on a GPU",
    cases=("gpus.q5_2c_dp_memory:bytes_per_gpu",),
    billions=(70, 13, 34, 123, 180, 405),
    tensor=(8, 2, 4, 16),
    each=(10, 12, 16, 18),
)
def state_beside_tensor_parallelism(billions: int, tensor: int, each: int) -> Posed:
    more = {10: (), 12: ("bf16",), 16: ("bf16", "fp32"), 18: ("fp32", "fp32")}[each]
    answer = state_bytes(billions * 1e9, "bf16", ("fp32", "fp32"), *more) / tensor
    hold = book_chip("h100").hbm.capacity
    return Posed(
        ask=f"A model of {billions}B parameters takes {each} bytes of training state a parameter. It is split by TP={tensor}; "
        "the rest of the cluster is pure data parallelism, which copies everything. How many bytes of state does each GPU "
        "hold?",
        answer=answer,
        dimension="bytes",
        hints=("Only tensor parallelism splits the state here.", "bytes = parameters · bytes of a parameter / TP"),
        steps=(
            f"{billions}e9 · {each} = {amount(billions * 1e9 * each, 'bytes')}",
            f"/ {tensor} = {amount(answer, 'bytes')}, {'more than' if answer > hold else 'within'} the {amount(hold, 'bytes')} of an H100",
        ),
        traps=(
            Trap(answer * tensor, "Tensor parallelism splits weights and their state."),
            Trap(billions * 2e9 / tensor, "Those are the bf16 weights alone."),
        ),
        check=calc(f"{billions}e9 * {each} bytes / {tensor}"),
    )
