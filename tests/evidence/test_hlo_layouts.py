"""Where the elements of a tiled array lie, against an array that is really padded, cut and put in order."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.evidence.xla.layouts import JOINED, offsets, read_arrays


def in_memory(dims: tuple[int, ...], order: tuple[int, ...], tiles: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """The numbers of the elements in the order of memory, -1 for padding."""
    memory = np.arange(math.prod(dims)).reshape(dims).transpose(order[::-1])
    for tile in tiles:
        memory = memory.reshape((1,) * max(0, len(tile) - memory.ndim) + memory.shape)
        kept = memory.ndim - len(tile)
        sizes, parts, run = list(memory.shape[:kept]), [part for part in tile if part != JOINED], 1
        for size, part in zip(memory.shape[kept:], tile, strict=True):
            run *= size
            if part != JOINED:
                sizes.append(run)
                run = 1
        memory = memory.reshape(sizes)
        short = [(0, 0)] * kept + [(0, -size % part) for size, part in zip(sizes[kept:], parts, strict=True)]
        memory = np.pad(memory, short, constant_values=-1)
        cut = [each for size, part in zip(memory.shape[kept:], parts, strict=True) for each in (size // part, part)]
        places = [kept + place for place in (*range(0, len(cut), 2), *range(1, len(cut), 2))]
        memory = memory.reshape(*memory.shape[:kept], *cut).transpose(*range(kept), *places)
    return memory.ravel()


@st.composite
def layouts(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]:
    dims = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    order = tuple(draw(st.permutations(range(len(dims)))))
    part = st.one_of(st.integers(1, 4), st.just(JOINED))
    tile = st.tuples(st.lists(part, max_size=3), st.integers(1, 4)).map(lambda both: (*both[0], both[1]))
    return dims, order, tuple(draw(st.lists(tile, max_size=3)))


@given(layouts())
def test_every_element_lies_where_a_real_array_has_it(layout: Any) -> None:
    dims, order, tiles = layout
    written = "".join(f"({','.join('*' if part == JOINED else str(part) for part in tile)})" for tile in tiles)
    rest = f":T{written}" if tiles else ""
    (array,) = read_arrays(f"f32[{','.join(map(str, dims))}]{{{','.join(map(str, order))}{rest}}}")
    memory = in_memory(dims, order, tiles)
    assert array.padded_bytes == memory.size * 4
    assert [memory[place] for place in np.ravel(offsets(array))] == list(range(math.prod(dims)))


def test_layouts_that_say_nothing_about_the_order_of_elements() -> None:
    plain, marked = read_arrays("(s4[8,256]{1,0:T(8,128)(4,1)}, s4[8,256]{1,0:T(8,128)(4,1)L(1024)E(4)S(1)SC(0:4)})")
    assert (plain.shape, plain.tiles, plain.padded_bytes) == (marked.shape, marked.tiles, marked.padded_bytes)
    assert (plain.memory, marked.memory, plain.padded_bytes) == ("HBM", "VMEM", 8 * 256 // 2)
    assert [each.shape.dims for each in read_arrays("(f32[<=8,4]{1,0}, token[], opaque[], u32[]{:S(2)})")] == [
        (8, 4),
        (),
        (),
        (),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "f32[8,8]{1,0:T(8,*)}",
        "f32[8,8]{1,1}",
        "f32[8,8]{1,0:T(0,8)}",
        f"f32[{10**10},{10**10}]",
        f"f32[{','.join('1' * 99)}]",
        "q7[8]",
    ],
)
def test_what_cannot_be_a_layout_is_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]+\.$"):
        read_arrays(text)
