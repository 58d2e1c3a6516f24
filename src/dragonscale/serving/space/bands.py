"""The error band around an expected latency or rate of a server, by kind of run, and what it rests on.

A kind is a chip, an engine, and whether the model is dense or an MoE. Four numbers are told apart: `tpot` and `ttft` of
servers under load, `tokens` per second of full servers, and `step`, the latency of static batches and single steps.
`errors.toml` has, for every kind with published runs, the multiples of the expected number between which four of five
runs lay. Kinds with few models use those they belong to, and a chip has the band of its generation. An answer is *not
validated* if neither the kernels of the chip's generation nor enough of its runs were measured; its band is wider.
`python -m tools.fit_bands serving --write` writes the file from the measured runs.

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
from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.kernels.profile_file import backend, profile_files, tables_of
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.engine import engines
from dragonscale.training.search.error_bands import Kinds, narrowest
from dragonscale.training.search.run_kinds import generation

MEASURES = ("tpot", "ttft", "tokens", "step")
MIN_RUNS = 8
"""Runs that a kind needs for a band of its own."""
FAMILIES = ("trtllm-0", "trtllm", "vllm-tpu", "vllm", "sglang")
"""Families of engines by the beginning of a name, which a mode or release may follow. TensorRT-LLM 0 compiled its
engines and counts as another one, and so does vLLM on TPUs."""


@dataclass(frozen=True)
class ServedKind:
    """The properties of a server that its errors depend on."""

    chip: str
    engine: str
    moe: bool

    @property
    def generation(self) -> str:
        """The chip's generation (the chip itself if the catalogue does not have it), or what the engine's own kernels
        are written in there."""
        return self.backend or generation(self.chip)

    @property
    def backend(self) -> str:
        """What the kernels of an engine that was measured in whole runs are written in: `cuda`, `metal`; empty for
        others."""
        if self.engine not in engines() or self.chip not in chip_names():
            return ""
        return backend(load_chip(self.chip), engines()[self.engine].kernels.library)

    @property
    def family(self) -> str:
        """The engine without its mode or release.

        >>> [ServedKind("h100", engine, False).family for engine in ("trtllm-0.9", "trtllm-bench", "sglang-ep", "pax")]
        ['trtllm-0', 'trtllm', 'sglang', 'pax']
        """
        if self.engine == "ollama":
            return "llama.cpp"  # whose kernels it runs
        return next((name for name in FAMILIES if self.engine.startswith(name)), self.engine)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The tables that the kind belongs to, the narrowest first."""
        model, generation_name, engine = self.model_kind, self.generation, self.family
        return (
            f"{model} {generation_name} {engine}",
            f"{model} {generation_name}",
            f"{model} * {engine}",
            model,
            "all",
        )

    @property
    def model_kind(self) -> str:
        """The kind of model, as the tables name it."""
        return "moe" if self.moe else "dense"

    @property
    def reported(self) -> tuple[str, ...]:
        """The names under which coverage is reported."""
        return self.names[:1]

    @property
    def on_chip(self) -> str:
        """The table of such models under the engine on the chip itself."""
        return f"{self.model_kind} {self.chip} {self.family}"


@dataclass(frozen=True)
class ServedBand:
    """Four of five of `runs` runs lay between 1 + low and 1 + high times what was expected.

    The band itself includes the expectation; `median` is the median error. `estimated`: neither kernels nor enough runs
    of such a chip were measured. `bias`: the error that nearly all of them had at least, if nearly all lay on one side.
    """

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


@functools.cache
def tables() -> dict[str, Any]:
    """`errors.toml`, and the errors of engines for one's own machine from `local_errors.toml`."""
    shipped = shipped_table("serving.space", "errors.toml")
    local = shipped_table("serving.space", "local_errors.toml")
    merged: dict[str, Any] = {}
    for measure, table in shipped.items():
        merged[measure] = {**table, "kinds": {**table["kinds"], **local[measure]}}
    return merged


def band_of(kind: ServedKind, measure: str, among: Kinds | None = None, stretch: float = 0.0) -> ServedBand:
    """The band of the narrowest kind that has enough runs, stretched if it is estimated.

    If nearly all runs of a kind lay on one side, the band reaches from the expectation to there: it never excludes the
    number that is printed.
    """
    shipped = tables()[measure]
    kinds = shipped["kinds"] if among is None else among
    name = narrowest(kind.names, kinds, MIN_RUNS)
    row = kinds[name]
    chip_runs = shipped["chips"].get(kind.on_chip, 0)
    generation_runs = kinds.get(kind.names[1], {}).get("runs", 0)
    estimated = generation_runs < MIN_RUNS or (chip_runs < MIN_RUNS and not fitted_kernels(kind.chip))
    if kind.backend:
        # fitted on whole runs on some chips, and measured on others
        estimated = name != kind.names[0]
    wider = (stretch or shipped["stretch"]) if estimated else 1.0
    # stretched on a logarithmic scale, so that half and double stay symmetric
    low, high = (math.expm1(wider * math.log1p(row[side])) for side in ("low", "high"))
    bias = max(row["low"], 0.0) or min(row["high"], 0.0)
    return ServedBand(min(low, 0.0), max(high, 0.0), row["median"], int(row["runs"]), name, estimated, bias)


@functools.cache
def counted_share(kind: ServedKind) -> float:
    """The fraction of the expected tokens per second that counts where configurations compete.

    All if such runs or the kernels of such chips were measured (less if nearly all runs made fewer); those at the slow
    end of the band if they are a guess.

    >>> counted_share(ServedKind("b200", "sglang", True)), counted_share(ServedKind("tpu7x", "vllm-tpu", True)) < 0.7
    (1.0, True)
    """
    band = band_of(kind, "tokens")
    return 1.0 + (band.low if band.estimated else min(band.bias, 0.0))


@functools.cache
def fitted_kernels(chip: str) -> bool:
    """Whether the profile of a chip's kernels was fitted to kernels of its generation, not assumed.

    >>> [chip for chip in ("h800", "gb300", "a100", "v100", "mi355x", "tpu7x") if fitted_kernels(chip)]
    ['h800', 'gb300']
    """
    files = [file for file in profile_files().values() if chip in (*file.chips, *file.stands_for)]
    return any(table.get("rests_on", {}).get("rows") for file in files for table in tables_of(file).values())


def is_moe(model: Transformer) -> bool:
    """Whether some layers have experts."""
    return any(isinstance(layer.ffn, Moe) for layer in model.layers)
