"""Problems on how far a replica can be split, and what that sends."""

from dragonscale.course.closed_forms.serving_splits import (
    axis_rate,
    chips_for_2d,
    decode_degree,
    latency_bound_bytes,
    one_axis,
    prefill_degree,
    two_axes,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import TPUS, size
from dragonscale.course.words import amount, count, number
from dragonscale.physics.collectives import Rings
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.sharding.mesh import Mesh

WIDTHS = (8192, 14336, 16384, 28672, 32768, 53248)


@problem(
    "inference",
    "How far tensor parallelism of prefill goes",
    width=(16384, *WIDTHS),
    chip=TPUS,
    axes=(1, 2),
)
def tensor_degree_of_prefill(width: int, chip: str, axes: int) -> Posed:
    machine = load_chip(chip)
    answer, rate = float(prefill_degree(width, machine, axes)), axis_rate(machine)
    over = "one axis" if axes == 1 else f"{axes} axes"
    return Posed(
        ask=f"A layer multiplies by two matrices D x F and F x D, F = {count(width)}, in bf16. A {chip} does "
        f"{amount(machine.peak(), 'FLOP/s')} and an axis "
        f"of its torus moves {amount(rate, 'bytes/s')} both ways together. Up to which degree of tensor "
        f"parallelism over {over} do a prompt's "
        "matmuls take longer than gathering and scattering its activations, to first order (V/W, axes that close to "
        "rings)? Not rounded.",
        answer=answer,
        hints=(
            "Matmuls shrink with the degree, the activations that travel do not.",
            "4·B·D·F/(Y·C) = 4·B·D/(M·W): Y = M·F·W/C.",
        ),
        steps=(
            f"C/W = {number(machine.peak())} / {number(rate)} = {number(machine.peak() / rate)}",
            f"Y = {axes}·{width} / {number(machine.peak() / rate)} = {number(answer)}",
        ),
        traps=(
            Trap(answer / 2, "Links go both ways: an axis moves twice what one direction does."),
            Trap(answer * 2, "A bf16 activation is two bytes."),
        ),
        check=f'dscale calc "prefill_degree({width}, {chip}, axes={axes})"',
    )


@problem(
    "inference",
    "How far tensor parallelism of decoding goes",
    cases=("inference.decode_tp_limit",),
    width=(16384, *WIDTHS),
    batch=(32, 8, 16, 64, 128),
    ratio=(8, 9, 10, 12, 16),
)
def tensor_degree_of_decoding(width: int, batch: int, ratio: int) -> Posed:
    v5e = load_chip("v5e")
    machine = v5e.with_facts(**{"ici.link": v5e.bandwidth("hbm") / ratio / 2})
    answer = float(decode_degree(width, batch, machine))
    return Posed(
        ask=f"HBM of a chip is {ratio} times as fast as an axis of its torus (both ways together). A decode step of "
        f"{batch} sequences waits for bf16 "
        f"weights D x F and F x D, F = {count(width)}. Up to which degree of tensor parallelism over one axis does "
        "loading the weights take "
        "longer than gathering and scattering bf16 activations, to first order (V/W, the axis a ring)?",
        answer=answer,
        hints=(
            "A chip loads 4·D·F/Y bytes and sends 4·B·D in all.",
            "4·D·F/(Y·W_hbm) = 4·B·D/W_ici: Y = F/(B·beta), beta = W_hbm/W_ici.",
        ),
        steps=(
            "loading: 4·D·F/(Y·W_hbm); sending: 4·B·D/W_ici",
            f"Y = F/(B·beta) = {width}/({batch}·{ratio}) = {number(answer)}",
        ),
        traps=(
            Trap(width / ratio, "The batch is sent as well: its activations grow with B."),
            Trap(answer * 2, "Both the gather and the scatter take time."),
        ),
        check=f'dscale calc "{width} / ({batch} * {ratio})"',
    )


@problem(
    "inference",
    "From how many chips on to split both dims",
    cases=("inference.q7_crossover:N_F4D",),
    ratio=(4.0, 3.5, 2.7, 3.0, 2.0, 5.0, 8.0),
    axes=((1, 2), (1, 1), (2, 1)),
)
def chips_for_two_dims(ratio: float, axes: tuple[int, int]) -> Posed:
    x, y = axes
    answer = float(chips_for_2d(ratio, axes))
    return Posed(
        ask=f"Weights can be split along F alone over all {x + y} axes of a torus (4·B·D bytes sent over {x + y}·W), "
        f"or along D over {x} and F over {y} of "
        f"them (2D weight-stationary: 4·B/W · (D/({y}·X) + F/({x}·Y)), X chips along D, Y along F, at the best "
        f"split). F = {ratio:g}·D. From how many chips on "
        "does the second send in less time? Collectives to first order, V/W on rings.",
        answer=answer,
        hints=(
            "Choose X and Y with X·Y = N so that both terms are equal.",
            "2·sqrt(F·D/(x·y·N)) = D/(x + y): N = 4·F/D·(x + y)²/(x·y).",
        ),
        steps=(
            f"at best both terms are equal: 2·sqrt(F·D/({x}·{y}·N))",
            f"against D/{x + y} of the first way",
            f"N = 4·{ratio:g}·{(x + y) ** 2}/{x * y} = {number(answer)}",
        ),
        traps=(
            Trap(answer / 2, "Both terms count, the gather of D and that of F."),
            Trap(answer / (x + y), "Splitting F alone uses all axes at once."),
        ),
        check=f'dscale calc "chips_for_2d({ratio:g}, axes=({x}, {y}))"',
    )


@problem(
    "inference",
    "What splitting both dims sends",
    cases=("inference.q7_2d_comms",),
    batch=(64, 16, 32, 128),
    width=(8192, 4096, 5120),
    degrees=((4, 32), (2, 32), (4, 16), (8, 16), (8, 32)),
    chip=("v5e", "v5p", "v6e", "v4"),
)
def time_of_two_dims(batch: int, width: int, degrees: tuple[int, int], chip: str) -> Posed:
    machine, hidden, (x, y) = load_chip(chip), 4 * width, degrees
    rate = axis_rate(machine)
    answer = float(two_axes(batch, width, hidden, degrees, rate))
    return Posed(
        ask=f"An MLP of D = {count(width)}, F = {count(hidden)} is split over {x} chips along D (one axis) and {y} "
        "along F (two axes). A decode step of "
        f"{batch} tokens gathers bf16 activations [B, D/{x}] over F's chips, sums [B, F/{y}] over D's (an "
        "AllReduce), and scatters the result over F's. "
        f"An axis moves {amount(rate, 'bytes/s')}. How long do they take together, to first order "
        "(V/W, 2V/W for the AllReduce, without the (N-1)/N) and hops left out? All axes are rings.",
        answer=answer,
        dimension="s",
        hints=(
            "Each gather or scatter moves its array once over its axes; an AllReduce twice.",
            "2·B·D/(X·W) + 4·B·F/(YZ·W).",
        ),
        steps=(
            f"over F's two axes: 2·2·{batch}·{width}/({x}·2·{number(rate)}) = "
            f"{amount(2 * batch * width / (x * rate), 's')}",
            f"over D's axis: 4·{batch}·{hidden}/({y}·{number(rate)}) = {amount(4 * batch * hidden / (y * rate), 's')}",
            f"together {amount(answer, 's')}",
        ),
        traps=(
            Trap(float(one_axis(batch, width, rate, 3)), "That is the time of splitting F alone over three axes."),
            Trap(4 * batch * width / (x * rate) + 4 * batch * hidden / (y * rate), "F's chips lie along two axes."),
        ),
        check=f'dscale calc "2 bytes*{batch}*{width}/({x}*{chip}.ici_axis) + 4 '
        f'bytes*{batch}*{hidden}/({y}*{chip}.ici_axis)"',
    )


def _ring(ways: int, chip: str) -> Rings:
    group = Mesh({"X": ways}, load_chip(chip)).group(("X",))
    assert isinstance(group, Rings)
    return group


@problem(
    "inference",
    "Too small for its links",
    cases=("inference.appC_latency_threshold",),
    ways=(8, 4, 16, 32),
    chip=("v5e", "v5p", "v6e", "v4", "tpu7x"),
)
def bytes_below_latency(ways: int, chip: str) -> Posed:
    ring = _ring(ways, chip)
    answer, link, hop = float(latency_bound_bytes("all_gather", ring)), float(ring.link), float(ring.hop)
    return Posed(
        ask=f"An AllGather runs both ways around {ways} {chip}, taken as a ring. A hop takes {amount(hop, 's')}, a link "
        f"moves {amount(link, 'bytes/s')} one way. "
        "Below how many bytes (of the gathered array) do its hops take longer than its bytes, to first order (V over "
        "both directions without the (N-1)/N, N/2 hops)?",
        answer=answer,
        dimension="bytes",
        hints=("Around half of the ring in each direction: n/2 hops.", "V/(2·W) = n/2 · hop: V = n·W·hop."),
        steps=(
            f"hops: {ways}/2 · {amount(hop, 's')} = {amount(ways / 2 * hop, 's')}",
            f"bytes: V / (2·{amount(link, 'bytes/s')})",
            f"V = {ways}·{number(link)}·{number(hop)} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(link * hop, "That holds for each shard; the array has one for each chip."),
            Trap(answer * 2, "Both directions carry half each, over half of the hops."),
        ),
        check=f'dscale calc "{ways} * {chip}.ici_link * {amount(hop, "s")}"',
    )


@problem(
    "inference",
    "From which degree on hops decide",
    cases=("inference.appC_Y_rule",),
    batch=(16, 8, 32, 64, 128),
    width=(8192, 4096, 5120, 16384),
    chip=("v5e", "v5p", "v6e", "v4"),
)
def degree_below_latency(batch: int, width: int, chip: str) -> Posed:
    ring = _ring(8, chip)
    each = float(latency_bound_bytes("all_gather", ring)) / 8
    sent = float(batch * width)
    answer = sent / each
    return Posed(
        ask=f"Decoding gathers int8 activations of {batch} sequences x {count(width)} both ways around Y {chip}, "
        "taken as a ring. A hop takes "
        f"{amount(float(ring.hop), 's')}, a link moves {amount(float(ring.link), 'bytes/s')} one way. Above which "
        "Y (not rounded) is the gather bound by its hops, to first order (V over both directions without the (N-1)/N, "
        "Y/2 hops)?",
        answer=answer,
        hints=("A shard must take a link as long as a hop.", "Y = B·D/(W·hop), bytes of a shard being B·D/Y."),
        steps=(
            f"the array: {batch}·{width} = {size(sent)}",
            f"a link moves {size(each)} in a hop's time",
            f"Y = {size(sent)} / {size(each)} = {number(answer)}",
        ),
        traps=(
            Trap(answer * 2, "int8 activations are one byte each."),
            Trap(answer / 2, "A shard goes one way over a link."),
        ),
        check=f'dscale calc "{batch} * {width} bytes / ({chip}.ici_link * {amount(float(ring.hop), "s")})"',
    )
