"""Layouts as JAX writes them: `PartitionSpec`, to and from the book's notation.

A `PartitionSpec` lists the mesh axes of each dim by position; names and sizes of dims are not in it. Partial sums are
what JAX calls *unreduced*.

>>> from dragonscale.physics.notation import parse_array
>>> spec = to_partition_spec(parse_array("A[I_XY, J, K_Z]"))
>>> spec.partitions
(('X', 'Y'), None, 'Z')
>>> print(from_partition_spec(spec, "IJK", "bf16"))
bf16[I_XY, J, K_Z]
"""

import itertools
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
    dims = _partitions(array)
    if not array.partial:
        return make(*dims)
    try:
        return make(*dims, unreduced=frozenset(array.partial))
    except TypeError:
        why = "its PartitionSpec has no `unreduced`; JAX 0.8 has it."
        raise InputError(f"This JAX cannot write the partial sums of {array}: {why}") from None


def _partitions(array: Array) -> list[str | tuple[str, ...] | None]:
    """The axes of each dim: None for a whole dim, a bare name for one axis, a tuple for several."""
    partitions: list[str | tuple[str, ...] | None] = []
    for dim in array.dims:
        if len(dim.axes) == 1:
            partitions.append(dim.axes[0])
        else:
            partitions.append(dim.axes or None)
    return partitions


def partition_spec_text(array: Array) -> str:
    """The PartitionSpec of an array as text, which needs no JAX.

    >>> from dragonscale.physics.notation import parse_array
    >>> partition_spec_text(parse_array("A[I_XY, J, K_Z]{U_W}"))
    "P(('X', 'Y'), None, 'Z', unreduced={'W'})"
    """
    parts = list(map(repr, _partitions(array)))
    if array.partial:
        parts.append(f"unreduced={{{', '.join(map(repr, array.partial))}}}")
    return f"P({', '.join(parts)})"


def from_partition_spec(spec: "PartitionSpec", names: Iterable[str], dtype: str = "", name: str = "") -> Array:
    """The array with the layout of a PartitionSpec, given the names of its dims; dims that the spec leaves out are
    whole."""
    make = _partition_spec()
    if not isinstance(spec, make):
        raise InputError(f"{shorten(spec)} is not a PartitionSpec; write P('X', None) or use parse_array for text.")
    partitions = spec.partitions if hasattr(spec, "partitions") else tuple(spec)
    dim_names = tuple(names)
    if getattr(spec, "reduced", None):
        raise InputError(f"{spec} marks axes as reduced, which the notation does not write; drop `reduced`.")
    if len(partitions) > len(dim_names):
        raise InputError(f"{spec} splits {len(partitions)} dims and only {len(dim_names)} are named; name every dim.")
    dims: list[Dim] = []
    for dim_name, partition in itertools.zip_longest(dim_names, partitions):
        if partition is make.UNCONSTRAINED:
            raise InputError(f"{spec} leaves the dim {dim_name} unconstrained; say its axes, or None for a whole dim.")
        axes = (partition,) if isinstance(partition, str) else tuple(partition or ())
        dims.append(Dim(dim_name, None, axes))
    array = Array(name, tuple(dims), dtype, tuple(sorted(getattr(spec, "unreduced", ()))))
    for kind, used in (("dim", dim_names), ("mesh axis", (*array.axes, *array.partial))):
        repeated = [used_name for used_name in used if used.count(used_name) > 1]
        if repeated:
            raise InputError(f"In {array}, read from {spec}, the {kind} {repeated[0]} appears twice; it can only once.")
    return array
