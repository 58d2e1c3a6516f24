"""JAX's spelling of a layout: `PartitionSpec`, to and from the book's notation.

A `PartitionSpec` lists the mesh axes of each dim by position; names and sizes of dims are not in it. Partial sums are
what JAX calls *unreduced*.

>>> from dragonscale.physics.notation import parse_array
>>> spec = to_partition_spec(parse_array("A[I_XY, J, K_Z]"))
>>> spec.partitions
(('X', 'Y'), None, 'Z')
>>> print(from_partition_spec(spec, "IJK", "bf16"))
bf16[I_XY, J, K_Z]
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError, shorten
from dragonscale.physics.notation import Array, Dim

if TYPE_CHECKING:
    from jax.sharding import PartitionSpec


def _partition_spec() -> Any:
    try:
        from jax.sharding import PartitionSpec
    except ImportError:
        raise InputError("Converting to a PartitionSpec needs JAX; install dragonscale[jax].") from None
    return PartitionSpec


def to_partition_spec(array: Array) -> "PartitionSpec":
    """The layout of an array as JAX writes it; partial sums become `unreduced`."""
    make = _partition_spec()
    dims = [dim.axes[0] if len(dim.axes) == 1 else dim.axes or None for dim in array.dims]
    if not array.partial:
        return make(*dims)
    try:
        return make(*dims, unreduced=frozenset(array.partial))
    except TypeError:
        lacks = "its PartitionSpec has no `unreduced`; JAX 0.8 has it."
        raise InputError(f"This JAX cannot write the partial sums of {array}: {lacks}") from None


def partition_spec_text(array: Array) -> str:
    """The same as text, for which no JAX is needed.

    >>> from dragonscale.physics.notation import parse_array
    >>> partition_spec_text(parse_array("A[I_XY, J, K_Z]{U_W}"))
    "P(('X', 'Y'), None, 'Z', unreduced={'W'})"
    """
    parts = [repr(dim.axes[0] if len(dim.axes) == 1 else dim.axes or None) for dim in array.dims]
    if array.partial:
        parts.append(f"unreduced={{{', '.join(map(repr, array.partial))}}}")
    return f"P({', '.join(parts)})"


def from_partition_spec(spec: "PartitionSpec", names: Iterable[str], dtype: str = "", name: str = "") -> Array:
    """The array of which JAX writes this layout, given the names of its dims; dims the spec leaves out are whole."""
    make = _partition_spec()
    if not isinstance(spec, make):
        raise InputError(f"{shorten(spec)} is not a PartitionSpec; write P('X', None) or use parse_array for text.")
    parts, called = spec.partitions if hasattr(spec, "partitions") else tuple(spec), tuple(names)
    if getattr(spec, "reduced", None):
        raise InputError(f"{spec} marks axes as reduced, which the notation does not write; drop `reduced`.")
    if len(parts) > len(called):
        raise InputError(f"{spec} splits {len(parts)} dims and only {len(called)} are named; name every dim.")
    dims = []
    for dim, part in zip(called, (*parts, *[None] * (len(called) - len(parts))), strict=True):
        if part is make.UNCONSTRAINED:
            raise InputError(f"{spec} leaves the dim {dim} unconstrained; say its axes, or None for a whole dim.")
        axes = () if part is None else (part,) if isinstance(part, str) else tuple(part)
        dims.append(Dim(dim, None, axes))
    array = Array(name, tuple(dims), dtype, tuple(sorted(getattr(spec, "unreduced", ()))))
    for what, used in (("dim", called), ("mesh axis", (*array.axes, *array.partial))):
        twice = [each for each in used if used.count(each) > 1]
        if twice:
            raise InputError(f"In {array}, read from {spec}, the {what} {twice[0]} appears twice; it can only once.")
    return array
