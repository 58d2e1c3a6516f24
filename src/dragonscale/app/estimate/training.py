"""The lines of a training run: FLOPs, days and dollars, the state, the activations, the chips that hold them.

Bytes of state for a parameter are conventions, and each line says its own:

- 10: bf16 weights and two fp32 moments of Adam, as the book counts.
- 16: bf16 weights and gradients beside fp32 master weights and moments (Rajbhandari et al. 2020,
  ZeRO, arXiv:1910.02054, section 3.1); also fp32 weights, gradients and moments, as FSDP keeps them.
- 18: the same with fp32 gradients, as Megatron-LM accumulates them (Korthikanti et al. 2022,
  arXiv:2205.05198, and its distributed optimizer).
"""

from dataclasses import replace
from typing import Any

from dragonscale.app.estimate.paper import Paper, Parts
from dragonscale.app.estimate.question import EstimateAsked
from dragonscale.course.closed_forms.rules_of_thumb import run_cost, run_seconds, state_bytes
from dragonscale.models.activations import activation_bytes
from dragonscale.models.flops import Workload, training_flops
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines.counts import model_flops
from dragonscale.training.budget import chinchilla_tokens

TRAINING_MEMORY = "training memory"
MOMENTS = ("fp32", "fp32")
STATES: dict[int, tuple[str, tuple[str, ...]]] = {
    10: ("bf16", ()),
    16: ("bf16", ("fp32", "bf16")),
    18: ("bf16", ("fp32", "fp32")),
}
"""By bytes a parameter: the format of the weights, and of what there is beside two fp32 moments
(master weights, gradients)."""
SAID = (
    "State for a parameter: 10 bytes are bf16 weights and fp32 moments of Adam; 16 add bf16 gradients and an fp32 "
    "master copy (or are fp32 weights, gradients and moments); 18 have fp32 gradients beside the master copy."
)
STATE = 16
"""The convention that chips are counted by."""
KEPT = {"no recompute": "none", "selective recompute": "selective", "full recompute": "block"}


def write_run(asked: EstimateAsked, paper: Paper) -> None:
    """FLOPs of the run; with a chip its time and its price."""
    paper.group = "training run"
    total, active = letters_of(asked, paper)
    paper.write("Chinchilla tokens", chinchilla_tokens(total), "count")
    tokens = paper.let("tokens", asked.tokens)
    dense = paper.write("training FLOPs (6ND)", model_flops(active, tokens), "FLOP")
    attention = 0.0
    if asked.model is not None:
        seq = paper.let("T", asked.seq)
        attention = paper.count(
            "attention FLOPs",
            asked.model.program().sections,
            lambda every: scores(training_flops(every, Workload(1, seq, seq)), tokens / seq),
            "FLOP",
            "F",
        )
    if asked.chip is None:
        return
    flops, chips, peak = paper.let("FLOPs", dense + attention), chips_of(asked, paper), peak_of(asked, paper)
    mfu = paper.let("mfu", asked.mfu)
    if asked.piece is not None:
        paper.write("run time", run_seconds(flops, chips, peak, mfu), "s")
    alone = run_seconds(flops, 1, peak, mfu)
    paper.write("chip-hours", alone / 3600, "count")
    if asked.chip.price is not None:
        price = paper.let("price", asked.chip.price)
        paper.write("cost of the run", run_cost(1, alone, price), "USD")


def write_state(asked: EstimateAsked, paper: Paper) -> None:
    """What training must hold, and the fewest chips that do."""
    paper.group = TRAINING_MEMORY
    total, _ = letters_of(asked, paper)
    held: dict[int, float] = {}
    for each, (weights, more) in STATES.items():
        size = state_bytes(total, weights, MOMENTS, *more)
        held[each] = paper.write(f"state, {each} bytes a parameter", size, "bytes")
    if asked.model is not None:
        blocks = asked.model.program().sections[1:-1]
        for name, policy in KEPT.items():
            paper.count(
                f"activations a token, {name}",
                blocks,
                lambda every, policy=policy: activation_bytes(every, Workload(1, 1, 1), policy),
                "bytes",
                policy,
            )
    if asked.chip is not None:
        state = paper.let("state", held[STATE])
        paper.write(
            f"fewest chips for {STATE} bytes a parameter", chips_to_hold(held_by(asked.chip, paper), state), "count"
        )


def scores(flops: Parts, times: Number) -> Parts:
    """The FLOPs of what mixes tokens alone."""
    return {"scores": flops.get("scores", 0) * times}


def letters_of(asked: EstimateAsked, paper: Paper) -> tuple[Any, Any]:
    """P, the parameters, and those that a token uses, under a name of their own where they are fewer."""
    total = paper.let("P", asked.total)
    return total, total if asked.active == asked.total else paper.let("P_active", asked.active)


def chips_of(asked: EstimateAsked, paper: Paper) -> Any:
    """The chips of the slice."""
    return 1 if asked.piece is None else paper.let("chips", asked.piece.chips)


def peak_of(asked: EstimateAsked, paper: Paper) -> Any:
    """C, the peak of the format that is multiplied."""
    assert asked.chip is not None
    return paper.let("C", asked.chip.peak(asked.question.dtype))


def held_by(chip: Chip, paper: Paper) -> Any:
    """The chip with a letter for its memory."""
    capacity: Any = paper.let("HBM", chip.hbm.capacity)
    return replace(chip, memory=chip.memory | {"hbm": replace(chip.hbm, capacity=capacity)})
