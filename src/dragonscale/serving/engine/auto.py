"""`--engine auto`: the engine that people run on a chip for that kind of model, as the table `auto.toml` has it.

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
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.engine.checkpoint import has_latent_cache
from dragonscale.serving.engine.legality import runs_on
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.legality import UsualChoice

AUTO = "auto"
NODE = 8
"""GPUs of a server: what a model is tried on before it is spread over several."""
PLAIN = 16
"""GPUs of a copy up to which an engine's plain form is tried beside wide expert parallelism: two servers, by TP and
pipeline or by DP and EP (vLLM recipes, moonshotai/Kimi-K2.md: "either"; DeepSeek-V3 README, section 6: SGLang's TP over
two)."""
FREE = 0.7
"""The part of a server's memory that weights may take; the rest is for the cache."""


class EngineChoice(UsualChoice, frozen=True, kw_only=True):
    """An engine, and the models and chips that it is the usual one for."""

    engine: str
    models: tuple[str, ...] = ()
    without: str = ""
    least_experts: int = 0
    latent: bool | None = None
    several_nodes: bool | None = None

    @property
    def sentence(self) -> str:
        """What was chosen and why, for a reader."""
        return f"{self.engine}: {self.why}"


@functools.cache
def engine_choices() -> tuple[EngineChoice, ...]:
    """The table, first match first."""
    return msgspec.convert(shipped_table("serving.engine", "auto.toml")["choices"], tuple[EngineChoice, ...])


def auto_choice(
    chip: Chip, model: Transformer, chips: int | None = None, plan: ServingPlan | None = None
) -> EngineChoice:
    """What people run there, with the reason: for a copy of the model on so many chips, or on as many as it needs.
    Engines of wide expert parallelism are taken for no other plan."""
    if plan is not None and not plan.is_wide:
        chips = min(chips or plan.chips, NODE)
    sections = model.program().sections
    experts = max((section.dims.get("e", 0) for section in sections), default=0)
    several, latent = _several_nodes(chip, model, chips), has_latent_cache(model)
    for one in engine_choices():
        named = not one.models or any(part in model.name.lower() for part in one.models)
        has = one.without and chip.format(one.without) == "native"
        fits = one.latent in (None, latent) and one.several_nodes in (None, several) and experts >= one.least_experts
        if named and fits and not has and one.suits(chip) and runs_on(one.engine, chip):
            return one
    raise AssertionError("the last row of auto.toml has no conditions")


def _several_nodes(chip: Chip, model: Transformer, chips: int | None) -> bool:
    """Whether one copy of the model goes beyond a server of eight; on racks that one switch joins it may from the
    start."""
    if isinstance(chip.network, Torus):
        return False
    if chips is not None:
        return chips > NODE
    rack = chip.network.levels[0].degree > NODE
    stored = min(dtype_bytes(model.weight_dtypes.get("experts", "fp8")), 1.0)
    return rack or count_parameters(model).total * stored > FREE * NODE * chip.visible
