"""Slices counted: chips, hosts, cores, FLOP/s, HBM."""

import math

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number, some
from dragonscale.physics.hardware import Slice, Torus, load_chip, parse_slice
from dragonscale.physics.hardware.slices import chips_to_hold

SLICES = (
    "v5p:16x20x28", "v5e:16x16", "v5p:8x8x8", "v5e:4x8", "v6e:16x16", "v4:8x8x16", "v6e:8x8", "v5p:4x4x8", "tpu7x:8x8x16",
    "v4:4x4x4", "v3:32x32", "v5e:8x16",
)  # fmt: skip


def _x(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@problem(
    "tpus",
    "Chips of a pod",
    cases=("tpus.pod_chip_counts:v5p",),
    chip=("v5p", "v5e", "v6e", "v4", "v3", "tpu7x"),
    pods=(1, 2, 3, 4),
)
def pod_chips(chip: str, pods: int) -> Posed:
    made = load_chip(chip)
    assert isinstance(made.network, Torus)
    pod = made.network.pod
    answer = float(Slice(made, pod, pods).chips)
    return Posed(
        ask=f"The largest slice of {made.title} that ICI joins (a pod) is {_x(pod)}. How many chips are in {some(pods, 'pod')}?",
        answer=answer,
        whole=True,
        hints=("A pod is a box of chips.", "chips = product of the sides · pods."),
        steps=(f"{' · '.join(map(str, pod))} = {count(math.prod(pod))}", f"· {pods} = {count(answer)}"),
        traps=(
            Trap(float(sum(pod) * pods), "The sides multiply."),
            Trap(answer * 2, "That may be cores; chips were asked."),
        ),
        check=f'dscale calc "{chip}:{_x(pod)}.chips * {pods}"',
    )


def _piece(text: str) -> tuple[Slice, str]:
    piece = parse_slice(text)
    return piece, _x(piece.chip.host_shape)


@problem("tpus", "Hosts of a slice", cases=("tpus.q2_v5p_pod:hosts",), piece=SLICES)
def hosts_of_a_slice(piece: str) -> Posed:
    made, host = _piece(piece)
    each = made.chip.host_chips
    return Posed(
        ask=f"How many hosts stand behind {piece}, if one host holds {host} chips ({each})?",
        answer=float(made.hosts),
        whole=True,
        hints=("Count the chips first.", "hosts = chips / chips of a host."),
        steps=(
            f"{' · '.join(map(str, made.shape))} = {count(made.chips)} chips",
            f"/ {each} = {count(made.hosts)} hosts",
        ),
        traps=(
            Trap(float(made.chips), "A host holds several chips."),
            Trap(made.hosts / 2, "That would be twice as many chips to a host."),
        ),
        check=f"dscale chips {piece}",
    )


@problem("tpus", "Cores of a slice", cases=("tpus.q2_v5p_pod:cores",), piece=SLICES)
def cores_of_a_slice(piece: str) -> Posed:
    made, _ = _piece(piece)
    each = made.cores // made.chips
    return Posed(
        ask=f"How many TensorCores has {piece}, with {some(each, 'core')} on every {made.chip.title} chip?",
        answer=float(made.cores),
        whole=True,
        hints=("Count the chips first.", "cores = chips · cores of a chip."),
        steps=(f"{count(made.chips)} chips", f"· {each} = {count(made.cores)} cores"),
        traps=(
            Trap(
                made.cores * 2.0 if each == 1 else made.cores / 2, f"This generation has {some(each, 'core')} a chip."
            ),
            Trap(float(made.hosts), "Those are hosts."),
        ),
        check=f"dscale chips {piece}",
    )


@problem("tpus", "FLOP/s of a slice", cases=("tpus.v5p_pod_flops:pod_flops",), piece=SLICES)
def rate_of_a_slice(piece: str) -> Posed:
    made, _ = _piece(piece)
    peak = float(made.chip.peak("bf16"))
    return Posed(
        ask=f"What is the bf16 peak of all chips of {piece} together, at {amount(peak, 'FLOP/s')} a chip?",
        answer=float(made.flops),
        dimension="FLOP/s",
        hints=("Chips times the rate of one.", "FLOP/s = product of the sides · peak."),
        steps=(
            f"{' · '.join(map(str, made.shape))} = {count(made.chips)} chips",
            f"· {number(peak)} = {amount(float(made.flops), 'FLOP/s')}",
        ),
        traps=(
            Trap(2 * float(made.flops), "The figure is of a chip, not of a core."),
            Trap(made.hosts * peak, "Every host has several chips."),
        ),
        check=f"dscale chips {piece}",
    )


@problem(
    "tpus",
    "HBM of a slice",
    cases=("tpus.q2_v5e_pod:hbm",),
    piece=("v5e:16x16", *(one for one in SLICES if one != "v5e:16x16")),
)
def memory_of_a_slice(piece: str) -> Posed:
    made, _ = _piece(piece)
    each, answer = float(made.chip.hbm.capacity), float(made.hbm)
    return Posed(
        ask=f"How much HBM has {piece} in all, {amount(each, 'bytes')} a chip?",
        answer=answer,
        dimension="bytes",
        hints=("Chips times the HBM of one.", "bytes = product of the sides · HBM."),
        steps=(f"{count(made.chips)} chips · {amount(each, 'bytes')}", f"= {amount(answer, 'bytes')}"),
        traps=(
            Trap(made.hosts * each, "Every chip has its own HBM, not every host."),
            Trap(2 * answer, "The figure is of a chip, not of a core."),
        ),
        check=f"dscale chips {piece}",
    )


@problem(
    "tpus",
    "Chips to hold a model",
    chip=("v5e", "v5p", "v6e", "v4", "tpu7x"),
    billions=(70, 405, 200, 671, 1000),
    each=(2, 1, 10, 16),
)
def chips_for_a_model(chip: str, billions: int, each: int) -> Posed:
    made = load_chip(chip)
    size, hbm = billions * 1e9 * each, float(made.hbm.capacity)
    answer = float(chips_to_hold(made, size))
    return Posed(
        ask=f"{billions}B parameters at {some(each, 'byte')} each: how many {chip} chips of {amount(hbm, 'bytes')} hold them at "
        "least (a whole number)?",
        answer=answer,
        whole=True,
        hints=("Bytes over the HBM of a chip.", "chips = ceil(parameters · bytes / HBM)."),
        steps=(f"{billions}e9 · {each} = {amount(size, 'bytes')}", f"/ {amount(hbm, 'bytes')} = {number(size / hbm)}, so {count(answer)}"),
        traps=(
            Trap(2 * answer, "Count the bytes of one parameter as they are given."),
            Trap(answer / each if each > 1 else answer / 2, f"A parameter takes {some(each, 'byte')}."),
        ),
        check=f'dscale calc "ceil({billions}e9 * {each} bytes / {chip}.hbm)"',
    )  # fmt: skip
