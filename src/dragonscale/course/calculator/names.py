"""What a name stands for: a fact of a chip, a total of a slice, a size of a model, each with its source."""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.tables import TABLES
from dragonscale.errors import InputError, nearest
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import preset_model
from dragonscale.models.transformer import Transformer, count_parameters, kv_bytes_per_token
from dragonscale.physics.hardware.catalogue import is_chip, load_chip
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.physics.hardware.chip import DTYPE_BYTES, Chip, Torus
from dragonscale.physics.hardware.failures import failure_rate, failure_rates
from dragonscale.physics.hardware.parts import alus, cores, matrix_units
from dragonscale.physics.hardware.slices import AXIS_NAMES, Slice, parse_slice

TORUS = ("ici_axis", "ici", "pod_chips")
"""Words for what only a chip of a torus has."""
_COUNTED = {"cores": cores, "alus": alus, "matrix_units": matrix_units, "mxus": matrix_units}
_BOTH_WAYS = "both ways of one axis: 2 links"
MAIN = ("bf16", "hbm_bandwidth")
"""Rates that functions of a chip reckon with."""
_READ = ("matrix.", "vector.", "memory.", "ici.", "levels.", "dcn.", "pcie")
"""Facts that sources round differently; counts of parts are the same for all."""
_OF_CORES = ("registers", "vmem", "smem", "tmem")
"""Memories that each core has its own of; a chip's fact is the sum."""
TOTALS = ("bf16", "fp8", "int8", "fp4", "hbm", "hbm_bandwidth", "pcie", "dcn", "price", "list_price", "power")
"""Facts that a slice has the sum of."""


@dataclass(frozen=True)
class Meaning:
    """A value, and where it comes from."""

    value: Any
    source: str


@cache
def load_name(name: str, source: str = "", changes: str = "") -> Chip | Slice | Transformer:
    """The chip, slice or model of a name; chips with the numbers of one source where it gives them, then changed."""
    if ":" in name or (not is_chip(name) and is_chip(name.rpartition("-")[0])):
        piece = parse_slice(name)
        return replace(piece, chip=_read(piece.chip, source, changes))
    if is_chip(name):
        return _read(load_chip(name), source, changes)
    asked = read_asked(name)
    return preset_model(asked.text, asked.assume, asked.family)


def _read(chip: Chip, source: str, changes: str) -> Chip:
    own = [text for name, text in split_targets(changes) if not name or name == chip.kin]
    return with_changes(chip.reading(source) if source else chip, ",".join(own))


def split_targets(changes: str) -> list[tuple[str, str]]:
    """Changes with the chip that each is for, empty for all: `h100.hbm=2x` is for the H100 alone.

    >>> split_targets("flops=2x, h100-sxm.hbm=2x, memory.hbm.bandwidth=2TB/s")
    [('', 'flops=2x'), ('h100', 'hbm=2x'), ('', 'memory.hbm.bandwidth=2TB/s')]
    """
    found: list[tuple[str, str]] = []
    for text in (one.strip() for one in changes.split(",") if one.strip()):
        name, point, rest = text.partition(".")
        own = bool(point) and "=" not in name and is_chip(name)
        found.append((load_chip(name).kin, rest) if own else ("", text))
    return found


def unread(thing: Chip | Slice | Transformer, tail: str, source: str, name: str) -> list[str]:
    """Notes on facts that a source was asked for and does not give: of the one that is named, or of a chip's main
    rates."""
    if isinstance(thing, Transformer):
        return []
    chip = thing.chip if isinstance(thing, Slice) else thing
    words = chip_words(chip)
    asked = [word for word in ([tail] if tail else MAIN) if words.get(word, "").startswith(_READ)]
    found = [(word, chip.facts[words[word]]) for word in asked]
    lacking = [(word, fact.source) for word, fact in found if fact.source not in (source, "what-if")]
    told = ", ".join(f"{word} ({other})" for word, other in lacking)
    return [f"{source} gives no reading of {told} of {name}: taken from the source in brackets."] if lacking else []


def fact_of(name: str, tail: str, source: str = "", changes: str = "") -> Meaning:
    """The fact that stands behind the point.

    >>> fact_of("v5e", "hbm_bandwidth").value.number, fact_of("v5p:8x16x16", "chips").value.number
    (820000000000.0, 2048.0)
    >>> fact_of("v5e", "bf61")
    Traceback (most recent call last):
        ...
    dragonscale.errors.InputError: v5e has no bf61; did you mean bf16? It has bf16, int8, int4, hbm, … (`dscale chips
    v5e`).
    """
    thing = load_name(name, source, changes)
    if isinstance(thing, Chip):
        return _chip_fact(name, thing, tail)
    return _slice_fact(name, thing, tail) if isinstance(thing, Slice) else model_fact(thing, tail, name)


def chip_words(chip: Chip) -> dict[str, str]:
    """Every word that a fact of the chip can be asked by, and its path."""
    found: dict[str, str] = {}
    for path in chip.facts:
        head, _, rest = path.partition(".")
        found[path] = path
        if head == "matrix":
            found[rest] = path
        elif head == "structure":
            found.setdefault(rest, path)
        elif head == "memory":
            found[rest.replace(".", "_")] = path
            if rest.endswith(".capacity"):
                found.setdefault(rest.removesuffix(".capacity"), path)
        else:
            found.setdefault(path.replace(".", "_"), path)
    return found | {word: path for word, path in TABLES.chip_facts.items() if path in chip.facts}


