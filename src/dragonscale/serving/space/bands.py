"""How wrong expected latencies and rates of servers have been, by kind of run: the band around an answer, and what it
rests on.

A kind is a chip, an engine, and whether the model is dense or an MoE; four numbers are told apart: `tpot` and
`ttft` of servers under load, `tokens` per second of full servers, and `step`, the latency of static batches and single
steps. `errors.toml` has, for every kind with published runs, between which multiples of the expected number four of
five of them were; kinds with few models lean on those they belong to, and a chip has the band of its generation. An
answer is *not validated* where neither the kernels of the chip's generation were measured nor enough of its
runs; its band is wider. `python -m tools.fit_bands serving --write` writes the file from the measured runs.

>>> (
...     band_of(ServedKind("gb200", "vllm", True), "tpot").estimated,
...     band_of(ServedKind("mi355x", "vllm", True), "tpot").estimated,
... )
(False, True)
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

from dragonscale.models import Transformer
from dragonscale.models.ffn import Moe
from dragonscale.physics.kernels.profile_file import profile_files, tables_of
from dragonscale.plan.settings import shipped_table
from dragonscale.training.search.error_bands import Kinds, narrowest
from dragonscale.training.search.run_kinds import generation

MEASURES = ("tpot", "ttft", "tokens", "step")
LEAST = 8
"""Runs that a kind must have to speak for itself."""
FAMILIES = ("trtllm-0", "trtllm", "vllm-tpu", "vllm", "sglang")
"""Engines whose modes and releases are told by what follows the name; TensorRT-LLM 0 compiled its engines and is
another one, and so is vLLM on TPUs."""


@dataclass(frozen=True)
class ServedKind:
    """What a server is like, as far as errors go."""

    chip: str
    engine: str
    moe: bool

    @property
    def generation(self) -> str:
        """The chip's generation; the chip itself where the catalogue does not have it."""
        return generation(self.chip)

    @property
    def family(self) -> str:
        """The engine without its mode or release.

        >>> [ServedKind("h100", engine, False).family for engine in ("trtllm-0.9", "trtllm-bench", "sglang-ep", "pax")]
        ['trtllm-0', 'trtllm', 'sglang', 'pax']
        """
        return next((name for name in FAMILIES if self.engine.startswith(name)), self.engine)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The tables that the kind belongs to, the narrowest first."""
        model, place, engine = "moe" if self.moe else "dense", self.generation, self.family
        return f"{model} {place} {engine}", f"{model} {place}", f"{model} * {engine}", model, "all"

    @property
    def reported(self) -> tuple[str, ...]:
        """The kind that coverage is told of."""
        return self.names[:1]

    @property
    def on_chip(self) -> str:
        """The engine with such models on the chip itself."""
        return f"{'moe' if self.moe else 'dense'} {self.chip} {self.family}"


@dataclass(frozen=True)
class ServedBand:
    """Four of five of `runs` runs were between 1 + low and 1 + high times what was expected, which lies within the band
    itself; `median` is the median error. `estimated`: neither kernels nor enough runs of such a chip were measured.
    `bias`: what nearly all of them were off by at least, where nearly all were on one side."""

    low: float
    high: float
    median: float
    runs: int
    name: str
    estimated: bool
    bias: float = 0.0

    def around(self, value: float) -> tuple[float, float]:
        """The band around an expected number."""
        return value * (1 + self.low), value * (1 + self.high)


def tables() -> dict[str, Any]:
    """`errors.toml`."""
    return shipped_table("serving.space", "errors.toml")


def band_of(kind: ServedKind, measure: str, among: Kinds | None = None, stretch: float = 0.0) -> ServedBand:
    """The band of the narrowest kind that has enough runs, stretched where it is estimated. Where nearly all runs of a
    kind were on one side of what was expected, it reaches to that from there: nobody is told a number that its own band
    denies."""
    shipped = tables()[measure]
    kinds = shipped["kinds"] if among is None else among
    name = narrowest(kind.names, kinds, LEAST)
    row = kinds[name]
    own, alike = shipped["chips"].get(kind.on_chip, 0), kinds.get(kind.names[1], {}).get("runs", 0)
    estimated = alike < LEAST or (own < LEAST and not fitted_kernels(kind.chip))
    wider = (stretch or shipped["stretch"]) if estimated else 1.0
    low, high = (math.expm1(wider * math.log1p(row[side])) for side in ("low", "high"))
    bias = max(row["low"], 0.0) or min(row["high"], 0.0)
    return ServedBand(min(low, 0.0), max(high, 0.0), row["median"], int(row["runs"]), name, estimated, bias)


@functools.cache
def counted_share(kind: ServedKind) -> float:
    """The part of the expected tokens per second that counts where configurations compete: all where such runs or the
    kernels of such chips were measured (less where nearly all runs made fewer), those at the slow end of the band where
    they are a guess.

    >>> counted_share(ServedKind("b200", "sglang", True)), counted_share(ServedKind("tpu7x", "vllm-tpu", True)) < 0.7
    (1.0, True)
    """
    band = band_of(kind, "tokens")
    return 1.0 + (band.low if band.estimated else min(band.bias, 0.0))


@functools.cache
def fitted_kernels(chip: str) -> bool:
    """Whether the profile of a chip's kernels was fitted on kernels of its generation, not chosen.

    >>> [chip for chip in ("h800", "gb300", "a100", "v100", "mi355x", "tpu7x") if fitted_kernels(chip)]
    ['h800', 'gb300']
    """
    files = [file for file in profile_files().values() if chip in (*file.chips, *file.stands_for)]
    return any(table.get("rests_on", {}).get("rows") for file in files for table in tables_of(file).values())


def is_moe(model: Transformer) -> bool:
    """Whether some layers have experts."""
    return any(isinstance(layer.ffn, Moe) for layer in model.layers)
