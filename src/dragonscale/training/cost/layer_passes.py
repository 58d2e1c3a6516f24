"""The forward and backward passes of every section under a plan: sums of its lines, copies of weights and gradients,
and what recomputation adds. One policy is put together at a time; layers under two policies are the mean of both."""

from dataclasses import dataclass
from typing import Any

from dragonscale.physics.numbers import Number, where
from dragonscale.training.cost.overlap import (
    LayerPass,
    LayerRun,
    SectionSums,
    StateMoves,
    backward_pass,
    forward_pass,
    sum_lines,
)
from dragonscale.training.memory.peak_memory import WEIGHT_BYTES
from dragonscale.training.memory.section_memory import SectionMemory
from dragonscale.training.plan.plan import Plan, layer_policies, layers_of
from dragonscale.training.plan.setting import PassLine, Setting
from dragonscale.training.plan.stack import Stack
from dragonscale.training.plan.stages import BOTH_WAYS, StageLayers, share_of_layers

# Bytes moved to take one bf16 weight out of the stack of layers that a scan goes through: read and written.
UNSTACKED_BYTES = 4.0

Passes = tuple[dict[str, LayerPass], dict[str, LayerPass]]
"""The forward and the backward pass of every section."""


@dataclass(frozen=True)
class StepParts:
    """What a step is made of: by section its sums, its memory and its passes; and how the layers lie on the ranks."""

    sums: dict[str, SectionSums]
    memory: dict[str, SectionMemory]
    layers: StageLayers
    microbatches: Number
    forward: dict[str, LayerPass]
    backward: dict[str, LayerPass]


def mixed_passes(setting: Setting, layers: StageLayers, degrees: dict[str, Any], passes: list[Passes]) -> Passes:
    """The passes of a plan from those under each of its remat policies; of layers under two policies, the mean."""
    if len(passes) == 1:
        return passes[0]
    (forward, backward), (other_forward, other_backward) = passes
    _, share = rerun_policy(setting, layers, degrees)
    return (
        {name: run.mixed(other_forward[name], share) for name, run in forward.items()},
        {name: run.mixed(other_backward[name], share) for name, run in backward.items()},
    )


def rerun_policy(setting: Setting, layers: StageLayers, degrees: dict[str, Any]) -> tuple[str, Number]:
    """The remat policy of the layers that run again, and their share of all layers."""
    *first, last = layer_policies(setting.plan.remat)
    return last, share_of_layers(setting.plan.remat, layers.fullest, degrees) if first else 1.0


def layer_passes(
    setting: Setting,
    sums: dict[str, SectionSums],
    memory: dict[str, SectionMemory],
    pipe: Number,
    microbatches: Number,
) -> Passes:
    """The expected passes of every section; only blocks are recomputed."""
    plan, stack, timer = setting.plan, setting.stack, setting.timer
    assert timer is not None
    forward: dict[str, LayerPass] = {}
    backward: dict[str, LayerPass] = {}
    two_way: Number = False
    if plan.schedule in BOTH_WAYS:
        two_way = pipe > 1
    state_moves = moves_of_state(plan, stack, pipe, microbatches)
    caching = stack.memory.allocator == "caching"
    for name, section_sums in sums.items():
        section, is_block = memory[name], "block" in name
        # A program that XLA compiles casts weights at every use; others copy what they gather, where anything is. A
        # frozen weight needs no cast under XLA, but is taken out of the stack of layers.
        copied_where, frozen_copy = 1.0, min(stack.state.weight_copies, UNSTACKED_BYTES)
        if caching:
            copied_where, frozen_copy = section.sharded, stack.state.weight_copies / 2
        weights = section.used * stack.state.weight_copies / 2 + section.frozen * frozen_copy
        copies = timer.copy(copied_where * weights * (plan.zero == 3))
        accumulation = timer.copy(section.used * accumulated_bytes(stack, microbatches))
        remat, saved_copies, offloads = "none", 0.0, False
        if is_block:  # layers are scanned
            remat = plan.remat
            copies = copies + stack.host.layer_s
            saved_copies = timer.copy(section.activations * stack.memory.kept_moves / 2)
            offloads = remat == "offload" or layers_of(plan.offload) > 0
        run = LayerRun(section_sums, stack, remat, plan.ring, two_way, state_moves, offloads)
        # Quantized weights are written out in bf16 for each use; recomputation uses them once more.
        dequantized = timer.copy(section.quantized * (setting.tuning.frozen_bytes + WEIGHT_BYTES))
        backward_uses = 2.0 if remat in ("block", "offload") else 1.0
        # Forward passes of a reference or a teacher save nothing; the trained model's one pass does.
        forward_passes = 1 + setting.tuning.passes
        forward[name] = forward_pass(run, copies + saved_copies / forward_passes + dequantized)
        if forward_passes > 1:
            forward[name] = forward[name].repeated(forward_passes)
        backward_copies = copies + saved_copies + accumulation + backward_uses * dequantized
        backward[name] = backward_pass(run, reduced_each_microbatch(plan), backward_copies)
    return forward, backward


