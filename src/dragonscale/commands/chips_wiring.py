"""What joins chips, in words: links one way and both, switches and their ports, hosts; and what a peak gives."""

from dragonscale.errors import InputError
from dragonscale.physics.collectives.profile_file import choose, is_measured, load_tier
from dragonscale.physics.hardware import Chip, Torus
from dragonscale.physics.hardware.fat_tree import TreeSwitch, node_switch
from dragonscale.physics.kernels.matmul import matmul_seconds
from dragonscale.physics.kernels.profile_file import kernel_profile_for
from dragonscale.physics.units import render


def node_switches(chip: Chip) -> list[str]:
    """The NVSwitches of a node, with their ports and what they carry."""
    # NVSwitches of a node, and NVLinks of each of its GPUs
    count, links = (int(chip.structure.get(name, 0)) for name in ("nvswitches", "nvlink_links"))
    if not count or not links or isinstance(chip.network, Torus):
        return []
    return switch_text(node_switch(chip), f"{count} in a node", chip.network.levels[0].degree * links / count)


def switch_text(switch: TreeSwitch | None, where: str, used: float = 0.0) -> list[str]:
    if switch is None:
        return []
    each, whole = render(switch.link, "bytes/s"), render(switch.bandwidth, "bytes/s")
    ports = f"{switch.ports} ports{f' ({used:g} in use)' if used else ''}"
    return [f"{switch.title}, {where}: {ports} of {each} one way, {whole} a switch"]


def wires_text(chip: Chip) -> str:
    """The links of a torus in all the ways in which they are counted; empty under switches."""
    network = chip.network
    if not isinstance(network, Torus):
        return ""
    link, axis, total = (render(count * network.link, "bytes/s") for count in (1, 2, 2 * network.axes))
    text = f"{2 * network.axes} links of {link} one way, {axis} both ways"
    return f"{text}; out of a chip {axis} an axis, {total} over all {network.axes}"


# The side of the square matmul that stands for large ones.
SIDE = 8192


def achievable(chip: Chip) -> str:
    """The fractions of the peak that a large matmul, and of the links that collectives are expected to reach, and the
    profiles that say so; empty for kinds of chips without a kernel profile."""
    try:
        profile = kernel_profile_for(chip)
    except InputError:
        return ""
    # FLOPs over what the peak could do in that time
    part = 2 * SIDE**3 / (float(matmul_seconds(SIDE, SIDE, SIDE, "bf16", profile)) * chip.peak("bf16"))
    if profile.measured:
        measured = "fitted to measurements of it"
    else:
        measured = "not measured on it"
    return (
        f"{part:.0%} of the bf16 peak in a matmul of {SIDE:,} a side (kernel profile {profile.name}, {measured}); "
        f"by the book's rule of thumb 80 to 85% on GPUs, 95% on TPUs; {_collectives_reach(chip)}"
    )


def _collectives_reach(chip: Chip) -> str:
    """The fraction of its links' bandwidth that long collectives of a chip reach, and the network profile that says
    so."""
    kind = "torus" if isinstance(chip.network, Torus) else "domain"
    tier = load_tier(choose(kind, chip.kin))
    reached = f"{float(tier.paths['ring'].fraction):.0%} of its links in long collectives (network profile {tier.name}"
    if is_measured(kind, chip):
        return f"{reached})"
    return f"{reached}, not measured on it)"


def host_text(chip: Chip) -> str:
    """Chips of a host, and what each has to it and out of it."""
    shape = ""
    if chip.host_shape:
        shape = f" ({'x'.join(map(str, chip.host_shape))})"
    chips = f"{chip.host_chips} chip{'s' * (chip.host_chips > 1)}"
    if chip.unified:
        return f"{chips}; one memory for GPU and CPU"
    rates = [("PCIe", chip.pcie), ("DCN", chip.dcn if isinstance(chip.network, Torus) else None)]
    each = ", ".join(f"{name} {render(rate, 'bytes/s', 4)} a chip" for name, rate in rates if rate)
    return f"{chips}{shape}{f'; {each} one way' if each else ''}"
