"""The book's notation for one sharded array: `bf16[B_X, D_YZ]{U_W}`.

An array has named dims. A subscript on a dim names the mesh axes it is split over, major axis first: `D_YZ` is split
over Y, and each part over Z. Axes with longer names go in braces, `B_{data,fsdp}`. A dim may carry its size
(`B=1024_X`, or just `8192_X` for a dim without a name). `{U_X}` after the array says that the copies along X are
partial sums which still have to be added up.

>>> array = parse_array("A:bf16[I_XY, J=4096]{U_Z}")
>>> array.name, array.dtype, array.partial
('A', 'bf16', ('Z',))
>>> [(dim.name, dim.size, dim.axes) for dim in array.dims]
[('I', None, ('X', 'Y')), ('J', 4096, ())]
>>> print(array)
A:bf16[I_XY, J=4096]{U_Z}

Errors name what is wrong in the notation:

>>> parse_array("A[I_X, J_X]")
Traceback (most recent call last):
    ...
dragonscale.errors.InputError: In 'A[I_X, J_X]' the mesh axis X is used twice; an axis can split an array only once.
"""

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.units import DTYPE_BYTES, parse_count

DTYPE_NAMES = tuple(DTYPE_BYTES)
MAX_LENGTH = 4000

# Greek letters and primes too: the book writes names such as α and D'.
_NAME = r"[A-Za-zα-ωΑ-Ω][A-Za-z0-9α-ωΑ-Ω']*"
_ARRAY = re.compile(
    r"\s*(?:(?P<head>[A-Za-z_][\w']*)\s*(?::\s*(?P<dtype>\w+)\s*)?)?\[(?P<dims>[^\[\]]*)\]\s*(?:\{(?P<partial>[^{}]*)\}\s*)?"
)
_DIM = re.compile(
    rf"(?:(?P<name>{_NAME})(?::(?P<select>{_NAME}))?)?(?P<eq>=)?(?P<size>[^\s_=:{{}}]+)?(?:_(?P<axes>\S*))?"
)
# Mesh axes that can be written without braces: X, Y1 (several in a row), or one lower-case word.
_LETTERS = re.compile(r"(?:[A-Z]\d*)+")
# A name that is a misspelt dtype rather than an array's name.
_LIKE_A_DTYPE = re.compile(r"(?:bf|fp|int|uint|mxfp|nvfp|float)\d+")
_WORD = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True)
class Dim:
    """One dimension: its name (empty if it only has a size), its size if given, and the mesh axes that split it.

    `select` names the index that picks entries of this dim instead of summing over it: in `W[e:x, d, f]` each of a
    token's `x` choices uses one expert `e`.
    """

    name: str
    size: int | None = None
    axes: tuple[str, ...] = ()
    select: str = ""

    def __str__(self) -> str:
        text = self.name
        if self.select:
            text += f":{self.select}"
        if self.size is not None:
            separator = "=" if self.name else ""
            text += f"{separator}{self.size}"
        return text + subscript(self.axes)


@dataclass(frozen=True)
class Array:
    """A named, typed, sharded array."""

    name: str
    dims: tuple[Dim, ...]
    dtype: str = ""
    partial: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ":".join(filter(None, (self.name, self.dtype)))
        text = f"{head}[{', '.join(map(str, self.dims))}]"
        if self.partial:
            text += f"{{U{subscript(self.partial)}}}"
        return text

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the dims, in order."""
        return tuple(dim.name for dim in self.dims)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Every mesh axis that splits a dim, in order."""
        return tuple(axis for dim in self.dims for axis in dim.axes)

    def dim(self, name: str) -> Dim:
        """The dim of this name."""
        return next(dim for dim in self.dims if dim.name == name)

    def with_layout(self, layout: dict[str, tuple[str, ...]], partial: tuple[str, ...] = ()) -> "Array":
        """The same array in another layout: the mesh axes of each dim that `layout` names; other dims are whole."""
        # written out, as a search makes hundreds of thousands of layouts and `replace` takes ten times as long
        dims = tuple(Dim(dim.name, dim.size, layout.get(dim.name, ()), dim.select) for dim in self.dims)
        return Array(self.name, dims, self.dtype, partial)


def without(axes: Iterable[str], removed: Container[str]) -> tuple[str, ...]:
    """The axes that are not among the removed ones, in order.

    >>> without(("X", "Y", "Z"), ("Y",))
    ('X', 'Z')
    """
    return tuple(axis for axis in axes if axis not in removed)


def subscript(axes: tuple[str, ...]) -> str:
    """The axes as a subscript: `_XY`, or `_{data,fsdp}` when the names are long."""
    if not axes:
        return ""
    if all(map(_LETTERS.fullmatch, axes)):
        return "_" + "".join(axes)
    if len(axes) == 1 and _WORD.fullmatch(axes[0]):
        return f"_{axes[0]}"
    return f"_{{{','.join(axes)}}}"


