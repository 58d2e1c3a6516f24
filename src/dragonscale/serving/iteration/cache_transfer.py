"""Sending a prompt's KV cache from a prefill replica to a decode replica."""

from dragonscale.physics.hardware import Chip, Torus

CACHE_LATENCY_S = 2e-5
"""Seconds before the first byte of a cache arrives at another replica: a remote write and its notification."""


def port_bandwidth(chip: Chip) -> float:
    """Bytes per second that one chip can send out of its node or slice."""
    if isinstance(chip.network, Torus) or len(chip.network.levels) < 2:
        return float(chip.dcn or chip.host_link)
    # the chips of a node share its uplink
    node, fabric = chip.network.levels[:2]
    return float(fabric.bandwidth / node.degree)
