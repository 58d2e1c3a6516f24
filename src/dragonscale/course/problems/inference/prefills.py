"""Problems on FLOPs of a forward pass: a token of an MoE, a prompt."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS
from dragonscale.course.words import amount, count, number
from dragonscale.models import forward_flops, load_model
from dragonscale.models.flops import Workload
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines.counts import model_flops


@problem(
    "inference",
    "FLOPs of a token through an MoE",
    cases=("inference.q5_4_moe_flops",),
    active=(31.2e9, 12.9e9, 37e9, 5.1e9, 22e9, 3.3e9),
    tokens=(1, 512, 2048, 4096),
)
def flops_of_experts(active: float, tokens: int) -> Posed:
    answer = float(model_flops(active, tokens, training=False))
    said = "one token" if tokens == 1 else f"a prompt of {count(tokens)} tokens"
    return Posed(
        ask=f"An MoE uses {amount(active, 'count')} of its parameters for a token. How many FLOPs does a forward pass "
        f"of {said} take, "
        "attention's dot products left out?",
        answer=answer,
        dimension="FLOP",
        hints=("Only the parameters that a token uses count.", "2·P_active·T."),
        steps=(
            "a multiply-add for each parameter that is used: 2 FLOPs",
            f"2·{number(active)}·{tokens} = {amount(answer, 'FLOP')}",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(answer * 3, "6·P·T is training: forward and backward."),
        ),
        check=f'dscale calc "2 FLOP * {active:g} * {tokens}"',
    )


@problem(
    "inference",
    "How long a prompt takes",
    model=("llama3-70b", "llama3-8b", "llama2-13b", "llama3.1-405b", "qwen2.5-72b"),
    tokens=(8192, 1024, 2048, 4096, 32768),
    chip=CHIPS,
    chips=(16, 4, 8, 32),
    mfu=(0.4, 0.3, 0.5, 0.6),
)
def time_of_a_prefill(model: str, tokens: int, chip: str, chips: int, mfu: float) -> Posed:
    machine, sections = load_chip(chip), load_model(model).program().sections
    flops = forward_flops(sections, Workload(1, tokens, tokens))
    dots = float(flops["scores"])
    linear = float(sum(flops.values())) - dots - float(flops.get("head", 0.0))
    rate = chips * machine.peak() * mfu
    answer = (linear + dots) / rate
    active = linear / (2 * tokens)
    return Posed(
        ask=f"{model}'s layers have {amount(active, 'count')} parameters; causal attention adds {amount(dots, 'FLOP')} "
        "of dot products to a "
        f"prompt of {count(tokens)} tokens. {chips} {chip} of {amount(machine.peak(), 'FLOP/s')} run it at "
        f"{mfu:.0%} of their bf16 peak. How "
        "long does the prefill take?",
        answer=answer,
        dimension="s",
        hints=("FLOPs of the layers' matmuls and of the dot products, over the rate.", "(2·P·T + dots) / (N·C·MFU)."),
        steps=(
            f"matmuls: 2·{number(active)}·{count(tokens)} = {amount(linear, 'FLOP')}",
            f"rate: {chips}·{number(machine.peak())}·{mfu:g} = {amount(rate, 'FLOP/s')}",
            f"({amount(linear, 'FLOP')} + {amount(dots, 'FLOP')}) / {amount(rate, 'FLOP/s')} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer * mfu, f"The chips reach {mfu:.0%} of their peak."),
            Trap(answer * 3, "6·P·T is training; a forward pass is 2·P·T."),
        ),
        check=f'dscale calc "(2 FLOP*{active:.6g}*{tokens} + {dots:.6g} FLOP) / ({chips} * {chip}.bf16 * {mfu:g})"',
    )
