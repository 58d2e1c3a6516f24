"""What goes from stage to stage, and what makes stages uneven."""

from dragonscale.course.closed_forms.pipelined import pipeline_hops, pipeline_time
from dragonscale.course.closed_forms.switched import dp_tokens
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.chips import book_chip
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.models import parameters, simple
from dragonscale.physics.collectives import Switches
from dragonscale.physics.hardware.chip import Level
from dragonscale.training.stages import chunk_sizes


@problem(
    "pipelines",
    "Activations from stage to stage",
    cases=("gpus.pp_comms:t_total",),
    tokens=(4e6, 1e6, 2e6, 8e6, 16e6),
    d=(8192, 4096, 6144, 16384),
    gigabytes=(400, 50, 100, 200),
    pieces=(28, 8, 16, 32, 64),
    stages=(16, 4, 8),
)
def sends_of_a_pass(tokens: float, d: int, gigabytes: int, pieces: int, stages: int) -> Posed:
    wires = Switches(2, (Level("network", 0, gigabytes * 1e9, 0.0),))
    hop, total = pipeline_time(2 * tokens * d, pieces, stages, wires)
    hops, answer = pipeline_hops(pieces, stages), total.bandwidth
    return Posed(
        ask=f"{number(tokens / 1e6)}M tokens of width {count(d)} in bf16 pass a pipeline of {stages} stages in {pieces} "
        f"microbatches; neighbouring stages send {gigabytes} GB/s one way. Along the critical path the first microbatch crosses "
        "every border, and the others follow it one by one. How long do these sends take in one pass, one after the other?",
        answer=answer,
        dimension="s",
        hints=("How long is one send, and how many follow each other?", "2·B·D/(W·M) · (M + P − 2)"),
        steps=(
            f"one send: 2 · {number(tokens)} · {d} / {pieces} / {gigabytes}e9 = {amount(hop.bandwidth, 's')}",
            f"{pieces} − 1 + {stages} − 1 = {hops} sends: {amount(answer, 's')}",
        ),
        traps=(
            Trap(hop.bandwidth, "That is one send."),
            Trap(
                hop.bandwidth * pieces * (stages - 1), "Borders send at the same time; only the critical path counts."
            ),
            Trap(answer / 2, "bf16 is two bytes."),
        ),
        check=calc(f"2 bytes * {tokens:g} * {d} / ({gigabytes}GB/s * {pieces}) * pipeline_hops({pieces}, {stages})"),
    )


@problem(
    "pipelines",
    "Layers that do not divide",
    cases=(),
    layers=(61, 30, 48, 62, 80, 94, 126),
    stages=(16, 4, 6, 8, 12),
)
def uneven_stages(layers: int, stages: int) -> Posed | None:
    sizes = chunk_sizes(layers, stages)
    if layers % stages == 0:
        return None
    answer = max(sizes) * stages / layers
    return Posed(
        ask=f"{layers} equal layers are dealt to {stages} pipeline stages as evenly as whole layers go. The slowest stage sets the "
        "pace. By which factor is each microbatch slower than if layers could be cut anywhere?",
        answer=answer,
        hints=("How many layers has the fullest stage?", "ceil(L/P) · P / L"),
        steps=(
            f"{layers} / {stages} = {number(layers / stages)} layers on average; the fullest stage has {max(sizes)}",
            f"{max(sizes)} / {number(layers / stages)} = {number(answer)}",
        ),
        traps=(
            Trap(1 / answer, "That is the part in which the average stage works."),
            Trap(max(sizes) / min(sizes), "Compare with the average stage, not with the emptiest."),
        ),
        check=calc(f"ceil({layers} / {stages}) * {stages} / {layers}"),
        tolerance=0.005,
    )


@problem(
    "pipelines",
    "The stage with the head",
    cases=(),
    d=(8192, 4096, 5120, 16384),
    f=(28672, 14336, 25600, 53248),
    vocab=(128256, 32000, 152064, 256000),
    kv=(1024, 512),
)
def layers_worth_of_head(d: int, f: int, vocab: int, kv: int) -> Posed:
    model = simple(d_model=d, d_ff=f, n_layers=1, n_heads=d // 128, n_kv_heads=kv // 128, head_dim=128, vocab=vocab)
    counts = parameters(model.program().sections, active=True)
    layer = counts["mlp"] + counts["attention"]
    answer = d * vocab / layer
    return Posed(
        ask=f"A layer has a gated MLP (3·D·F) and attention (2·D² for queries and output, 2·D·{count(kv)} for keys and values) with "
        f"D = {count(d)}, F = {count(f)}; the head multiplies D by a vocabulary of {count(vocab)}. Dot products of attention left "
        "out, how many layers is the head worth in the FLOPs of the last stage?",
        answer=answer,
        hints=("FLOPs of matmuls go as their parameters.", "D·V / (3·D·F + 2·D² + 2·D·K·H)"),
        steps=(
            f"a layer: {number(layer / 1e6)}M parameters; the head: {number(d * vocab / 1e6)}M",
            f"{number(d * vocab / 1e6)} / {number(layer / 1e6)} = {number(answer)}",
        ),
        traps=(
            Trap(2 * answer, "The embedding is a lookup, no matmul, and lies on the first stage."),
            Trap(d * vocab / (layer - d * f), "A gated MLP has three matrices."),
        ),
        check=calc(f"D={d}; {vocab} / (3*{f} + 2*D + 2*{kv})"),
    )


@problem(
    "pipelines",
    "Stages and the traffic of gradients",
    cases=("gpus.ex_llama3:dp_cost_reduction",),
    stages=(16, 2, 4, 8, 32),
    tensor=(8, 16),
)
def gradients_of_a_stage(stages: int, tensor: int) -> Posed:
    chip = book_chip("h100")
    answer = dp_tokens(chip, 16384, split=tensor) / dp_tokens(chip, 16384, split=tensor * stages)
    return Posed(
        ask=f"16,384 H100s in nodes of 8 train with TP={tensor}, pure data parallelism and {stages} pipeline stages, each stage on "
        "nodes of its own. By which factor does each GPU need fewer tokens to hide its gradients between nodes than with the same "
        "TP and no pipeline?",
        answer=answer,
        hints=(
            "How many nodes carry the gradients of one copy of the model?",
            "C / (W_node · TP·PP/8): the factor is PP",
        ),
        steps=(
            f"without stages: {number(dp_tokens(chip, 16384, split=tensor))} tokens for each GPU",
            f"with {stages}: {number(dp_tokens(chip, 16384, split=tensor * stages))}; {number(answer)} times fewer",
        ),
        traps=(
            Trap(answer * tensor, "TP is there in both; only the stages are new."),
            Trap(1 / answer, "More nodes to a copy mean fewer tokens."),
        ),
        check=calc(f"dp_tokens(h100, 16384, split={tensor}) / dp_tokens(h100, 16384, split={tensor * stages})"),
    )
