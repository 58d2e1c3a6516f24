"""What a layout puts on each chip: shapes, bytes, replicas, blocks."""

import math

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.chips import book_chip
from dragonscale.course.problems.sharding.flags import given
from dragonscale.course.words import amount, count
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, parse_array
from dragonscale.physics.rooflines import Cost, rates_of, roofline
from dragonscale.physics.sharding import Mesh, local_bytes, local_shape, replicated_over
from dragonscale.physics.sharding.layout import block_of, total_bytes

DTYPES = ("fp32", "bf16", "int8")
LAYOUTS = ("[I_XY, J]", "[I_X, J_Y]", "[I_Y, J]", "[I, J_XY]", "[I_X, J]")
MESHES = ({"X": 8, "Y": 2}, {"X": 4, "Y": 4}, {"X": 2, "Y": 8}, {"X": 16, "Y": 4})
SHAPES = ((1024, 4096), (2048, 8192), (4096, 4096), (8192, 28672), (512, 16384))


def _shown(array: Array) -> str:
    return f"A{str(array).partition('[')[1]}{str(array).partition('[')[2]}"


def _steps(array: Array, sizes: dict[str, int], mesh: Mesh) -> tuple[str, ...]:
    shape = local_shape(array, sizes, mesh)
    each = [
        f"{dim.name}: {sizes[dim.name]:,} / {mesh.size(*dim.axes)} = {n:,}"
        for dim, n in zip(array.dims, shape, strict=True)
    ]
    size, held = dtype_bytes(array.dtype), local_bytes(array, sizes, mesh)
    return (
        *each,
        (f"{' · '.join(map(count, shape))} · {size:g} bytes = {count(held)} bytes = {amount(held, 'bytes')}"),
    )


@problem(
    "sharding",
    "The bytes of a shard",
    cases=("sharding.pq_2d_over_1dim:bytes",),
    dtype=DTYPES,
    layout=LAYOUTS,
    mesh=MESHES,
    shape=SHAPES,
)
def bytes_of_a_shard(dtype: str, layout: str, mesh: dict[str, int], shape: tuple[int, int]) -> Posed:
    array, chips, sizes = parse_array(f"A:{dtype}{layout}"), Mesh(mesh), dict(zip("IJ", shape, strict=True))
    held, whole = local_bytes(array, sizes, chips), math.prod(shape) * dtype_bytes(dtype)
    wrong = (
        [Trap(whole / chips.chips * 4 / dtype_bytes(dtype), f"A number in {dtype} has {dtype_bytes(dtype):g} bytes.")]
        if dtype != "fp32"
        else [Trap(held / 2, "fp32 has four bytes.")]
    )
    if len(array.axes) > 1:
        wrong.append(Trap(whole / chips.size("X"), "Every axis of the subscripts splits the array, not only X."))
    else:
        wrong.append(Trap(whole / chips.chips, "An axis that no dim names does not split the array: it holds copies."))
    return Posed(
        ask=f"{dtype}[{shape[0]}, {shape[1]}] is laid out as A{layout} on the mesh "
        f"{given(mesh, ', ')}. How many bytes of it does each chip hold?",
        answer=held,
        dimension="bytes",
        hints=(
            "Divide each dim by the sizes of the mesh axes in its subscript.",
            "local bytes = (I / axes of I) · (J / axes of J) · bytes of a number",
        ),
        steps=_steps(array, sizes, chips),
        traps=tuple(wrong),
        check=f'dscale shard "A:{dtype}{layout}" --mesh {given(mesh)} --sizes {given(sizes)} | '
        'grep -E "holds  |^A.*B "',
    )


@problem(
    "sharding",
    "Copies count: the bytes on all chips",
    cases=("sharding.pq_replication_memory:bytes_total",),
    dtype=("int8", "bf16", "fp32"),
    layout=("[I_XY, J]", "[I_X, J]", "[I_Y, J_Z]", "[I, J_Z]", "[I_Z, J]"),
    mesh=({"X": 2, "Y": 8, "Z": 2}, {"X": 4, "Y": 4, "Z": 4}, {"X": 8, "Y": 2, "Z": 4}),
    shape=((128, 2048), (1024, 1024), (4096, 8192), (8192, 8192)),
)
def bytes_on_all_chips(dtype: str, layout: str, mesh: dict[str, int], shape: tuple[int, int]) -> Posed:
    array, chips, sizes = parse_array(f"A:{dtype}{layout}"), Mesh(mesh), dict(zip("IJ", shape, strict=True))
    total, held = total_bytes(array, sizes, chips), local_bytes(array, sizes, chips)
    over = replicated_over(array, chips)
    copies = chips.size(*over)
    return Posed(
        ask=f"{dtype}[{shape[0]}, {shape[1]}] is laid out as A{layout} on the mesh "
        f"{given(mesh, ', ')}. How many bytes does it take on all chips together?",
        answer=total,
        dimension="bytes",
        hints=(
            "Along an axis that splits nothing every chip has a copy.",
            "total = bytes of a shard · all chips = bytes of the array · sizes of the axes not used",
        ),
        steps=(
            f"the array: {count(math.prod(shape) * dtype_bytes(dtype))} bytes",
            f"not used: {', '.join(over)}, so {copies} copies of every block",
            (f"{count(held)} bytes on each of {chips.chips} chips = {count(total)} bytes = {amount(total, 'bytes')}"),
        ),
        traps=(
            Trap(total / copies, f"The chips along {', '.join(over)} hold copies, which take memory too."),
            Trap(held, "That is one chip's shard."),
        ),
        check=f'dscale shard "A:{dtype}{layout}" --mesh {given(mesh)} --sizes {given(sizes)} | '
        'grep -E "holds  |^A.*B "',
    )


