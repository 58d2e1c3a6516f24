"""Which mesh axes split which dims while serving: the layouts from which every collective of an iteration follows.

A plan's numbers become seven mesh axes. `data` splits the batch; `context` splits the cache along the sequence (and the
tokens of a prompt); `width` splits the model's width. What a plan calls `tensor` is three axes here, because experts and
the cache may use a part of it each: `expert` deals out experts, `share` is what lies beyond the KV heads, `tensor` is
the rest; heads, hidden dims and the vocabulary are split over all three. Weights never move: activations do.
"""

from dataclasses import dataclass

from dragonscale.models.program import is_weight
from dragonscale.notation import Array
from dragonscale.numbers import Number, maximum, minimum, where
from dragonscale.serving.plan import ServingPlan

MESH = ("pipe", "data", "context", "width", "expert", "tensor", "share")
HEADS = ("expert", "tensor", "share")
SPLIT = ("n", "k", "f", "z", "v", "i", "u", "mn", "mk", "f1", "d1", "vl")
"""Dims that `tensor` splits: heads of every kind, hidden dims, the vocabulary."""
DEALT = ("data", "expert")
"""The axes over which experts are dealt out."""
SLICED = ("tensor", "share")
"""The axes over which each expert is sliced."""

Layout = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class ServingRules:
    """How arrays lie. `spread` is the plan's; `prompt` says whether tokens of prompts are computed (split over
    `context`), or single tokens of many sequences (copied along it); `exchange` whether tokens travel to the experts of
    other `data` places by AllToAll, or everybody gathers all tokens."""

    spread: str = "copy"
    prompt: bool = False
    exchange: bool = False

    def weight(self, array: Array) -> Array:
        """A weight at rest and in use."""
        split: Layout = {}
        experts = any(dim.select for dim in array.dims)
        for dim in array.dims:
            if dim.select:
                split[dim.name] = DEALT
            elif dim.name in SPLIT and not any(axis in used for used in split.values() for axis in SLICED):
                split[dim.name] = SLICED if experts else HEADS
            elif dim.name == "d":
                split[dim.name] = ("width",)
        return array.with_layout(split)

    def activation(self, array: Array) -> Array:
        """An activation between lines. What belongs to experts lies with them."""
        split: Layout = {}
        routed = "x" in array.names and "e" not in array.names
        taken = False
        for name in array.names:
            if name == "b":
                split[name] = () if routed else ("data",)
            elif name == "x":
                split[name] = DEALT
            elif name == "t":
                split[name] = ("context",) if self.prompt else ()
            elif name in SPLIT and not taken:
                split[name] = SLICED if routed else HEADS
                taken = True
            elif name == "d":
                split[name] = ("width",)
        return array.with_layout(split)

    def attending(self, array: Array) -> Array:
        """A query, a cached array or a result while attention runs. The cache also lies like this."""
        split: Layout = {}
        batch, sequence, copy = (self.spread == kind for kind in ("batch", "sequence", "copy"))
        for name in array.names:
            if name == "b":
                split[name] = ("data", "share") if batch else ("data",)
            elif name == "t":
                split[name] = ("context",) if self.prompt else ()
            elif name in ("s", "m"):
                split[name] = (() if self.prompt else ("context",)) + (("share",) if sequence else ())
            elif name in SPLIT:
                split[name] = HEADS if copy else ("expert", "tensor")
        return array.with_layout(split)

    def cached(self, array: Array) -> Array:
        """An array of the cache at rest: split along the sequence whatever is computed."""
        laid = self.attending(array)
        names = {dim.name: dim.axes for dim in laid.dims}
        return laid.with_layout(
            names
            | {
                name: ("context", *(("share",) if self.spread == "sequence" else ()))
                for name in ("s", "m")
                if name in names
            }
        )

    def joined(self) -> tuple[str, ...]:
        """The axes over which attention's result is a partial sum, to be joined with its softmax statistics."""
        parts = () if self.prompt else ("context",)
        return (*parts, "share") if self.spread == "sequence" else parts

    def laid(self, array: Array) -> Array:
        """Either kind of array at rest."""
        return self.weight(array) if is_weight(array) else self.activation(array)


def mesh_axes(plan: ServingPlan, kv_heads: Number) -> dict[str, Number]:
    """The sizes of the mesh axes of a plan, whose numbers may be arrays. `kv_heads` are those of the layer with the fewest."""
    dealt = maximum(plan.expert / plan.data, 1)
    rest = plan.tensor / dealt
    beyond = minimum(maximum(plan.tensor / kv_heads, 1), rest) if plan.spread != "copy" else where(rest > 0, 1, 1)
    return {
        "pipe": plan.pipe,
        "data": plan.data,
        "context": plan.context,
        "width": plan.width,
        "expert": dealt,
        "tensor": rest / beyond,
        "share": beyond,
    }
