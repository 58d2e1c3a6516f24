"""What an expectation rests on: the kernel and network profiles, and the stack or engine, each with its source."""

from dragonscale.physics.collectives.profile_file import choose, tier_files
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import Torus
from dragonscale.physics.kernels.profile_file import choose as choose_kernels
from dragonscale.physics.kernels.profile_file import profile_files
from dragonscale.web.derivations.pieces import Piece, profile_sources

USED = ["matrix.bf16", "matrix.fp8", "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth"]
"""Facts of a chip that times at datasheet rates are made of."""


def kernel_sentence(chip: Chip, library: str, kinds: tuple[str, ...] = ()) -> tuple[str, list[Piece]]:
    """How the chip's kernels were measured, and the sources of that."""
    name = choose_kernels(chip, library)
    file = profile_files()[name]
    tables = [
        (kind, one.get("rests_on", {}))
        for kind in ("matmul", "attention", "decode")
        if kind in (kinds or ("matmul",))
        for one in list(getattr(file, kind).values())[:1]
    ]
    measured = [
        f"{kind} on {rests['rows']:,} measured kernels (median error {rests['median_ape']:.1%})"
        for kind, rests in tables
        if rests.get("rows") and rests.get("median_ape") is not None
    ]
    where = f"kernel profile {name} ({file.title})"
    text = f"Kernels go through the {where}: {file.rests_on}"
    if chip.kernels:
        text = f"Kernels go through the profile that was given with the chip ({chip.kernels})."
    used = {rests.get("source") for _, rests in tables}
    listed = {key: one for key, one in file.sources.items() if key in used} or file.sources
    return f"{text} {'; '.join(measured).capitalize() + '.' if measured else ''}".strip(), profile_sources(listed)


def network_sentence(chip: Chip, transport: str = "ib") -> tuple[str, list[Piece]]:
    """How the chip's networks were measured, and the sources of that."""
    tiers = ("torus", "wide") if isinstance(chip.network, Torus) else ("domain", "fabric")
    said, found = [], list[Piece]()
    for tier in tiers[:2]:
        file = tier_files()[choose(tier, chip.kin, transport)]
        said.append(f"{file.title}: {file.rests_on}")
        found += profile_sources(file.sources)
    return f"Collectives go through network profiles. {' '.join(said)}", found
