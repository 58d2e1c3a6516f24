"""Expected times of collectives through the efficiency profile of the wires at hand."""

from dragonscale.collectives import Group, Options
from dragonscale.collectives.profile import expected_time
from dragonscale.collectives.profile_file import profile_for
from dragonscale.sharding.mesh import Mesh


def expected_collective(kind: str, volume: float, group: Group, mesh: Mesh, options: Options) -> float:
    """What a good implementation should see."""
    assert mesh.chip is not None
    return float(expected_time(kind, volume, group, profile_for(mesh.chip), options))
