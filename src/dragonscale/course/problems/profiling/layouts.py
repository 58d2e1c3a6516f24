"""Shapes of HLO: order in memory, tiles, padding, places of elements."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.evidence.xla.layouts import Placed, read_arrays


def _read(text: str) -> Placed:
    [array] = read_arrays(text)
    return array


def _shown(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


TILED = (
    ("f32", (3, 5), "T(2,2)"),
    ("f32", (100, 200), "T(8,128)"),
    ("bf16", (2, 8192), "T(4,128)(2,1)"),
    ("bf16", (20, 300), "T(8,128)(2,1)"),
    ("f32", (1, 4096), "T(8,128)"),
    ("f32", (9, 129), "T(8,128)"),
    ("bf16", (3, 1000), "T(8,128)(2,1)"),
    ("s8", (10, 500), "T(8,128)(4,1)"),
    ("f32", (50, 64), "T(8,128)"),
    ("bf16", (17, 256), "T(16,128)(2,1)"),
)


@problem(
    "profiling",
    "Padding by tiles",
    cases=("profiling.tiling_pad_3x5:expansion",),
    array=TILED,
    rows=(1, 3, 4, 7),
)
def padding_of_tiles(array: tuple[str, tuple[int, int], str], rows: int) -> Posed | None:
    dtype, (first, second), tiles = array
    text = f"{dtype}[{first * rows},{second}]{{1,0:{tiles}}}"
    placed = _read(text)
    other = placed.padded[0] / placed.physical[0]
    if placed.expansion < 1.06:
        return None
    tile = placed.tiles[0]
    if abs(other - placed.expansion) < 0.1 * placed.expansion:
        wrong = Trap(1.0, "The last tiles are not full, but take their whole place in memory.")
    else:
        wrong = Trap(other, f"The columns are rounded up to whole tiles of {tile[1]} too.")
    return Posed(
        ask=f"How many times the memory of its elements does {text} take, padding included?",
        answer=placed.expansion,
        hints=(
            "T(a,b) cuts the two minor dims into tiles; half-empty tiles take their whole place.",
            "round each dim up to a whole number of tiles, then divide the sizes",
        ),
        steps=(
            f"{_shown(placed.physical)} is padded to {_shown(placed.padded)} by tiles of {_shown(tile)}",
            (
                f"{count(placed.padded[0] * placed.padded[1])} / "
                f"{count(placed.physical[0] * placed.physical[1])} = {number(placed.expansion)}"
            ),
        ),
        traps=(wrong,),
        check=f'dscale hlo "{text}" | grep -E "padded to"',
        tolerance=0.01,
    )


@problem(
    "profiling",
    "Bytes with padding",
    cases=("profiling.tiling_pad_3x5:bytes",),
    array=TILED,
    rows=(1, 3, 4, 7),
)
def bytes_with_padding(array: tuple[str, tuple[int, int], str], rows: int) -> Posed | None:
    dtype, (first, second), tiles = array
    text = f"{dtype}[{first * rows},{second}]{{1,0:{tiles}}}"
    placed = _read(text)
    if placed.expansion < 1.06:
        return None
    return Posed(
        ask=f"How many bytes of memory does {text} take, padding included?",
        answer=float(placed.padded_bytes),
        dimension="bytes",
        hints=(
            "Round each dim up to a whole number of tiles first.",
            "bytes = padded rows · padded columns · bytes of an element",
        ),
        steps=(
            f"padded to {_shown(placed.padded)}",
            f"{_shown(placed.padded)} x {placed.bits // 8} bytes = {count(placed.padded_bytes)} bytes",
        ),
        traps=(
            Trap(
                float(placed.shape.bytes), "That is the elements alone; tiles that are not full take their whole place."
            ),
            Trap(
                float(placed.padded_bytes) * (2 if placed.bits == 16 else 0.5), f"{dtype} has {placed.bits // 8} bytes."
            ),
        ),
        check=f'dscale hlo "{text}" | grep -E "elements  |padded to"',
        tolerance=0.01,
    )


@problem(
    "profiling",
    "Where an element lies",
    tiles=("T(2,4)(2,1)", "T(2,4)", "T(4,4)", "T(2,2)", ""),
    shape=((4, 8), (4, 16), (8, 8)),
    row=(1, 0, 2, 3),
    column=(3, 1, 2, 5, 6),
    order=("1,0", "0,1"),
)
def place_of_an_element(tiles: str, shape: tuple[int, int], row: int, column: int, order: str) -> Posed | None:
    text = f"bf16[{shape[0]},{shape[1]}]{{{order}{':' + tiles if tiles else ''}}}"
    placed = _read(text)
    place = placed.offset((row, column))
    plain = row * shape[1] + column
    if place in (0, plain):
        return None
    tile = f"tiles {', then '.join(_shown(one) for one in placed.tiles)}" if placed.tiles else "no tiles"
    return Posed(
        ask=f"At which place in memory, counted in elements from 0, does the element [{row}, {column}] of {text} lie?",
        answer=float(place),
        whole=True,
        hints=(
            "The braces list dims from minor to major: {1,0} is row by row, {0,1} column by column.",
            ("Count the whole tiles before it, then its place inside its tile; a second pair cuts each tile again."),
        ),
        steps=(f"in memory {_shown(placed.physical)}, major to minor; {tile}", f"[{row}, {column}] lies at {place}"),
        traps=(Trap(float(plain), "That is row by row without the layout in braces."),),
        check=f'dscale hlo "{text}"',
    )


@problem(
    "profiling",
    "The order of dims in memory",
    shape=((8192, 8, 256, 1), (32, 1024, 16, 128), (4, 2048, 8, 64), (16, 128, 512, 2)),
    order=((2, 1, 0, 3), (3, 1, 2, 0), (3, 2, 1, 0), (1, 3, 2, 0), (0, 3, 2, 1), (2, 3, 1, 0)),
)
def order_in_memory(shape: tuple[int, ...], order: tuple[int, ...]) -> Posed | None:
    text = f"bf16[{','.join(map(str, shape))}]{{{','.join(map(str, order))}}}"
    placed = _read(text)
    orders = {
        _shown(placed.physical): True,
        _shown(shape): True,
        _shown(tuple(reversed(placed.physical))): True,
        _shown((*shape[1:], shape[0])): True,
    }
    if len(orders) < 3:
        return None
    return Posed(
        ask=f"How does {text} lie in memory, major to minor?",
        answer=_shown(placed.physical),
        hints=(
            "The number written first in the braces is the dim whose neighbours lie side by side.",
            "Read the braces from right to left: those are the dims from major to minor.",
        ),
        steps=(
            f"right to left: dims {', '.join(map(str, reversed(order)))}",
            f"their sizes: {_shown(placed.physical)}",
        ),
        check=f'dscale hlo "{text}" | grep "in memory"',
        options=tuple(sorted(orders)),
    )


@problem(
    "profiling",
    "Steps from row to row",
    shape=((4096, 8192), (1024, 512), (256, 28672), (128, 4096)),
    dtype=("bf16", "f32", "s8"),
    order=("0,1", "1,0"),
    dim=(1, 0),
)
def stride_of_a_dim(shape: tuple[int, int], dtype: str, order: str, dim: int) -> Posed | None:
    text = f"{dtype}[{shape[0]},{shape[1]}]{{{order}}}"
    placed = _read(text)
    one = tuple(int(place == dim) for place in range(2))
    apart = placed.offset(one) * placed.bits / 8
    other = placed.offset(tuple(1 - each for each in one)) * placed.bits / 8
    if placed.offset(one) == 1:
        return None
    where = f"[{one[0]}, {one[1]}]"
    return Posed(
        ask=f"In {text}, how many bytes lie between the beginnings of the elements [0, 0] and {where}?",
        answer=apart,
        dimension="bytes",
        hints=(
            "Which dim is the minor one, whose neighbours lie side by side?",
            "a step along the major dim skips a whole run of the minor one",
        ),
        steps=(
            f"minor dim: {order[0]}, of size {shape[int(order[0])]}",
            f"{shape[int(order[0])]} · {placed.bits // 8} = {amount(apart, 'bytes')}",
        ),
        traps=(
            Trap(other, "The braces begin with the minor dim; this step goes along the other."),
            Trap(apart / (placed.bits / 8) if placed.bits > 8 else 2 * apart, f"{dtype} has {placed.bits // 8} bytes."),
        ),
        check=f'dscale calc "{shape[int(order[0])]} * {placed.bits // 8} bytes"',
        tolerance=0.001,
    )
