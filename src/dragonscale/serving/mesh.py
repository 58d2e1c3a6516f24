"""The mesh of a serving plan. What a plan calls `tensor` is three axes here, because experts and the cache may use a
part of it each: `expert` deals out experts, `share` is what lies beyond the KV heads, `tensor` is the rest; heads,
hidden dims and the vocabulary are split over all three (`dragonscale.plan.rules`)."""

import numpy

from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.serving.plan import ServingPlan

HEADS = ("expert", "tensor", "share")


def mesh_axes(plan: ServingPlan, kv_heads: Number) -> dict[str, Number]:
    """The sizes of the mesh axes of a plan, whose numbers may be arrays. `kv_heads` are those of the layer with the
    fewest."""
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


def shared_kv(dims: dict[str, Number], mesh: Mesh) -> bool:
    """Whether chips with query heads of their own share KV heads evenly: each of a compiled program's then has a copy
    of one."""
    many = numpy.ravel(mesh.size(*HEADS))[0]  # plans that are judged together are split alike
    return bool("k" in dims and dims["k"] < many and many % dims["k"] == 0 and dims["n"] % many == 0)