def _chip_fact(name: str, chip: Chip, tail: str) -> Meaning:
    words = chip_words(chip)
    if tail in words:
        fact = chip.facts[words[tail]]
        per = f"per {fact.per}" if fact.per not in ("", "chip") else _of_cores(chip, words[tail])
        about = ", ".join(part for part in (per, fact.direction) if part)
        told = fact.source + (f", {about}" if about else "")
        if isinstance(fact.value, tuple | list):
            return Meaning(tuple(Measure(float(one)) for one in fact.value), told)
        return Meaning(Measure.of(float(fact.value), fact.dimension), told)
    network = chip.network
    if isinstance(network, Torus) and tail in TORUS:
        if tail == "pod_chips":
            return Meaning(Measure(float(math.prod(network.pod))), f"a pod of {'x'.join(map(str, network.pod))}")
        link = chip.facts["ici.link"]
        ways = 2 if tail == "ici_axis" else 2 * network.axes
        told = _BOTH_WAYS if tail == "ici_axis" else f"all {ways} links of a chip, one way"
        return Meaning(Measure.of(ways * network.link, "bytes/s"), f"{link.source}, {told}")
    if tail in _COUNTED:
        return Meaning(Measure(float(_COUNTED[tail](chip))), "counted from its parts")
    if tail in ("intensity", "critical_intensity"):
        return Meaning(Measure(chip.intensity("bf16"), (0, -1, 1, 0, 0)), "bf16 / hbm_bandwidth")
    if tail in DTYPE_BYTES:
        wider = f"peak({name}, {tail}) is what such operands are multiplied at as something wider"
        raise InputError(f"{chip.title} has no {tail} matmul; {wider}.")
    known = [*words, *_COUNTED, *(TORUS if isinstance(network, Torus) else ()), "intensity"]
    raise _no_fact(name, tail, known, f"dscale chips {name}")


def _of_cores(chip: Chip, path: str) -> str:
    """Whose sum a memory is that every core has: `of all 2 cores`."""
    head, _, rest = path.partition(".")
    counted = "sms" if chip.kind == "gpu" else "cores"
    if head != "memory" or rest.partition(".")[0] not in _OF_CORES or chip.structure.get(counted, 1) < 2:
        return ""
    return f"of all {cores(chip)} {'SMs' if chip.kind == 'gpu' else 'cores'} together"


def _slice_fact(name: str, piece: Slice, tail: str) -> Meaning:
    counts = {"chips": piece.chips, "hosts": piece.hosts, "vms": piece.vms, "pods": piece.pods}
    counts |= dict(zip(AXIS_NAMES, piece.shape, strict=False)) | {"cores": piece.cores}
    if tail in counts:
        return Meaning(Measure(float(counts[tail])), f"of {piece}")
    if tail == "mtbf":
        return Meaning(Measure.of(1 / failure_rate(piece), "s"), failure_rates(piece.chip).source)
    words = chip_words(piece.chip)
    totals = [word for word in TOTALS if word in words or word in piece.chip.matrix]
    if tail not in totals:
        raise _no_fact(name, tail, [*counts, *totals, "mtbf"], f"dscale chips {name}")
    one = _chip_fact(piece.chip.name, piece.chip, tail)
    return Meaning(one.value * Measure(float(piece.chips)), f"{piece.chips:,} chips, {one.source}")


def model_fact(model: Transformer, tail: str, name: str = "") -> Meaning:
    """A size, a count or the bytes of a model."""
    sizes = model_sizes(model)
    if tail in sizes:
        return Meaning(Measure(float(sizes[tail])), "config")
    counts = count_parameters(model)
    parts = {"params": counts.total, "active": counts.active, "checkpoint": counts.checkpoint}
    parts |= {f"{part}_params": number for part, number in counts.by_part.items()}
    if tail in parts:
        return Meaning(Measure(float(parts[tail])), "counted from its layers")
    if tail in ("kv_bytes_per_token", "kv"):
        return Meaning(Measure.of(float(kv_bytes_per_token(model)), "bytes"), "bf16, all layers")
    if tail == "bytes":
        return Meaning(Measure.of(2.0 * counts.total, "bytes"), "parameters in bf16")
    known = [*sizes, *parts, "kv_bytes_per_token", "bytes"]
    raise _no_fact(name or model.name, tail, known, f"dscale models {name or model.name}")


def model_sizes(model: Transformer) -> dict[str, float]:
    """The book's letters of a model, from its largest kind of layer: D, F, L, N, K, H, V, E and how many experts a
    token uses."""
    blocks = [section for section in model.program().sections if section.name.startswith("block")]
    dims = max(blocks, key=lambda one: one.repeat).dims if blocks else {}
    letters = {"F": "f", "N": "n", "K": "k", "H": "h", "E": "e", "experts_per_token": "x", "shared_F": "z"}
    found: dict[str, float] = {"D": model.d_model, "L": model.n_layers, "V": model.vocab}
    found |= {letter: dims[dim] for letter, dim in letters.items() if dim in dims}
    found |= {"G": found["N"] / found["K"]} if found.get("K") else {}
    return found | ({"context": model.context} if model.context else {})


def _no_fact(name: str, tail: str, known: list[str], where: str) -> InputError:
    close = nearest(tail, known)
    short = [word for word in known if "." not in word]
    guess = f"; did you mean {close}?" if close else "."
    first = [word for word in short if word in (*DTYPE_BYTES, "hbm", "chips", "params")] or short
    listed = ", ".join(dict.fromkeys(first[:4]))
    return InputError(f"{name} has no {tail}{guess} It has {listed}, … (`{where}`).")
