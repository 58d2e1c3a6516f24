"""Every limit of serving one model on one kind of chip, as a formula and as a number.

Each entry runs one function of `limits` or `limits_sharding` twice: on letters, which gives the formula, and on the numbers
that the letters stand for. The two cannot disagree.

>>> from dragonscale.hardware import load_chip
>>> from dragonscale.models import load_model
>>> for limit in find_limits(load_model("llama3-70b"), load_chip("v5e"), batch=64, weights="int8", kv="int8"):
...     print(f"{limit.name}: {limit.formula} = {limit.value:.4g}")
critical batch: C/(2*W) = 120.1
prompt attention: C/W + C/(2*G*W) = 255.3
prefill ways: F*W_wire/C = 13.1
decode ways: F*W_wire/(2*B*W) = 24.59
cache over FLOPs: 2*P*W/(C*c) = 3585
cache over weights: P/c = 4.306e+05
plateau: C*W/(C*S*c + 2*P*W) = 425
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.hardware import Chip, Torus
from dragonscale.hardware.chip import Memory
from dragonscale.models.cache import cache_bytes
from dragonscale.models.transformer import Transformer, count_parameters, kv_bytes_per_token
from dragonscale.numbers import Number
from dragonscale.roofline import rates_of, symbol
from dragonscale.roofline.crossover import exact
from dragonscale.serving.limits import (
    attention_prefill_length,
    cache_over_flops,
    cache_over_weights,
    critical_batch,
    plateau,
)
from dragonscale.serving.limits_sharding import chips_for_2d, decode_ways, prefill_ways
from dragonscale.training.rooflines import axis_bandwidth

Letters = dict[str, Number]
Question = tuple[str, str, Callable[[Chip, Letters], Number]]


@dataclass(frozen=True)
class Limit:
    """A name, what the number counts, the formula, what its letters stand for, and the number."""

    name: str
    counts: str
    formula: Any
    letters: Letters
    value: float


@dataclass(frozen=True)
class Formats:
    """The formats of stored weights, of the cache and of the products."""

    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"


def find_limits(
    model: Transformer,
    chip: Chip,
    *,
    batch: Number = 1,
    context: Number = 8192,
    weights: str = "bf16",
    kv: str = "bf16",
    compute: str = "bf16",
) -> list[Limit]:
    """The limits that apply; what the model's layers or the chip's network do not have is left out."""
    formats = Formats(weights, kv, compute)
    known = model_letters(model, kv) | {"B": batch, "S": context}
    known |= {"C": chip.peak(compute), "W": chip.bandwidth("hbm"), "W_wire": axis_bandwidth(chip)}
    abstract = lettered(chip)
    return [
        _twice(question, known, chip, abstract)
        for question in (*_roofs(known, formats), *_splits(known, chip, formats), *_caches(known, formats))
    ]


def model_letters(model: Transformer, kv: str = "bf16") -> Letters:
    """What a model has of these: P parameters (A of them used by a token, if it has experts: E of which k), D and F, the
    widths of its widest feed-forward layer, G query heads per KV head (where each has keys and values of its own), and c bytes
    of cache per token (where every token adds as many)."""
    counts, sections = count_parameters(model), model.program().sections
    known: Letters = {"P": counts.total, "D": model.d_model}
    routed = [section.dims for section in sections if {"e", "x"} <= set(section.dims)]
    if routed:
        known |= {"A": counts.active, "E": routed[0]["e"], "k": routed[0]["x"]}
    dense = [section.dims["f"] for section in sections if "f" in section.dims and "e" not in section.dims]
    known |= {"F": max(dense)} if dense else {}
    attending = [section.dims for section in sections if any(op.function == "attend" for op in section.ops)]
    groups = {dims["n"] / dims["k"] for dims in attending if {"n", "k"} <= set(dims)}
    known |= {"G": groups.pop()} if len(groups) == 1 else {}
    short, long = (sum(cache_bytes(sections, tokens, kv).values()) for tokens in (2**10, 2**20))
    return known | ({"c": kv_bytes_per_token(model, kv)} if long == short * 2**10 else {})


def _roofs(known: Letters, formats: Formats) -> Iterator[Question]:
    """Where compute takes over from memory."""
    yield (
        "critical batch",
        "tokens of a step from which its products are bound by compute, not by loading the weights",
        lambda chip, of: critical_batch(
            rates_of(chip), formats.weights, formats.compute, of["E"] / of["k"] if "E" in of else 1
        ),
    )
    if "G" in known:
        yield (
            "prompt attention",
            "tokens of a prompt from which its attention is bound by compute",
            lambda chip, of: attention_prefill_length(rates_of(chip), of["G"], formats.kv, formats.compute),
        )


def _splits(known: Letters, chip: Chip, formats: Formats) -> Iterator[Question]:
    """How many ways a layer can be split."""
    if "F" not in known:
        return
    yield (
        "prefill ways",
        "ways of tensor parallelism over one axis whose collectives a prompt's products hide",
        lambda chip, of: prefill_ways(of["F"], chip, 1, formats.compute),
    )
    yield (
        "decode ways",
        "ways of tensor parallelism over one axis whose collectives hide under loading the weights of a decode step",
        lambda chip, of: decode_ways(of["F"], of["B"], chip, 1, formats.weights),
    )
    if isinstance(chip.network, Torus) and chip.network.axes == 3:
        yield (
            "chips for 2D",
            "chips from which splitting both dims of the weights sends less than splitting one",
            lambda _, of: chips_for_2d(of["F"] / of["D"]),
        )


def _caches(known: Letters, formats: Formats) -> Iterator[Question]:
    """Where the cache takes over from the weights."""
    if "c" not in known or not known["c"]:
        return
    used = "A" if "A" in known else "P"
    yield (
        "cache over FLOPs",
        "tokens of context from which reading a sequence's cache takes longer than its products",
        lambda chip, of: cache_over_flops(of["c"], of[used], rates_of(chip), formats.compute),
    )
    yield (
        "cache over weights",
        "cached tokens of all sequences that weigh as much as the weights",
        lambda _, of: cache_over_weights(of["c"], of["P"], formats.weights),
    )
    yield (
        "plateau",
        "tokens per second and chip that no batch exceeds at this context",
        lambda chip, of: plateau(of["c"] * of["S"], of[used], rates_of(chip), formats.compute),
    )


def _twice(question: Question, known: Letters, chip: Chip, abstract: Chip) -> Limit:
    """A question answered on letters and on numbers."""
    import sympy

    name, counts, function = question
    formula = sympy.simplify(exact(function(abstract, {letter: symbol(letter) for letter in known})))
    letters = {letter: value for letter, value in known.items() if symbol(letter) in formula.free_symbols}
    return Limit(name, counts, formula, letters, float(function(chip, known)))


def lettered(chip: Chip) -> Chip:
    """The chip with letters for its rates: C, W for its memory, and W_wire for an axis of a torus or out of one chip."""
    rate, memory, wire = symbol("C"), symbol("W"), symbol("W_wire")
    network = chip.network
    if isinstance(network, Torus):
        wires = replace(network, link=wire / 2)
    else:
        wires = replace(network, levels=(replace(network.levels[0], bandwidth=wire), *network.levels[1:]))
    return replace(
        chip,
        matrix=dict.fromkeys(chip.matrix, rate),
        memory={"hbm": Memory(chip.hbm.capacity, memory)},
        network=wires,
    )
