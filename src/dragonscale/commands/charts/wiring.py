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


def slice_wiring(piece: Slice) -> str:
    """How the chips of a slice are wired."""
    network = piece.chip.network
    if not isinstance(network, Torus):
        nodes = -(-piece.chips // network.levels[0].degree)
        if nodes == 1:
            return f"one node of {piece.chips} chips" if piece.chips > 1 else "one chip"
        tiers = " and ".join(level.name for level in network.levels[1:])
        return f"{nodes:,} nodes of {network.levels[0].degree} chips under {tiers} switches"
    size = " x ".join(map(str, piece.shape))
    closed = [wraps for wraps, long in zip(piece.wrap, piece.shape, strict=True) if long > 1]
    links = "with wraparound links" if any(closed) else "without wraparound links"
    links += " on some axes" if any(closed) and not all(closed) else ""
    kind = f"{len(piece.shape)}D {'torus' if any(closed) else 'mesh'}"
    one = f"a {kind} of {size} chips {links if closed else ''}".strip()
    return one if piece.pods == 1 else f"{piece.pods} pods over the data-centre network, each {one}"


def axis_wiring(degrees: Mapping[str, int], piece: Slice) -> dict[str, str]:
    """What each axis runs over, axes given from the outermost to the innermost; empty where the mesh does not fit the
    slice."""
    axes = {name: degree for name, degree in degrees.items() if degree > 1}
    if not isinstance(piece.chip.network, Torus):
        return _switched(axes, piece)
    try:
        mesh = make_mesh(dict(axes), piece.chip, piece)
    except InputError:
        return {}
    names = [letter for letter, size in zip(LETTERS, piece.shape, strict=False) if size > 1]
    return {name: _rings(mesh.rings.get(name, ()), mesh.pods.get(name, 1), names) for name in axes}


def _rings(rings: tuple[Ring, ...], pods: int, names: list[str]) -> str:
    words = []
    for ring in rings:
        kind = "ring" if ring.closed else "line"
        apart = f", every {round(1 / ring.share)} chips" if ring.share < 1 else ""
        words.append(f"a {kind} of {ring.size} along {names[int(ring.axis)]}{apart}")
    across = [f"{pods} pods over the data-centre network"] if pods > 1 else []
    return " by ".join([*across, *words])


def _switched(axes: Mapping[str, int], piece: Slice) -> dict[str, str]:
    found, stride = {}, 1
    for name, degree in reversed(list(axes.items())):
        levels = piece.chip.network.levels  # pyright: ignore[reportAttributeAccessIssue]
        spans = [span for span in Switches(degree, levels, stride).spans if span.fan > 1]
        top = spans[-1].level.name if spans else levels[0].name
        found[name] = "inside a node" if top == levels[0].name else f"across nodes, under {top} switches"
        stride *= degree
    return {name: found[name] for name in axes}
