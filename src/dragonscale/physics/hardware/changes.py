"""What if the chip were another? `hbm=1.5x`, `nvlink=2x`, `flops=1PFLOP/s`: its numbers changed.

A change is a factor, or a value with its unit. It may stand after a chip wherever one is named, so
that every question can be asked of a chip that does not exist: `h100+nvlink=2x:64`. The changed chip
is called what was written, so it can be saved, read back and compared with the one it starts from,
whose software and measured efficiencies it has. `profile=mine.toml` gives it other measured efficiencies:
a kernel profile of one's own, as `dscale calibrate` writes it. `oversubscription=4` leaves leaf switches a quarter of
the cables up to the spines, and `wan=512@100Gb/s` puts every 512 chips into a site of their own.

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
from dragonscale.physics.units import parse
from dragonscale.tables import beside

_FILE = beside(__file__, "changes.toml")
KNOBS: tuple[str, ...] = tuple(_FILE["knobs"])
_FABRIC: tuple[str, ...] = tuple(_FILE["fabric"])
_SAME: dict[str, str] = _FILE["spellings"]
_CHANGES = re.compile(r"(?P<chip>[^+]*(?:\+[^+=]*)*?)(?P<changes>(?:\+[^+=]*=[^+]*)+)")
_FACTOR = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*[xX×]")
MOST_FACTOR = 1e4
PROFILE = "profile"
WAN_LATENCY = 10e-3
"""Seconds between two sites: 2,000 km of fibre at 200,000 km/s."""


def split_changes(text: str) -> tuple[str, tuple[str, ...]]:
    """A chip's name and the changes after it.

    >>> split_changes("h100+hbm=1.5x+ib=2x"), split_changes("my+chip.toml")
    (('h100', ('hbm=1.5x', 'ib=2x')), ('my+chip.toml', ()))
    """
    match = _CHANGES.fullmatch(text) if len(text) < 500 else None
    return (match["chip"], tuple(match["changes"][1:].split("+"))) if match else (text, ())


def with_changes(on: Any, changes: str) -> Any:
    """A chip, a slice, or several as they are written, each with the changes after its chip; changes have commas
    between.

    >>> with_changes("h100:8, v5e", "hbm=2x,flops=2x")
    'h100+hbm=2x+flops=2x:8,v5e+hbm=2x+flops=2x'
    """
    parts = [one.strip() for one in changes.split(",") if one.strip()]
    if not parts:
        return on
    if isinstance(on, Chip):
        return changed_chip(on, *parts)
    if isinstance(on, list | tuple):
        return [with_changes(one, changes) for one in on]
    if not isinstance(on, str):  # a slice
        return replace(on, chip=changed_chip(on.chip, *parts))
    if on.strip().lower() in ("", "any", "all"):
        raise InputError(f"--set changes chips that are named, and --on is {on.strip()!r}; write e.g. --on h100:8.")
    added = "".join("+{}={}".format(*read_change(part)) for part in parts)
    found: list[str] = []
    for one in (one.strip() for one in on.split(",")):
        sized = re.fullmatch(r"(?P<chip>.*?)(?P<topology>:[0-9xX×*]+|\*[0-9]+)", one)
        found.append(f"{sized['chip']}{added}{sized['topology']}" if sized else one + added)
    return ",".join(found)


def read_change(text: str) -> tuple[str, str]:
    """The name and the value of a change.

    >>> read_change("IB = 2x")
    ('network', '2x')
    """
    name, equals, value = (piece.strip() for piece in text.partition("="))
    if name.lower() == PROFILE and equals and value:
        return PROFILE, value
    if not equals or not value:
        raise InputError(f"The change {shorten(text)} is not NAME=VALUE; write e.g. hbm=1.5x or nvlink=900GB/s.")
    name = name if "." in name else _SAME.get(name.lower(), name.lower())
    if name not in (*KNOBS, *_FABRIC) and "." not in name:
        raise unknown("change to a chip called", name, [*KNOBS, *_FABRIC, *_SAME])
    return name, value


def check_effect(changes: str, *questions: str, kind: str = "") -> None:
    """Refuse changes (`--set`, with commas between) that change nothing in what kinds of questions are answered with,
    on a kind of chip; `changes.toml` lists them. An answer that takes several kinds (RL trains and serves) is changed
    by what changes one of them.

    >>> check_effect("hbm=2x", "serving")
    >>> check_effect("power=350W", "training", "serving")
    >>> check_effect("power=350W", "serving")
    Traceback (most recent call last):
    dragonscale.errors.InputError: --set power=350W would change nothing here: serving times do not follow a power ...
    """
    for part in (one.strip() for one in changes.split(",") if one.strip()):
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
    made, written, seen, kernels = chip, [], set[str](), chip.kernels
    for text in changes:
        name, value = read_change(text)
        if name in seen:
            raise InputError(f"{name} of {chip.name} is changed twice; write each change once.")
        seen.add(name)
        if name == PROFILE:
            kernels = value
            written.append(f"+{name}={value}")
            continue
        made = _with_sites(made, value) if name == "wan" else made.with_facts(**_facts(made, name, value))
        written.append(f"+{name}={value.replace(' ', '')}")
    title = f"{chip.title} with {', '.join(one[1:] for one in written)}"
    return replace(made, name=chip.name + "".join(written), title=title, like=chip.kin, aliases=(), kernels=kernels)


def knobs_of(chip: Chip) -> dict[str, str]:
    """What can be changed of a chip, each with the path of the fact that a value is given for.

    >>> from dragonscale.physics.hardware.catalogue import load_chip
    >>> [*knobs_of(load_chip("h100"))][:5], knobs_of(load_chip("v5e"))["ici"]
    (['flops', 'hbm', 'hbm_capacity', 'nvlink', 'network'], 'ici.link')
    """
    found = {name: next((path for path in _paths(chip, name) if path in chip.facts), "") for name in KNOBS}
    return {name: path for name, path in found.items() if path}


def factor_of(chip: Chip, name: str, value: str) -> float:
    """By how much a change, as `read_change` gives it, scales the chip's own number.

    >>> from dragonscale.physics.hardware.catalogue import load_chip
    >>> factor_of(load_chip("h100"), "nvlink", "900GB/s"), factor_of(load_chip("h100"), "hbm", "1.5x")
    (2.0, 1.5)
    """
    path = knobs_of(chip).get(name, name)
    changed = _facts(chip, name, value)
    return changed[path] / (float(chip.facts[path].value) or 1.0)


def _facts(chip: Chip, name: str, value: str) -> dict[str, float]:
    """The facts that a change sets: a factor scales every one, a value is that of the first, and the others keep their
    ratio to it."""
    paths = [path for path in _paths(chip, name) if path in chip.facts]
    if not paths:
        known = [knob for knob in KNOBS if any(path in chip.facts for path in _paths(chip, knob))]
        raise InputError(f"{chip.title} has no {name} to change; it has {', '.join(known)}.")
    first = chip.facts[paths[0]]
    if name == "oversubscription":
        value = f"{1 / parse(value.rstrip('xX'), 'count', name):.6g}x"
    if not isinstance(first.value, int | float):
        raise InputError(f"{paths[0]} of {chip.title} is no single number that could be changed.")
    factor = _FACTOR.fullmatch(value)
    scale = float(factor["number"]) if factor else parse(value, first.dimension, name) / float(first.value or 1)
    if not 1 / MOST_FACTOR <= scale <= MOST_FACTOR:
        raise InputError(
            f"The change {name}={shorten(value)} is by a factor of {scale:g}; write one from 0.0001 to 10,000, "
            "such as 1.5x."
        )
    changed = {path: float(chip.facts[path].value) * scale for path in paths}
    return changed if factor else changed | {paths[0]: parse(value, first.dimension, name)}


def _with_sites(chip: Chip, value: str) -> Chip:
    """The chip in sites of so many chips, with a WAN of some bandwidth out of each: `512@100Gb/s`."""
    size, at, rate = value.partition("@")
    levels = chip.network.levels if isinstance(chip.network, Tree) else ()
    if len(levels) != 3 or not at or not size.strip().isdigit() or int(size) % levels[0].degree or not int(size):
        raise InputError(
            f"The change wan={shorten(value)} is not CHIPS@BANDWIDTH with whole nodes of chips under switches in each "
            "site; write e.g. wan=512@100Gb/s, or h100:512*2@100Gb/s for two sites."
        )
    node, leaf, spine = levels
    nodes = int(size) // node.degree
    unit = math.gcd(nodes, leaf.degree)
    wan = Quantity(parse(rate, "bytes/s", "wan"), "bytes/s", WHAT_IF, "site", "one-way")
    far = Quantity(WAN_LATENCY, "s", WHAT_IF, "step", note="2,000 km of fibre")
    facts = {"levels.wan.bandwidth": wan, "levels.wan.latency": far}
    above = replace(spine, degree=nodes // unit), Level("wan", 0, wan.value, far.value)
    facts["levels.spine.bandwidth"] = replace(
        chip.facts["levels.spine.bandwidth"], value=spine.bandwidth * unit / leaf.degree
    )
    return assemble(replace(chip, network=Tree((node, replace(leaf, degree=unit), *above))), chip.facts | facts)


def _paths(chip: Chip, name: str) -> list[str]:
    """The facts that a name stands for, the one that a value is given for first."""
    torus = isinstance(chip.network, Torus)
    levels = [] if isinstance(chip.network, Torus) else [level.name for level in chip.network.levels]
    if name == "flops":
        rates = [path for path in chip.facts if path.startswith(("matrix.", "vector."))]
        return sorted(rates, key=lambda path: path != "matrix.bf16")
    if name == "latency":
        own = [f"levels.{level}.latency" for level in levels]
        return ["ici.hop_latency", "dcn.latency"] if torus else own
    if name == PROFILE:
        return []
    if name == "nvlink":
        return [f"levels.{level}.bandwidth" for level in levels[:1]]
    if name == "oversubscription":
        return [f"levels.{level}.bandwidth" for level in levels[2:]]
    if name == "network":
        return [f"levels.{level}.bandwidth" for level in levels[1:]] or ["dcn.egress"]
    return _FILE["paths"].get(name, [name])
