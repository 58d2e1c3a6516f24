"""What the ranks of a pipeline hold: activations in flight, weights, optimizer state."""

from dragonscale.course.closed_forms.rules_of_thumb import stage_utilisation, state_bytes
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.words import amount, count, number
from dragonscale.training.stages import held_microbatches

NAMES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "ZB-H1",
    "dualpipe": "DualPipe",
}


@problem(
    "pipelines",
    "Activations in flight",
    cases=(),
    schedule=("1f1b", "gpipe", "interleaved", "zb-h1", "dualpipe"),
    stages=(8, 4, 16),
    pieces=(64, 32, 128),
    virtual=(1, 2, 4),
    gigabytes=(2.5, 0.8, 1.2, 4.0),
)
def activations_in_flight(schedule: str, stages: int, pieces: int, virtual: int, gigabytes: float) -> Posed | None:
    if (virtual > 1) != (schedule == "interleaved"):
        return None
    held = held_microbatches(schedule, stages, virtual, pieces)
    answer = held * gigabytes * 1e9
    formula = {"1f1b": "P", "gpipe": "M", "interleaved": "P + (P − 1)/v", "zb-h1": "P", "dualpipe": "P + 1"}[schedule]
    chunks = f" with {virtual} chunks on each rank" if virtual > 1 else ""
    other = "gpipe" if schedule != "gpipe" else "1f1b"
    return Posed(
        ask=f"A pipeline of {stages} ranks runs {pieces} microbatches under {NAMES[schedule]}{chunks}. One microbatch leaves "
        f"{number(gigabytes)} GB of activations in all layers of a rank, kept until its backward pass. How many bytes does the first "
        "rank hold at most?",
        answer=answer,
        dimension="bytes",
        hints=("How many microbatches are on their way at once, as the first rank sees it?", f"held = {formula}"),
        steps=(
            f"{NAMES[schedule]} holds {formula} = {number(held)} microbatches",
            f"{number(held)} · {number(gigabytes)} GB = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(held_microbatches(other, stages, 1, pieces) * gigabytes * 1e9, f"That is {NAMES[other]}."),
            Trap(gigabytes * 1e9, "That is one microbatch."),
        ),
        check=f"dscale calc \"held_microbatches('{schedule}', {stages}, {virtual}, {pieces}) * {gigabytes:g}GB\"",
    )


@problem(
    "pipelines",
    "State on each GPU",
    cases=(),
    billions=(405, 70, 123, 175, 340),
    tensor=(8, 4, 2),
    stages=(16, 4, 8, 12),
    replicas=(128, 8, 16, 32, 64),
)
def state_of_a_rank(billions: int, tensor: int, stages: int, replicas: int) -> Posed:
    held, sharded = 2.0 + 2.0, 12.0
    params = billions * 1e9 / (tensor * stages)
    whole = state_bytes(params, "bf16", ("fp32", "fp32"), "bf16", "fp32")
    answer = params * (held + sharded / replicas)
    return Posed(
        ask=f"A model of {billions}B parameters is trained with TP={tensor}, {stages} pipeline stages and {replicas} replicas under "
        "ZeRO-1: bf16 weights and gradients (2 + 2 bytes a parameter) on every replica, the fp32 master copy and the two moments "
        "(12 bytes) shared out over the replicas. How many bytes of that does each GPU hold?",
        answer=answer,
        dimension="bytes",
        hints=("TP and PP split parameters; replicas split the optimizer only.", "P/(TP·PP) · (4 + 12/DP)"),
        steps=(
            f"parameters of a GPU: {billions}e9 / ({tensor} · {stages}) = {number(params / 1e9)}e9",
            f"· (4 + 12/{replicas}) = {amount(answer, 'bytes')}; without ZeRO {amount(whole, 'bytes')}",
        ),
        traps=(
            Trap(whole, "ZeRO-1 shares the optimizer's state out over the replicas."),
            Trap(whole / replicas, "ZeRO-1 shards neither weights nor gradients."),
        ),
        check=calc(f"{billions}e9 / ({tensor} * {stages}) * (4 + 12/{replicas}) * 1 byte"),
    )


@problem(
    "pipelines",
    "Sequences that fill a pipeline",
    cases=(),
    batch=(2048, 512, 1024, 1536, 4096),
    replicas=(128, 8, 16, 32, 64),
    size=(1, 2, 4),
    stages=(16, 4, 8),
)
def microbatches_of_a_replica(batch: int, replicas: int, size: int, stages: int) -> Posed | None:
    pieces = batch / replicas / size
    if pieces != int(pieces) or pieces < 1:
        return None
    answer = 1 - stage_utilisation(stages, pieces)
    return Posed(
        ask=f"A step has {count(batch)} sequences for {replicas} replicas, each a pipeline of {stages} stages that takes {size} "
        f"sequence{'s' if size > 1 else ''} at once. Which part of the step is the bubble of 1F1B (a number between 0 and 1)?",
        answer=answer,
        hints=("How many microbatches does one replica have?", "M = sequences / replicas / size; (P − 1)/(M + P − 1)"),
        steps=(
            f"M = {count(batch)} / {replicas} / {size} = {count(pieces)}",
            f"{stages - 1} / ({count(pieces)} + {stages - 1}) = {number(answer)}",
        ),
        traps=(
            Trap((stages - 1) / (batch + stages - 1), "The sequences are shared by the replicas."),
            Trap((stages - 1) / pieces, "That is the bubble over the work, not over the step."),
        ),
        check=calc(f"1 - stage_utilisation({stages}, {pieces:g})"),
        tolerance=0.01,
    )
