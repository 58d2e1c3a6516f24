"""What-if chips: `hbm=1.5x`, `nvlink=2x`, `flops=1PFLOP/s` change the numbers of a chip.

A change is a factor, or a value with its unit. It may follow a chip's name anywhere, so that every question can be
asked about a chip that does not exist: `h100+nvlink=2x:64`. The changed chip keeps that name, so it can be saved, read
back and compared with the chip it starts from, whose software and measured efficiencies it shares.

`profile=mine.toml` takes a kernel profile of the user's, as `dscale calibrate` writes it, instead of the measured
efficiencies. `oversubscription=4` leaves leaf switches a quarter of the cables up to the spines, and `wan=512@100Gb/s`
puts every 512 chips into a site of their own.

>>> from dragonscale.physics.hardware.catalogue import load_chip
>>> faster = changed_chip(load_chip("h100"), "hbm=2x", "nvlink=900GB/s")
>>> faster.name, faster.hbm.bandwidth, faster.network.levels[0].bandwidth
('h100+hbm=2x+nvlink=900GB/s', 6700000000000.0, 900000000000.0)
"""

import math
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.physics.hardware.chip import WHAT_IF, Chip, Level, Quantity, Torus, Tree, assemble
from dragonscale.physics.units import parse, whole_match
from dragonscale.tables import beside

_FILE = beside(__file__, "changes.toml")
KNOBS: tuple[str, ...] = tuple(_FILE["knobs"])
_FABRIC: tuple[str, ...] = tuple(_FILE["fabric"])
_SPELLINGS: dict[str, str] = _FILE["spellings"]
_CHANGES = re.compile(r"(?P<chip>[^+]*(?:\+[^+=]*)*?)(?P<changes>(?:\+[^+=]*=[^+]*)+)")
_TOPOLOGY = re.compile(r"(:[0-9xX×*]+|\*[0-9]+)\Z")
_FACTOR = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*[xX×]")
MAX_FACTOR = 1e4
PROFILE = "profile"
WAN_LATENCY = 10e-3
"""Seconds between two sites: 2,000 km of fibre at 200,000 km/s."""


def split_changes(text: str) -> tuple[str, tuple[str, ...]]:
    """A chip's name and the changes after it.

    >>> split_changes("h100+hbm=1.5x+ib=2x"), split_changes("my+chip.toml")
    (('h100', ('hbm=1.5x', 'ib=2x')), ('my+chip.toml', ()))
    """
    match = whole_match(_CHANGES, text, 500)
    if match is None:
        return text, ()
    return match["chip"], tuple(match["changes"][1:].split("+"))


def with_changes(on: Any, changes: str) -> Any:
    """A chip, a slice, or the names of several, each with the changes (comma-separated) after its chip.

    >>> with_changes("h100:8, v5e", "hbm=2x,flops=2x")
    'h100+hbm=2x+flops=2x:8,v5e+hbm=2x+flops=2x'
    """
    parts = split_list(changes)
    if not parts:
        return on
    if isinstance(on, Chip):
        return changed_chip(on, *parts)
    if isinstance(on, list | tuple):
        return [with_changes(target, changes) for target in on]
    if not isinstance(on, str):  # a slice
        return replace(on, chip=changed_chip(on.chip, *parts))
    if on.strip().lower() in ("", "any", "all"):
        raise InputError(f"--set changes chips that are named, and --on is {on.strip()!r}; write e.g. --on h100:8.")
    added = "".join("+{}={}".format(*read_change(part)) for part in parts)
    changed: list[str] = []
    for name in map(str.strip, on.split(",")):
        # changes stand between the chip and its topology: h100+hbm=2x:8
        topology = "".join(_TOPOLOGY.findall(name))
        changed.append(name.removesuffix(topology) + added + topology)
    return ",".join(changed)


def split_list(text: str) -> list[str]:
    """The entries of a comma-separated list that are not empty."""
    return [part.strip() for part in text.split(",") if part.strip()]


