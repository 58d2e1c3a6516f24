"""What a mesh lies on, in words: the rings and lines of a torus, or the tiers of switches, that each axis runs over.

>>> from dragonscale.physics.hardware import parse_slice
>>> axis_wiring({"fsdp": 512, "context": 4}, parse_slice("v5p:8x16x16"))["context"]
'a line of 4 along z'
>>> axis_wiring({"fsdp": 8, "tensor": 8}, parse_slice("h100:64"))
{'fsdp': 'across nodes, under leaf switches', 'tensor': 'inside a node'}
>>> slice_wiring(parse_slice("v5p:8x16x16"))
'a 3D torus of 8 x 16 x 16 chips with wraparound links'
"""

from collections.abc import Mapping

from dragonscale.errors import InputError
from dragonscale.physics.collectives import Ring, Switches
from dragonscale.physics.hardware import Slice, Torus
from dragonscale.physics.sharding.mesh import make_mesh

LETTERS = "xyz"


def slice_wiring(slice_: Slice) -> str:
    """How the chips of a slice are wired."""
    network = slice_.chip.network
    if not isinstance(network, Torus):
        # rounded up
        nodes = -(-slice_.chips // network.levels[0].degree)
        if slice_.chips == 1:
            return "one chip"
        if nodes == 1:
            return f"one node of {slice_.chips} chips"
        tiers = " and ".join(level.name for level in network.levels[1:])
        return f"{nodes:,} nodes of {network.levels[0].degree} chips under {tiers} switches"
    size = " x ".join(map(str, slice_.shape))
    closed = [wraps for wraps, long in zip(slice_.wrap, slice_.shape, strict=True) if long > 1]
    if any(closed):
        links = "with wraparound links"
    else:
        links = "without wraparound links"
    if any(closed) and not all(closed):
        links += " on some axes"
    kind = f"{len(slice_.shape)}D {'torus' if any(closed) else 'mesh'}"
    text = f"a {kind} of {size} chips {links if closed else ''}".strip()
    if slice_.pods == 1:
        return text
    return f"{slice_.pods} pods over the data-centre network, each {text}"


def axis_wiring(degrees: Mapping[str, int], slice_: Slice) -> dict[str, str]:
    """What each axis runs over, axes given from the outermost to the innermost; empty where the mesh does not fit the
    slice."""
    axes = {name: degree for name, degree in degrees.items() if degree > 1}
    if not isinstance(slice_.chip.network, Torus):
        return _switched(axes, slice_)
    try:
        mesh = make_mesh(dict(axes), slice_.chip, slice_)
    except InputError:
        return {}
    names = [letter for letter, size in zip(LETTERS, slice_.shape, strict=False) if size > 1]
    return {name: _rings(mesh.rings.get(name, ()), mesh.pods.get(name, 1), names) for name in axes}


def _rings(rings: tuple[Ring, ...], pods: int, names: list[str]) -> str:
    texts = []
    for ring in rings:
        kind = "ring" if ring.closed else "line"
        stride = ""
        if ring.share < 1:
            stride = f", every {round(1 / ring.share)} chips"
        texts.append(f"a {kind} of {ring.size} along {names[int(ring.axis)]}{stride}")
    if pods > 1:
        texts.insert(0, f"{pods} pods over the data-centre network")
    return " by ".join(texts)


def _switched(axes: Mapping[str, int], slice_: Slice) -> dict[str, str]:
    wiring, stride = {}, 1
    # the innermost axis lies nearest: inside a node first
    for name, degree in reversed(list(axes.items())):
        levels = slice_.chip.network.levels  # pyright: ignore[reportAttributeAccessIssue]
        spans = [span for span in Switches(degree, levels, stride).spans if span.fan > 1]
        top = spans[-1].level.name if spans else levels[0].name
        wiring[name] = "inside a node" if top == levels[0].name else f"across nodes, under {top} switches"
        stride *= degree
    return {name: wiring[name] for name in axes}
