"""`--engine auto`: the engine that people use on a chip for a kind of model, from the table `auto.toml`.

>>> from dragonscale.physics.hardware import load_chip
>>> from dragonscale.models import load_model
>>> [auto_choice(load_chip(chip), load_model("llama3-70b")).engine for chip in ("h100", "mi300x", "v6e", "v100")]
['vllm', 'vllm', 'vllm-tpu', 'generic']
>>> [auto_choice(load_chip("h100"), load_model("deepseek-v3"), chips).engine for chips in (8, 64)]
['sglang', 'sglang-ep']
"""

import functools

import msgspec

from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Chip, Torus
from dragonscale.physics.hardware.architecture import architecture
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.stored_formats import GGUF_FILES, GROUPS, exl_bits
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.checkpoint import has_latent_cache
from dragonscale.serving.engine.legality import runs_on
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.legality import UsualChoice

AUTO = "auto"
NODE = 8
"""GPUs of a server; a model is spread over several only if one does not hold it."""
PLAIN = 16
"""GPUs of a copy up to which an engine's plain form is tried beside wide expert parallelism: two servers, by TP and
pipeline or by DP and EP (vLLM recipes, moonshotai/Kimi-K2.md: "either"; DeepSeek-V3 README, section 6: SGLang's TP over
two)."""
MAX_WEIGHTS_SHARE = 0.7
"""The fraction of a server's memory that weights may take; the rest is for the cache."""


class EngineChoice(UsualChoice, frozen=True, kw_only=True):
    """A row of `auto.toml`: an engine, and the models and chips that it is the usual one for."""

    engine: str
    models: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    without: str = ""
    least_experts: int = 0
    latent: bool | None = None
    several_nodes: bool | None = None

    @property
    def sentence(self) -> str:
        """The engine and the reason for it, for a reader."""
        return f"{self.engine}: {self.why}"


@functools.cache
def engine_choices() -> tuple[EngineChoice, ...]:
    """The rows of `auto.toml`; the first that matches wins."""
    return msgspec.convert(shipped_table("serving.engine", "auto.toml")["choices"], tuple[EngineChoice, ...])


def engine_of_format(weights: str) -> str:
    """The engine whose files a format of weights is for; empty for formats of checkpoints.

    >>> [engine_of_format(name) for name in ("q4_k_m", "exl3_4.5", "mlx4", "int4")]
    ['llama.cpp', 'exllamav3', 'mlx', '']
    """
    kind = weights.partition("_")[0] if exl_bits(weights) else weights
    if weights in GGUF_FILES:
        kind = "gguf"
    elif weights in GROUPS and weights.startswith("mlx"):
        kind = "mlx"
    files: dict[str, str] = shipped_table("serving.engine", "auto.toml")["files"]
    return files.get(kind, "")


def auto_choice(
    chip: Chip, model: Transformer, chips: int | None = None, plan: ServingPlan | None = None
) -> EngineChoice:
    """The usual engine, with the reason, for a copy of the model on so many chips, or on as many as it needs."""
    if plan is not None and not plan.is_wide:
        # engines for wide expert parallelism run no other plan: choose as for a single server
        chips = min(chips or plan.chips, NODE)
    sections = model.program().sections
    experts = max((section.dims.get("e", 0) for section in sections), default=0)
    several, latent = _several_nodes(chip, model, chips), has_latent_cache(model)
    for choice in engine_choices():
        named = not choice.models or any(part in model.name.lower() for part in choice.models)
        excluded = choice.without and chip.format(choice.without) == "native"
        fits = (
            choice.latent in (None, latent)
            and choice.several_nodes in (None, several)
            and experts >= choice.least_experts
        )
        built = not choice.architectures or architecture(chip) in choice.architectures
        if named and fits and not excluded and built and choice.suits(chip) and runs_on(choice.engine, chip):
            return choice
    raise AssertionError("the last row of auto.toml has no conditions")


def _several_nodes(chip: Chip, model: Transformer, chips: int | None) -> bool:
    """Whether one copy of the model needs more than a server of eight; a rack under one switch counts as several."""
    if isinstance(chip.network, Torus):
        return False
    if chips is not None:
        return chips > NODE
    rack = chip.network.levels[0].degree > NODE
    # Large models are served in 8 bits or fewer, even if the checkpoint is wider.
    stored = min(dtype_bytes(model.weight_dtypes.get("experts", "fp8")), 1.0)
    return rack or count_parameters(model).total * stored > MAX_WEIGHTS_SHARE * NODE * chip.visible