def read_change(text: str) -> tuple[str, str]:
    """The name and the value of a change.

    >>> read_change("IB = 2x")
    ('network', '2x')
    """
    name, equals, value = map(str.strip, text.partition("="))
    if name.lower() == PROFILE and equals and value:
        return PROFILE, value
    if not equals or not value:
        raise InputError(f"The change {shorten(text)} is not NAME=VALUE; write e.g. hbm=1.5x or nvlink=900GB/s.")
    if "." in name:  # the path of a fact
        return name, value
    name = _SPELLINGS.get(name.lower(), name.lower())
    # a spelling may mean the path of a fact (fp8: matrix.fp8)
    if name not in (*KNOBS, *_FABRIC) and "." not in name:
        raise unknown("change to a chip called", name, [*KNOBS, *_FABRIC, *_SPELLINGS])
    return name, value


def check_effect(changes: str, *questions: str, kind: str = "") -> None:
    """Refuse changes (`--set`, comma-separated) that have no effect on the answers to these kinds of questions, for a
    kind of chip; `changes.toml` lists them. Where an answer needs several kinds (RL trains and serves), a change that
    affects one of them is enough.

    >>> check_effect("hbm=2x", "serving")
    >>> check_effect("power=350W", "training", "serving")
    >>> check_effect("power=350W", "serving")
    Traceback (most recent call last):
    dragonscale.errors.InputError: --set power=350W would change nothing here: serving times do not follow a power ...
    """
    for part in split_list(changes):
        name = read_change(part)[0]
        reasons = [_without_effect(name, question, kind) for question in questions]
        if all(reasons):
            raise InputError(f"--set {part} would change nothing here: {reasons[0]}. Leave it out.")


def _without_effect(name: str, question: str, kind: str) -> str:
    """Why a change of a fact changes nothing in the answer to a kind of question; empty where it does."""
    for row in _FILE["without_effect"]:
        is_listed = any(fnmatchcase(name, pattern) for pattern in row["changes"])
        if is_listed and question in row["questions"] and kind in row.get("kinds", [kind]):
            return str(row["why"])
    return ""


def changed_chip(chip: Chip, *changes: str) -> Chip:
    """The chip with some of its numbers changed; the changes stand in its name."""
    result, kernels = chip, chip.kernels
    written: dict[str, str] = {}  # each change as it stands in the new name
    for text in changes:
        name, value = read_change(text)
        if name in written:
            raise InputError(f"{name} of {chip.name} is changed twice; write each change once.")
        if name == PROFILE:
            kernels = value
            written[name] = f"{name}={value}"
            continue
        written[name] = f"{name}={value.replace(' ', '')}"
        if name == "wan":
            result = _with_sites(result, value)
        else:
            result = result.with_facts(**_facts(result, name, value))
    title = f"{chip.title} with {', '.join(written.values())}"
    full_name = "+".join([chip.name, *written.values()])
    return replace(result, name=full_name, title=title, like=chip.kin, aliases=(), kernels=kernels)


def knobs_of(chip: Chip) -> dict[str, str]:
    """What can be changed of a chip, each with the path of the fact that a value is given for.

    >>> from dragonscale.physics.hardware.catalogue import load_chip
    >>> [*knobs_of(load_chip("h100"))][:5], knobs_of(load_chip("v5e"))["ici"]
    (['flops', 'hbm', 'hbm_capacity', 'nvlink', 'network'], 'ici.link')
    """
    knobs: dict[str, str] = {}
    for name in KNOBS:
        if paths := _paths_of_facts(chip, name):
            knobs[name] = paths[0]
    return knobs


def factor_of(chip: Chip, name: str, value: str) -> float:
    """The factor by which a change, as `read_change` gives it, scales the chip's number.

    >>> from dragonscale.physics.hardware.catalogue import load_chip
    >>> factor_of(load_chip("h100"), "nvlink", "900GB/s"), factor_of(load_chip("h100"), "hbm", "1.5x")
    (2.0, 1.5)
    """
    path = knobs_of(chip).get(name, name)
    changed = _facts(chip, name, value)
    return changed[path] / (float(chip.facts[path].value) or 1.0)