def accumulated_bytes(stack: Stack, microbatches: Number) -> Number:
    """Bytes moved per weight and microbatch to accumulate gradients."""
    further = stack.state.accumulate_more
    if not further:
        return stack.state.accumulate
    return stack.state.accumulate + where(microbatches > 1, further, 0.0)


def moves_of_state(plan: Plan, stack: Stack, pipe: Number, microbatches: Number) -> StateMoves:
    """How often weights are gathered and gradients scattered. Under a pipeline some stacks keep weights gathered, and
    gradients whole, for the whole step; ZeRO-2 with interleaving scatters a chunk's gradients once a round of the ranks
    (Llama 3's trainer: Chu et al., ISCA 2025)."""
    if stack.memory.pipe_whole and plan.zero >= 2:
        once_a_step = where(pipe > 1, 1 / microbatches, 1.0)
        return StateMoves(once_a_step, once_a_step)
    if plan.zero == 2 and plan.schedule == "interleaved" and not stack.state.sums_everywhere:
        return StateMoves(1.0, where(pipe > 1, 1 / pipe, 1.0))
    return StateMoves()


def reduced_each_microbatch(plan: Plan) -> tuple[str, ...]:
    """Buckets of gradients that travel with every microbatch: ZeRO-3 and ZeRO-2 scatter them as they are computed. The
    sum over replicas is made once a step (XLA takes it out of the loop over microbatches, too)."""
    return ("scatter",) if plan.zero >= 2 else ()


def bound_passes(sums: dict[str, SectionSums], plan: Plan, further_passes: float = 0.0) -> Passes:
    """The passes at best: kernels at their bound, everything else hidden. `further_passes` run forward alone."""
    forward: dict[str, LayerPass] = {}
    backward: dict[str, LayerPass] = {}
    for name, section_sums in sums.items():
        remat = plan.remat if "block" in name else "none"
        kernels = section_sums.total("kernels", "forward") * (1 + further_passes)
        forward[name] = LayerPass(kernels, 0.0, 0.0, 0.0, 0.0, {})
        wgrad = section_sums.total("kernels", "wgrad")
        rerun = section_sums.rerun.get(("kernels", remat), 0.0)
        backward[name] = LayerPass(section_sums.total("kernels", "dgrad", "wgrad"), rerun, wgrad, 0.0, 0.0, {})
    return forward, backward


def sums_by_section(setting: Setting, lines: dict[str, list[PassLine]], quantity: str) -> dict[str, SectionSums]:
    """The sums of every section's lines under the plan's remat policies."""
    sums: dict[str, SectionSums] = {}
    for section in setting.sections:
        policies = layer_policies(setting.plan.remat) if "block" in section.name else ("none",)
        reading = setting.reading(section)
        sums[section.name] = sum_lines(lines[section.name], reading, setting.stack, policies, quantity)
    return sums
