"""Devices of a collective, and shapes of one device back to the whole array."""

import math

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count
from dragonscale.evidence.xla.device_groups import group_shape
from dragonscale.evidence.xla.op_work import work_of_text
from dragonscale.evidence.xla.shardings import read_sharding


@problem(
    "profiling",
    "How many devices there must be",
    cases=("profiling.q1_model_parallelism:min_devices",),
    degree=(8, 4, 16, 2),
    apart=(16, 8, 4, 1, 32),
)
def devices_of_a_group(degree: int, apart: int) -> Posed | None:
    group = [place * apart for place in range(degree)]
    written = ",".join(map(str, group))
    text = (
        f"%all-reduce = bf16[8192] all-reduce(bf16[8192] %fusion), replica_groups={{{{{written}}},...}}, to_apply=%add"
    )
    found = group_shape(work_of_text(text).groups)
    if apart == 1:
        return None
    return Posed(
        ask=f"A line of HLO has replica_groups={{{{{written}}},...}}, the other groups are cut "
        "off. Groups made by one mesh axis tile the devices. How many devices are there at "
        "least?",
        answer=float(found.at_least),
        whole=True,
        hints=("How many devices are in the group, and how far are they apart?", "at least stride · degree devices"),
        steps=(
            f"{found.degree} devices, {found.stride} apart",
            f"between them lie the other groups: {found.stride} · {found.degree} = {found.at_least}",
        ),
        traps=(
            Trap(float(degree), "That is one group; the devices in between belong to others."),
            Trap(float(group[-1]), "Devices count from 0, and the last group's devices come after this one's last."),
        ),
        check=f'dscale hlo "{text}" | grep "devices"',
    )


@problem(
    "profiling",
    "From a device's shape to the whole array",
    local=((512, 8192), (1024, 2048), (2048, 512), (256, 4096)),
    split=((16, 4), (8, 1), (4, 8), (2, 16)),
    dtype=("bf16", "f32"),
    copies=(1, 4),
)
def whole_array(local: tuple[int, int], split: tuple[int, int], dtype: str, copies: int) -> Posed:
    devices = math.prod(split) * copies
    tiles = f"{split[0]},{split[1]}" + (f",{copies}" if copies > 1 else "")
    last = " last_tile_dim_replicate" if copies > 1 else ""
    text = f"{{devices=[{tiles}]<=[{devices}]{last}}}"
    whole = read_sharding(text).whole(local)
    assert whole is not None
    size = {"bf16": 2, "f32": 4}[dtype]
    answer = math.prod(whole) * size
    return Posed(
        ask=f"An argument of a compiled program is {dtype}[{local[0]},{local[1]}] on a device, "
        f"with sharding={text}. How many bytes does the whole array have, each element "
        "counted once?",
        answer=float(answer),
        dimension="bytes",
        hints=(
            (
                "devices=[a,b] cuts the first dim a ways and the second b ways; with "
                "last_tile_dim_replicate the last number counts copies."
            ),
            "whole = local sizes · their cuts",
        ),
        steps=(
            f"{local[0]} · {split[0]} x {local[1]} · {split[1]} = {whole[0]} x {whole[1]}",
            f"· {size} bytes = {count(answer)} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(float(math.prod(local) * size), "HLO prints a device's part."),
            Trap(float(answer * copies), "Copies hold the same elements.")
            if copies > 1
            else Trap(answer / size, f"{dtype} has {size} bytes."),
        ),
        check=f'dscale calc "{whole[0]} * {whole[1]} * {size} bytes"',
    )


@problem(
    "profiling",
    "What a reduce-scatter saves",
    rows=(32, 64, 16),
    length=(32, 128, 512),
    columns=(8192, 4096, 16384),
    devices=(2, 4, 8, 16),
)
def saved_by_a_reduce_scatter(rows: int, length: int, columns: int, devices: int) -> Posed:
    shape, groups = f"bf16[{rows},{length},{columns}]", ",".join(map(str, range(devices)))
    text = f"%ar = {shape} all-reduce({shape} %x), replica_groups={{{{{groups}}}}}, to_apply=%add"
    sent = work_of_text(text).wire_bytes
    volume = 2.0 * rows * length * columns
    return Posed(
        ask=f"A program adds up {shape} over {devices} devices with an all-reduce, and each "
        "device then keeps only its slice (dynamic-slice by partition-id). How many bytes "
        "less would each device send with a reduce-scatter? Count exactly, with the (N-1)/N.",
        answer=sent / 2,
        dimension="bytes",
        hints=("An all-reduce is a reduce-scatter and an all-gather.", "saved = V · (N−1)/N"),
        steps=(
            (f"V = {amount(volume, 'bytes')}; all-reduce: 2 · V · {devices - 1}/{devices} = {amount(sent, 'bytes')}"),
            f"reduce-scatter: half of it, {amount(sent / 2, 'bytes')} less",
        ),
        traps=(
            Trap(sent, "That is all that the all-reduce sends; the reduce-scatter still sends half."),
            Trap(sent / 2 / devices, "The array in the line is whole on every device before the sum."),
        ),
        check=f'dscale calc "2*{rows}*{length}*{columns} bytes * {devices - 1}/{devices}"',
    )