def _facts(chip: Chip, name: str, value: str) -> dict[str, float]:
    """The new values of the facts that a change sets, by path. A factor scales all of them; a value is that of the
    first, and the others keep their ratio to it."""
    paths = _paths_of_facts(chip, name)
    if not paths:
        raise InputError(f"{chip.title} has no {name} to change; it has {', '.join(knobs_of(chip))}.")
    first = chip.facts[paths[0]]
    if name == "oversubscription":
        # four times as many cables down as up are a quarter of the bandwidth
        value = f"{1 / parse(value.rstrip('xX'), 'count', name):.6g}x"
    if not isinstance(first.value, int | float):
        raise InputError(f"{paths[0]} of {chip.title} is no single number that could be changed.")
    factor = _FACTOR.fullmatch(value)
    if factor:
        scale = float(factor["number"])
    else:
        scale = parse(value, first.dimension, name) / float(first.value or 1)
    if not 1 / MAX_FACTOR <= scale <= MAX_FACTOR:
        raise InputError(
            f"The change {name}={shorten(value)} is by a factor of {scale:g}; write one from 0.0001 to 10,000, "
            "such as 1.5x."
        )
    changed = {path: float(chip.facts[path].value) * scale for path in paths}
    if not factor:
        changed[paths[0]] = parse(value, first.dimension, name)  # as written, without rounding by the division above
    return changed


def _with_sites(chip: Chip, value: str) -> Chip:
    """The chip in sites of so many chips, each with a WAN of some bandwidth to the others: `512@100Gb/s`."""
    size, at, rate = value.partition("@")
    levels = getattr(chip.network, "levels", ())  # a torus has none
    if len(levels) != 3 or not at or not size.strip().isdigit() or int(size) % levels[0].degree or not int(size):
        raise InputError(
            f"The change wan={shorten(value)} is not CHIPS@BANDWIDTH with whole nodes of chips under switches in each "
            "site; write e.g. wan=512@100Gb/s, or h100:512*2@100Gb/s for two sites."
        )
    node, leaf, spine = levels
    nodes = int(size) // node.degree
    # a site is whole scalable units of as many nodes each as divide both the site and a full leaf tier
    unit_nodes = math.gcd(nodes, leaf.degree)
    wan = Quantity(parse(rate, "bytes/s", "wan"), "bytes/s", WHAT_IF, "site", "one-way")
    latency = Quantity(WAN_LATENCY, "s", WHAT_IF, "step", note="2,000 km of fibre")
    # a smaller unit has its share of the cables to the spines
    up = replace(chip.facts["levels.spine.bandwidth"], value=spine.bandwidth * unit_nodes / leaf.degree)
    facts = {"levels.wan.bandwidth": wan, "levels.wan.latency": latency, "levels.spine.bandwidth": up}
    tiers = (
        node,
        replace(leaf, degree=unit_nodes),
        replace(spine, degree=nodes // unit_nodes),
        Level("wan", 0, wan.value, latency.value),
    )
    return assemble(replace(chip, network=Tree(tiers)), chip.facts | facts)


def _paths_of_facts(chip: Chip, name: str) -> list[str]:
    """The chip's facts that a name stands for, the one that a value is given for first."""
    return [path for path in _possible_paths(chip, name) if path in chip.facts]


def _possible_paths(chip: Chip, name: str) -> list[str]:
    """The facts that a name stands for, whether the chip has them or not."""
    if name == PROFILE:
        return []
    if name == "flops":
        rates = [path for path in chip.facts if path.startswith(("matrix.", "vector."))]
        return sorted(rates, key=lambda path: path != "matrix.bf16")
    if isinstance(chip.network, Torus):
        if name in ("nvlink", "oversubscription"):
            return []
        torus = {"latency": ["ici.hop_latency", "dcn.latency"], "network": ["dcn.egress"]}
        return torus.get(name) or _FILE["paths"].get(name, [name])
    bandwidths = [f"levels.{level.name}.bandwidth" for level in chip.network.levels]
    tiers: dict[str, list[str]] = {
        "latency": [f"levels.{level.name}.latency" for level in chip.network.levels],
        "nvlink": bandwidths[:1],
        "network": bandwidths[1:] or ["dcn.egress"],
        "oversubscription": bandwidths[2:],
    }
    if name in tiers:
        return tiers[name]
    return _FILE["paths"].get(name, [name])
