"""Where the numbers of a chip and of its profiles come from: sources with their addresses, and in a sentence what the
measurements behind an expectation rest on."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.physics.collectives.profile_file import choose, tier_files
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import Torus
from dragonscale.physics.kernels.profile_file import choose as choose_kernels
from dragonscale.physics.kernels.profile_file import profile_files

RATE_FACTS = ("matrix.bf16", "matrix.fp8", "memory.hbm.bandwidth", "ici.link", "levels.node.bandwidth")
"""Facts of a chip that times at datasheet rates are made of."""
_ADDRESS = re.compile(r"https?://\S+")


@dataclass(frozen=True)
class Citation:
    """A source: its title, and its address where it has one."""

    text: str
    url: str = ""


@dataclass(frozen=True)
class ProfileBasis:
    """What an expectation rests on, in a sentence, with the sources of that."""

    text: str
    sources: tuple[Citation, ...] = ()


def fact_source(chip: Chip, path: str) -> Citation | None:
    """The source of a chip's fact (`matrix.bf16`), as the chip's file cites it; None where the chip has no such
    fact."""
    fact = chip.facts.get(path)
    if fact is None:
        return None
    # a citation is a title that ends in its address
    citation = chip.sources.get(fact.source, fact.source)
    address = _ADDRESS.search(citation)
    title = f"{chip.title}, {path}: {_ADDRESS.sub('', citation).strip()}"
    if fact.note:
        title += f" ({fact.note})"
    return Citation(title, address[0] if address else "")


def fact_sources(chip: Chip, paths: Iterable[str]) -> list[Citation]:
    """The sources of those of the named facts that the chip has."""
    return list(filter(None, (fact_source(chip, path) for path in paths)))


def fact_origin(chip: Chip, path: str) -> str:
    """The source of a fact as text; of a fact that the chip does not have, the chip's title."""
    source = fact_source(chip, path)
    return chip.title if source is None else source.text


def kernels_measured(chip: Chip, library: str, kinds: tuple[str, ...] = ("matmul",)) -> ProfileBasis:
    """How the kernels of a chip were measured; `kinds` are those whose errors are told (matmul, attention, decode)."""
    name = choose_kernels(chip, library)
    file = profile_files()[name]
    errors, cited = [], set()
    for kind in ("matmul", "attention", "decode"):
        tables = list(getattr(file, kind).values())
        if kind not in kinds or not tables:
            continue
        # the tables of a kind are fitted together, so the first speaks for all
        rests_on = tables[0].get("rests_on", {})
        cited.add(rests_on.get("source"))
        if rests_on.get("rows") and rests_on.get("median_ape") is not None:
            error = f"median error {rests_on['median_ape']:.1%}"
            errors.append(f"{kind} on {rests_on['rows']:,} measured kernels ({error})")
    text = f"Kernels go through the kernel profile {name} ({file.title}): {file.rests_on}"
    if chip.kernels:
        text = f"Kernels go through the profile that was given with the chip ({chip.kernels})."
    if errors:
        text += f" {'; '.join(errors).capitalize()}."
    sources = {key: source for key, source in file.sources.items() if key in cited} or file.sources
    return ProfileBasis(text.strip(), _profile_sources(sources))


def networks_measured(chip: Chip, transport: str = "ib") -> ProfileBasis:
    """How the networks of a chip were measured: its torus and the data-centre network, or its switches and fabric."""
    tiers = ("torus", "wide") if isinstance(chip.network, Torus) else ("domain", "fabric")
    sentences = ["Collectives go through network profiles."]
    sources: list[Citation] = []
    for tier in tiers:
        file = tier_files()[choose(tier, chip.kin, transport)]
        sentences.append(f"{file.title}: {file.rests_on}")
        sources += _profile_sources(file.sources)
    return ProfileBasis(" ".join(sentences), tuple(sources))


def _profile_sources(sources: Mapping[str, Any]) -> tuple[Citation, ...]:
    """The sources that a profile lists."""
    return tuple(Citation(f"{source.title} ({source.date})", source.url) for source in sources.values())