def parse_axes(text: str, whole: str) -> tuple[str, ...]:
    """The axes of a subscript.

    >>> parse_axes("XY", ""), parse_axes("{data,fsdp}", ""), parse_axes("data", "")
    (('X', 'Y'), ('data', 'fsdp'), ('data',))
    """
    at = f"In {shorten(whole)} the"
    if text.startswith("{") and text.endswith("}"):
        axes = tuple(map(str.strip, text[1:-1].split(",")))
        if not all(re.fullmatch(r"[A-Za-z]\w*", axis) for axis in axes):
            raise InputError(f"{at} axes {shorten(text)} are not names separated by commas, as in '_{{data,fsdp}}'.")
        return axes
    if _LETTERS.fullmatch(text):
        return tuple(re.findall(r"[A-Z]\d*", text))
    if _WORD.fullmatch(text):
        return (text,)
    shown = shorten("_" + text)
    raise InputError(f"{at} subscript {shown} is not mesh axes; write '_XY', '_data' or '_{{data,fsdp}}'.")


def split_top(text: str, separators: str) -> Iterator[str]:
    """Split at separators that stand outside brackets and braces.

    >>> list(split_top("A[I, J], B[J_{a,b}]", ","))
    ['A[I, J]', ' B[J_{a,b}]']
    """
    depth = 0  # open brackets and braces
    start = 0  # of the current part
    for position, character in enumerate(text):
        depth += (character in "[{(") - (character in "]})")
        if depth == 0 and character in separators:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _parse_dim(text: str, whole: str) -> Dim:
    text = text.strip()
    match, at = _DIM.fullmatch(text), f"In {shorten(whole)} the dim {shorten(text)}"
    if not text or match is None or not (match["name"] or match["size"]):
        raise InputError(f"{at} is not a name or size with mesh axes, such as 'B', 'D_XY' or '8192_X'.")
    if match["name"] and match["size"] and not match["eq"]:
        raise InputError(f"{at} mixes a name and a size; write {match['name']}={match['size']}.")
    size = None
    if match["size"]:
        size = parse_count(match["size"], f"the dim {shorten(text)} in {shorten(whole)}")
        if size == 0:
            raise InputError(f"{at} has size 0; a dim has at least one element.")
    axes: tuple[str, ...] = ()
    if match["axes"] is not None:  # "B_" has an empty subscript, which is refused
        axes = parse_axes(match["axes"], whole)
    return Dim(match["name"] or "", size, axes, match["select"] or "")


def _parse_partial(text: str | None, whole: str) -> tuple[str, ...]:
    if text is None:
        return ()
    if not text.strip().startswith("U_"):
        raise InputError(
            f"In {shorten(whole)} the braces hold {shorten(text)}; partial sums over X are written '{{U_X}}'."
        )
    return parse_axes(text.strip()[2:], whole)


def parse_array(text: str) -> Array:
    """Read one array. See the module's examples."""
    if len(text) > MAX_LENGTH:
        raise InputError(f"The array {shorten(text)} is {len(text)} characters long; {MAX_LENGTH} are allowed.")
    match = _ARRAY.fullmatch(text)
    if match is None:
        advice = "write a name or dtype and its dims, such as 'A[I_X, J]' or 'bf16[B, 8192]'."
        raise InputError(f"{shorten(text)} is not an array; {advice}")
    name, dtype = match["head"] or "", match["dtype"] or ""
    if dtype and dtype not in DTYPE_NAMES:
        raise unknown("dtype", dtype, DTYPE_NAMES)
    if not dtype and name in DTYPE_NAMES:  # bf16[B, D] has a dtype and no name
        name, dtype = "", name
    elif not dtype and _LIKE_A_DTYPE.fullmatch(name):
        raise unknown("dtype", name, DTYPE_NAMES)
    whole = text.strip()
    dims: tuple[Dim, ...] = ()
    if match["dims"].strip():
        dims = tuple(_parse_dim(part, whole) for part in split_top(match["dims"], ","))
    array = Array(name, dims, dtype, _parse_partial(match["partial"], whole))
    _check(array, whole)
    return array


def _check(array: Array, whole: str) -> None:
    """Refuse a mesh axis or a dim that appears twice."""
    axes = (*array.axes, *array.partial)
    at = f"In {shorten(whole)} the"
    for axis in axes:
        if axes.count(axis) > 1:
            raise InputError(f"{at} mesh axis {axis} is used twice; an axis can split an array only once.")
    for name in array.names:
        if name and array.names.count(name) > 1:  # dims known only by size have no name
            raise InputError(f"{at} dim {name} appears twice; a diagonal is not an einsum of the book's kind.")
