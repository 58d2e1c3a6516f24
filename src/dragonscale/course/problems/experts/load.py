"""Routers that are not even: the busiest chip, capacity, dropped rows, and what a chip holds."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.commands import calc
from dragonscale.course.problems.experts.weights import MODELS, counted, experts_of
from dragonscale.course.words import amount, count, number
from dragonscale.physics.kernels.routing import route
from dragonscale.training.expert_load import chip_load, dropped_share


@problem(
    "experts",
    "The busiest chip",
    cases=(),
    skew=(2.0, 1.2, 1.3, 1.5, 1.8, 2.5, 3.0),
    experts=(64, 16, 32, 128, 256),
    held=(8, 2, 4, 16),
)
def busiest_chip(skew: float, experts: int, held: int) -> Posed | None:
    if held * 2 > experts:
        return None
    answer = chip_load(skew, experts, held)
    part = ((experts - held) / (held * (experts - 1))) ** 0.5
    return Posed(
        ask=f"The busiest of {experts} experts gets {number(skew)} times the mean of tokens. Loads are taken as independent, so the "
        "mean of g of E experts lies √((E − g)/(g·(E − 1))) as far from even as one expert does. Each chip holds "
        f"{held} experts. How many times the mean does the busiest chip have to do?",
        answer=answer,
        hints=(
            "How far from 1 is one expert, and which part of that is left?",
            "1 + (skew − 1) · √((E − g)/(g·(E − 1)))",
        ),
        steps=(
            f"√(({experts} − {held}) / ({held} · {experts - 1})) = {number(part)}",
            f"1 + {number(skew - 1)} · {number(part)} = {number(answer)}",
        ),
        traps=(
            Trap(skew, f"That is one expert; a chip averages over {held}."),
            Trap(
                1 + (skew - 1) / held,
                "Independent loads average as the square root of their number, not as the number.",
            ),
        ),
        check=calc(f"chip_load({skew:g}, {experts}, {held})"),
        tolerance=0.01,
    )


@problem(
    "experts",
    "Rows that are dropped",
    cases=(),
    skew=(2.0, 1.5, 1.75, 2.5, 3.0, 4.0),
    capacity=(1.25, 1.0, 1.1, 1.5),
)
def dropped_rows(skew: float, capacity: float) -> Posed | None:
    answer = dropped_share(skew, capacity)
    if answer < 0.02:
        return None
    even = (capacity / skew) ** (1 / (skew - 1))
    return Posed(
        ask=f"Sorted from idle to busy, the experts' loads over their mean are s·u^(s − 1) for u from 0 to 1, with s = "
        f"{number(skew)}, so that the busiest has {number(skew)} times the mean. No expert takes more than {number(capacity)} times "
        "the mean; rows beyond it are dropped. Which part of all rows is dropped (as a number between 0 and 1)?",
        answer=answer,
        hints=(
            "At which u does the load reach the capacity? Integrate what lies above it.",
            "u₀ = (c/s)^(1/(s − 1)); dropped = 1 − u₀^s − c·(1 − u₀)",
        ),
        steps=(
            f"u₀ = ({number(capacity)} / {number(skew)})^(1/{number(skew - 1)}) = {number(even)}",
            f"1 − {number(even)}^{number(skew)} − {number(capacity)}·(1 − {number(even)}) = {number(answer)}",
        ),
        traps=(
            Trap(1 - even**skew, "Experts above the capacity keep as many rows as it allows."),
            Trap(1 - even, "That is the part of the experts that overflow, not of the rows."),
        ),
        check=calc(f"dropped_share({skew:g}, {capacity:g})"),
    )


@problem("experts", "Expert weights on each GPU", cases=(), model=MODELS, ways=(64, 8, 16, 32), stages=(1, 2, 4))
def expert_weights_of_a_gpu(model: str, ways: int, stages: int) -> Posed | None:
    moe, layers, _ = experts_of(model)
    if moe.n_experts % ways or layers % stages:
        return None
    total = counted(model, False)["experts"]
    answer = 2.0 * total / (ways * stages)
    piped = f" and the layers over {stages} pipeline stages" if stages > 1 else ""
    return Posed(
        ask=f"The routed experts of {model}, {number(total / 1e9)}B parameters in bf16, are spread over EP={ways}{piped}. How many "
        "bytes of expert weights does each GPU hold?",
        answer=answer,
        dimension="bytes",
        hints=("Both split the weights.", "2 · parameters / (EP · PP)"),
        steps=(
            f"in all 2 · {number(total / 1e9)}e9 = {amount(2 * total, 'bytes')}",
            f"/ ({ways} · {stages}) = {amount(answer, 'bytes')}: {number(moe.n_experts / ways)} experts of each layer",
        ),
        traps=(
            Trap(answer / 2, "bf16 is two bytes a parameter."),
            Trap(answer * ways, "Expert parallelism splits the experts."),
        ),
        check=calc(f"2 bytes * {total} / ({ways} * {stages})"),
    )


@problem(
    "experts",
    "Rows with a capacity",
    cases=(),
    tokens=(65536, 8192, 16384, 32768, 131072),
    experts=(64, 8, 16, 128, 256),
    picks=(8, 1, 2, 4, 6),
    capacity=(1.25, 1.0, 1.1, 1.5, 2.0),
)
def rows_with_a_capacity(tokens: int, experts: int, picks: int, capacity: float) -> Posed | None:
    if picks * 2 > experts:
        return None
    even = route(tokens, picks, experts, experts, "balanced").rows
    answer = capacity * even
    return Posed(
        ask=f"{count(tokens)} tokens go to {picks} of {experts} experts each. A program pads every expert to a capacity factor of "
        f"{number(capacity)}, whatever is routed to it. How many rows does it multiply for each expert?",
        answer=answer,
        hints=("The even share first.", "rows = capacity · tokens · k / E"),
        steps=(
            f"even share: {count(tokens)} · {picks} / {experts} = {number(even)}",
            f"· {number(capacity)} = {number(answer)}",
        ),
        traps=(
            *((Trap(even, "That is the even share, without the capacity factor."),) if capacity > 1 else ()),
            *((Trap(answer / picks, f"Each token counts {picks} times."),) if picks > 1 else ()),
            Trap(float(tokens), "Those are all tokens."),
        ),
        check=calc(f"{capacity:g} * {tokens} * {picks} / {experts}"),
    )
