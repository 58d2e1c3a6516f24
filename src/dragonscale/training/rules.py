"""Which mesh axes split which dims: a parallelism scheme, written down once.

The rules are those of the book and of every large trainer. The batch is split over `data`, `fsdp` and `expert`, the
sequence over `context` (and over `tensor` between the blocks, where nothing else is), heads, hidden dims and the
vocabulary over `tensor`, experts over `expert`. A weight's state is split further, along the model's width (or its first
remaining dim), over every axis that splits the tokens but not this weight, except `data`: `fsdp`, `context`, and `expert` for what is not an
expert's. Everything that must travel follows from these layouts; see `dragonscale.training.reading`.
"""

from dataclasses import dataclass

from dragonscale.models.program import Op, is_weight
from dragonscale.notation import Array

BATCH = ("data", "fsdp", "expert")
SHARDS = ("fsdp", "expert", "context")
"""The axes that ZeRO splits state over."""
TENSOR_DIMS = ("n", "k", "f", "z", "v", "i")
"""Query heads, KV heads, hidden dims, the shared experts' hidden dim, the vocabulary, an indexer's heads."""

Layout = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Rules:
    """The choices that change which collectives there are. `sequence` splits residuals over `tensor` (sequence
    parallelism); `zero` is the ZeRO stage; `folded` spreads experts over `tensor` too instead of slicing them; `ring`
    passes keys and values round the `context` axis instead of gathering them."""

    sequence: bool = True
    zero: int = 3
    folded: bool = True
    ring: bool = False

    def activation(self, array: Array) -> Array:
        """How an activation lies between lines."""
        split: Layout = {}
        names = array.names
        routed = "x" in names
        tensor_dim = next((name for name in TENSOR_DIMS if name in names), None)
        if routed and self.folded:
            tensor_dim = None
        for name in names:
            if name == "b":
                split[name] = ("data", "fsdp") if routed else BATCH
            elif name == "x":
                split[name] = ("expert",)
            elif name in ("t", "s"):
                spread = (self.sequence or (routed and self.folded)) and tensor_dim is None
                split[name] = ("context", "tensor") if spread and name == "t" else ("context",)
            elif name == tensor_dim:
                split[name] = ("tensor",)
        return array.with_layout(split)

    def weight(self, array: Array) -> Array:
        """How a weight is stored between its uses."""
        return self.state(array) if self.zero == 3 else array.with_layout(self._split(array))

    def state(self, array: Array) -> Array:
        """How a weight's optimizer state is stored."""
        split = self._split(array)
        taken = {axis for axes in split.values() for axis in axes}
        whole = [dim.name for dim in array.dims if dim.name not in split]
        rest = "d" if "d" in whole else next(iter(whole), None)  # the model's width divides by more than a head's does
        if self.zero >= 1 and rest is not None and len(array.dims) > 1:
            split[rest] = tuple(axis for axis in SHARDS if axis not in taken)
        return array.with_layout(split)

    def used(self, array: Array) -> Array:
        """How a weight lies while it is used."""
        return array.with_layout(self._split(array))

    def _split(self, array: Array) -> Layout:
        split: Layout = {}
        experts = any(dim.select for dim in array.dims)
        tensor_dim = (
            None if experts and self.folded else next((name for name in TENSOR_DIMS if name in array.names), None)
        )
        for dim in array.dims:
            if dim.select:
                split[dim.name] = ("expert", "tensor") if self.folded else ("expert",)
            elif dim.name == tensor_dim:
                split[dim.name] = ("tensor",)
        return split

    def computing(self, op: Op) -> Layout:
        """Which index each axis is given to while a line is computed."""
        names = [name for array in op.arrays for name in array.names]
        routed = "x" in names and any(dim.select for weight in op.weights for dim in weight.dims)
        tensor_dim = next((name for name in TENSOR_DIMS if name in names), None)
        if routed and self.folded:
            tensor_dim = None
        split: Layout = {"b": ("data", "fsdp") if routed else BATCH}
        spread = self.sequence or (routed and self.folded)
        split["t"] = ("context", "tensor") if tensor_dim is None and spread else ("context",)
        if routed:
            split["x"] = ("expert",)
        if tensor_dim is not None:
            split[tensor_dim] = ("tensor",)
        return split


def wanted(array: Array, split: Layout) -> Array:
    """An operand as a line computes with it; a picked dim (`e:x`) is split like the weight stores it."""
    if is_weight(array):
        kept = {
            dim.name: tuple(axis for axis in dim.axes if axis in ("expert", "tensor"))
            for dim in array.dims
            if dim.select
        }
        return array.with_layout({name: axes for name, axes in split.items() if name not in ("b", "t", "x")} | kept)
    return array.with_layout(split)
