"""The network as the third roof: a matmul over two chips."""

from functools import cache

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, number
from dragonscale.physics.collectives import Ring
from dragonscale.physics.hardware import Torus, load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding.algebra import Strategy, strategies
from dragonscale.physics.sharding.mesh import Mesh

TWO = ("v5e", "v5p", "v6e", "v4", "tpu7x")
SPLIT = parse_einsum("X:bf16[B, D_X] @ Y:bf16[D_X, F] -> Z:bf16[B, F]")


@cache
def _halves(chip: str) -> tuple[Mesh, Strategy, float]:
    """The summed dim split over two chips joined by one link, the way that adds up the halves, and the link."""
    made = load_chip(chip)
    assert isinstance(made.network, Torus)
    mesh = Mesh({"X": 2}, made, rings={"X": (Ring(2, wrap=False),)})
    found = strategies(SPLIT, {"B": 1024, "D": 8192, "F": 8192}, mesh)
    way = next(one for one in found if [step.kind for step in one.collectives] == ["all_reduce"])
    return mesh, way, float(made.network.link)


def _times(chip: str, batch: int, model: int, hidden: int) -> tuple[float, float]:
    """Seconds that each chip multiplies, and that the partial sums travel."""
    from dragonscale.physics.collectives import Options

    mesh, way, _ = _halves(chip)
    sizes = {"B": batch, "D": model, "F": hidden}
    [exchange] = way.step_seconds(sizes, mesh, Options())
    return float(way.math_seconds(sizes, mesh)), float(exchange.bandwidth)


@problem(
    "rooflines",
    "A matmul over two chips: the exchange",
    cases=("roofline.two_chip_matmul_times:t_comms",),
    chip=TWO,
    batch=(1024, 256, 4096, 512),
    model=(8192, 4096, 16384),
    hidden=(32768, 8192, 14336),
)
def exchange_of_partial_sums(chip: str, batch: int, model: int, hidden: int) -> Posed:
    link, (math_s, answer) = _halves(chip)[2], _times(chip, batch, model, hidden)
    return Posed(
        ask=f"Two {chip} chips split the summed dim of bf16[{batch}, {model}] · bf16[{model}, {hidden}]. Each then sends its "
        f"partial sums, bf16[{batch}, {hidden}], to the other over one link of {amount(link, 'bytes/s')} each way. "
        "How long does the exchange take (both directions at once)?",
        answer=answer,
        dimension="s",
        hints=("What travels is the result, not the operands.", "T_comms = 2·B·F / link."),
        steps=(
            f"2·{batch}·{hidden} = {number(2.0 * batch * hidden)} bytes",
            f"/ {number(link)} = {amount(answer, 's')}; meanwhile each multiplies for {amount(math_s, 's')}",
        ),
        traps=(
            Trap(answer / 2, "bf16 is two bytes, and the link carries its rate each way."),
            Trap(2 * answer, "Both send at once; the two directions do not wait for each other."),
            Trap(math_s, "That is the time to multiply."),
        ),
        check=f'dscale calc "2 bytes * {batch} * {hidden} / {chip}.ici_link"',
    )


@problem(
    "rooflines",
    "A matmul over two chips: each one's share",
    cases=("roofline.two_chip_matmul_times:t_math",),
    chip=TWO,
    batch=(1024, 256, 4096, 512),
    model=(8192, 4096, 16384),
    hidden=(32768, 8192, 14336),
)
def compute_of_one_half(chip: str, batch: int, model: int, hidden: int) -> Posed:
    peak, (answer, exchange) = load_chip(chip).peak("bf16"), _times(chip, batch, model, hidden)
    return Posed(
        ask=f"Two {chip} chips split the summed dim D = {model} of bf16[{batch}, {model}] · bf16[{model}, {hidden}] evenly. "
        f"How long does each multiply at its peak of {amount(peak, 'FLOP/s')}?",
        answer=answer,
        dimension="s",
        hints=("Each chip has half of the columns of X and half of the rows of W.", "T_math = 2·B·(D/2)·F / C."),
        steps=(
            f"2·{batch}·{model // 2}·{hidden} = {number(2.0 * batch * (model // 2) * hidden)} FLOPs",
            f"/ {number(peak)} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(2 * answer, "Each chip does half of the work."),
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(exchange, "That is the exchange."),
        ),
        check=f'dscale calc "2 * {batch} * {model} / 2 * {hidden} FLOP / {chip}.bf16"',
    )


@problem(
    "rooflines",
    "When two chips are worth it",
    cases=("roofline.two_chip_matmul_threshold:D_min",),
    chip=TWO,
    faster=(1, 2, 4, 0.5),
)
def contracting_size_for_two_chips(chip: str, faster: float) -> Posed:
    peak, link = float(load_chip(chip).peak("bf16")), _halves(chip)[2]
    math_s, exchange = _times(chip, 1024, 8192, 8192)
    answer = 8192 * exchange / math_s / faster  # one grows with D, the other does not
    return Posed(
        ask=f"Two chips of {amount(peak, 'FLOP/s')} split the summed dim D of a bf16 matmul and exchange their partial "
        f"sums, bf16[B, F], over a link of {amount(link * faster, 'bytes/s')} each way. How large must D be for compute to "
        "take longer than the exchange?",
        answer=answer,
        hints=(
            "B and F cancel: both times have them.",
            "B·D·F/C = 2·B·F/link, solved for D.",
        ),
        steps=(
            f"C/link = {number(peak)} / {number(link * faster)} = {number(peak / (link * faster))} FLOPs per byte",
            f"D = 2 · {number(peak / (link * faster))} = {number(answer)}",
        ),
        traps=(
            Trap(answer / 2, "Each element that travels takes two bytes."),
            Trap(2 * answer, "Each chip multiplies half of D: 2·B·(D/2)·F FLOPs."),
        ),
        check=f'dscale calc "2 * {chip}.bf16 / ({faster:g} * {chip}.ici_link)"',
    )