@problem(
    "sharding",
    "Which rows a chip holds",
    order=("YX", "XY"),
    mesh=({"X": 2, "Y": 2}, {"X": 2, "Y": 4}, {"X": 4, "Y": 2}, {"X": 4, "Y": 4}),
    rows=(1024, 512, 4096, 8192),
    x=(0, 1, 2, 3),
    y=(1, 0, 2, 3),
)
def rows_of_a_chip(order: str, mesh: dict[str, int], rows: int, x: int, y: int) -> Posed | None:
    if x >= mesh["X"] or y >= mesh["Y"]:
        return None
    chips, at = Mesh(mesh), {"X": x, "Y": y}
    each = rows // chips.chips
    block, other = block_of(tuple(order), at, chips), block_of(tuple(reversed(order)), at, chips)
    if block == 0 or block == other:
        return None
    major, minor = order
    return Posed(
        ask=f"A[I_{order}, J] with I={rows} lies on the mesh {given(mesh, ', ')}. At which row "
        f"(counted from 0) does the block of the chip at X={x}, Y={y} begin?",
        answer=float(block * each),
        whole=True,
        hints=(
            "The first axis of a subscript is the major one: it cuts first.",
            f"block = {major} · |{minor}| + {minor}; it begins at block · rows / chips",
        ),
        steps=(
            f"{rows} rows in {chips.chips} blocks of {each}",
            f"block = {at[major]} · {mesh[minor]} + {at[minor]} = {block}",
            f"first row = {block} · {each} = {block * each}",
        ),
        traps=(Trap(float(other * each), f"In I_{order} the axis {major} is the major one, not {minor}."),)
        if other
        else (Trap(float(block), "That is the block; a block has many rows."),),
        check=f'dscale shard "A[I_{order}, J]" --mesh {given(mesh)} --sizes I={rows},J=8 | grep -E "X  Y|  {x}  {y}  "',
    )


@problem(
    "sharding",
    "How many chips hold an element",
    layout=("[I_X, J]", "[I_Y, J]", "[I_XY, J]", "[I, J_Z]", "[I_Z, J_X]", "[I, J]"),
    mesh=({"X": 4, "Y": 8, "Z": 2}, {"X": 2, "Y": 8, "Z": 4}, {"X": 16, "Y": 4, "Z": 4}, {"X": 8, "Y": 8, "Z": 16}),
)
def replicas_of_an_element(layout: str, mesh: dict[str, int]) -> Posed | None:
    array, chips = parse_array(f"A{layout}"), Mesh(mesh)
    over = replicated_over(array, chips)
    copies, blocks = chips.size(*over), chips.size(*array.axes)
    if copies == blocks:
        return None
    return Posed(
        ask=f"A{layout} lies on the mesh {given(mesh, ', ')}. On how many chips does each element lie?",
        answer=float(copies),
        whole=True,
        hints=(
            "Only axes that split a dim tell chips apart.",
            "replicas = product of the sizes of the axes that no dim names",
        ),
        steps=(f"no dim names {', '.join(over)}", f"replicas = {' · '.join(f'|{axis}|' for axis in over)} = {copies}"),
        traps=(
            Trap(float(blocks), "That is the number of different blocks."),
            Trap(float(chips.chips + 0.0), "Chips along the axes that split it hold other elements.")
            if blocks > 1
            else Trap(1.0, "Nothing splits it: every chip has all of it."),
        ),
        check=f'dscale shard "A{layout}" --mesh {given(mesh)} | grep -E "replicas|Every"',
    )


@problem(
    "sharding",
    "Reading a shard from HBM",
    cases=("sharding.pq_2d_load_time:t",),
    chip=("h100", "v5e", "v5p", "v6e", "h200", "b200"),
    dtype=DTYPES,
    mesh=MESHES,
    shape=SHAPES,
)
def reading_a_shard(chip: str, dtype: str, mesh: dict[str, int], shape: tuple[int, int]) -> Posed:
    array, chips, sizes = parse_array(f"A:{dtype}[I_XY, J]"), Mesh(mesh), dict(zip("IJ", shape, strict=True))
    held, rates = local_bytes(array, sizes, chips), rates_of(book_chip(chip))
    seconds = roofline(Cost(bytes={"hbm": held}), rates).lower
    speed = held / seconds
    return Posed(
        ask=f"{dtype}[{shape[0]}, {shape[1]}] is laid out as A[I_XY, J] on a mesh "
        f"{given(mesh, ', ')} of {chip}. How long does a chip need to read its shard from "
        f"HBM, at {amount(speed, 'bytes/s')}?",
        answer=seconds,
        dimension="s",
        hints=(
            "First the bytes of the shard, then the bandwidth of HBM.",
            "time = I · J · bytes / (|X| · |Y|) / bandwidth",
        ),
        steps=(
            *_steps(array, sizes, chips),
            f"{amount(held, 'bytes')} / {amount(speed, 'bytes/s')} = {amount(seconds, 's')}",
        ),
        traps=(
            Trap(seconds * chips.chips, "That reads the whole array; a chip has only its shard."),
            Trap(seconds * mesh["Y"], "Y splits the rows too."),
        ),
        check=f'dscale calc "{held:.0f} bytes / {amount(speed, "bytes/s")}"',
        tolerance=0.03,
    )
