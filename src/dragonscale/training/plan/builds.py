"""Which models a trainer builds, from the table `builds.toml`: the planner chooses stacks by it, and exports refuse
models by it.

>>> from dragonscale.models import load_model
>>> unbuilt("torchtitan", load_model("llama3-8b")), unbuilt("torchtitan", load_model("qwen2.5-7b"))
('', 'torchtitan 0.3.0 does not build models of type qwen2')
>>> unbuilt("megatron-lm", load_model("olmo2-32b"))
'Megatron-LM 0.19.2 does not build models of type olmo2: it has no words for norms after each half of a block'
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from dragonscale.models import hub
from dragonscale.models.catalogue import is_preset, preset
from dragonscale.models.transformer import Transformer
from dragonscale.plan.settings import shipped_table
from dragonscale.training.plan.legality import rules
from dragonscale.training.plan.plan import Plan

# The library that Megatron-LM and Megatron-Bridge run on, and their stacks with its speeds. Its name means whichever of
# them builds the model.
LIBRARY = "megatron-core"
ON_LIBRARY = ("megatron-lm", "megatron-bridge-26.04")
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


class Flavor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of one of the models that a trainer ships."""

    name: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Whether a model's config has these sizes; fields that it leaves out agree."""
        return all(fields.get(name, getattr(self, name)) == getattr(self, name) for name in _SIZES)


class TrainerBuilds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One trainer: what it builds in one release. The fields are explained at the top of the table."""

    title: str
    release: str
    source: str
    stacks: tuple[str, ...]
    speeds: dict[str, str] = {}
    types: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    square: tuple[str, ...] = ()
    from_hub: tuple[str, ...] = ()
    vision: tuple[str, ...] = ()
    sized: tuple[str, ...] = ()
    flavors: tuple[Flavor, ...] = ()
    presets: dict[str, str] = {}
    called: dict[str, str] = {}
    lacks: dict[str, str] = {}
    open: bool = False
    not_built: tuple[str, ...] = ()
    like: str = ""
    expert_flag: str = ""
    exported: bool = True
    chips: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """Its name with its release."""
        return f"{self.title} {self.release}"

    def refuses(self, fields: Mapping[str, Any], model: str) -> str:
        """Why it does not build a model; empty if it does. `fields` are those of the model's config, `model` is the
        name or path that it was loaded by."""
        kind = str(fields.get("model_type", ""))
        # From what a trainer surely builds to what it builds under conditions; then why not.
        if _preset_name(model) in self.presets:
            return ""
        if kind in self.types:
            return self._unlike(kind, fields)
        if kind in self.sized:
            return self._no_flavor(kind, fields)
        if kind in self.from_hub and _published(model):
            return ""
        if self.like and not trainers()[self.like].refuses(fields, model):
            return ""
        if kind in self.from_hub:
            return f"{self.named} builds {kind} models only from a config on the Hub"
        if kind in self.vision:
            return f"{self.named} builds {kind} models only with their vision encoder"
        if self.open and kind not in self.not_built:
            return ""
        refusal = f"{self.named} does not build models of type {kind}"
        lacks = trainers()[self.like].lacks if self.like else self.lacks
        return f"{refusal}: it has no words for {lacks[kind]}" if kind in lacks else refusal

    def _unlike(self, kind: str, fields: Mapping[str, Any]) -> str:
        """What a model of a type that it builds has and the trainer's models do not have."""
        unsupported = [name for name in self.without if fields.get(name)]
        if unsupported:
            return f"{self.named} builds {kind} models only without {' and '.join(unsupported)}"
        # Some trainers derive head_dim, others read it.
        heads, width = fields.get("num_attention_heads"), fields.get("hidden_size")
        head = fields.get("head_dim")
        if kind in self.square and head and heads and head * heads != width:
            return f"{self.named} has heads of hidden_size / num_attention_heads, not of {head}"
        return ""

    def _no_flavor(self, kind: str, fields: Mapping[str, Any]) -> str:
        flavors = [flavor for flavor in self.flavors if flavor.name.startswith(f"{self.called[kind]}/")]
        if any(flavor.has(fields) for flavor in flavors):
            return ""
        names = ", ".join(flavor.name for flavor in flavors)
        return f"{self.named} has {kind} models only in the sizes of {names}"


def _preset_name(model: str) -> str:
    """The preset that a name stands for; empty for a file, or where fields were changed (`name?field=value`)."""
    if "?" in model or not is_preset(model):
        return ""
    return str(preset(model)["name"])


def _published(model: str) -> bool:
    """Whether other software can read the model's config: from the Hub, or from the user's own file."""
    if "?" in model:
        return False
    return not is_preset(model) or hub.hub_name(str(preset(model).get("source", ""))) is not None


@functools.cache
def trainers() -> dict[str, TrainerBuilds]:
    """The table, by name."""
    return msgspec.convert(shipped_table("training.plan", "builds.toml"), dict[str, TrainerBuilds])


def trainer_of(stack: str) -> TrainerBuilds | None:
    """The trainer that runs a stack's plans; None if there is no such software (`generic`, one of a paper)."""
    return next((trainer for trainer in trainers().values() if stack in trainer.stacks), None)


def release_of(stack: str) -> str:
    """The software and release that a stack's plans are for; empty if there is none.

    >>> release_of("megatron-bridge-26.04"), release_of("generic")
    ('Megatron-Bridge 0.6.2', '')
    """
    trainer = trainer_of(stack)
    if trainer is None:
        return ""
    return trainer.named


def software_of(stack: str) -> str:
    """The software and release, and the older release on which the stack's speeds were measured, if it is another."""
    trainer = trainer_of(stack)
    if trainer is None:
        return ""
    speeds = trainer.speeds.get(stack, "")
    return f"{trainer.named}; speeds of {speeds}" if speeds else trainer.named


def unbuilt(stack: str, model: Transformer) -> str:
    """Why the trainer of a stack does not build a model; empty if it does, if the stack has no trainer, or if the model
    has no type (sizes that a user wrote)."""
    trainer = trainer_of(stack)
    if trainer is None or not model.config.get("model_type"):
        return ""
    return trainer.refuses(model.config, model.name)


def expert_ranks_note(stack: str, plan: Plan) -> str:
    """How a plan's `expert` is read where its stack's trainer counts tensor and context ranks among those that experts
    are spread over, and how to write the trainer's own number; empty where both are the same.

    >>> from dragonscale.training.plan.plan_file import parse_plan
    >>> print(expert_ranks_note("megatron-lm", parse_plan("tp2 pp8 ep64 z1")))
    ep64 with tp2 spreads experts over 128 ranks, as --expert-model-parallel-size 128 does; for 64 ranks write ep32.
    """
    trainer = trainer_of(stack)
    tensor = 1 if plan.etp else plan.tensor
    context = plan.context if plan.fold == "context" else 1
    folded = tensor * context  # ranks of other axes that experts are spread over, too
    if trainer is None or not trainer.expert_flag or plan.expert == 1 or folded == 1:
        return ""
    axes = " ".join(f"{name}{size}" for name, size in (("tp", tensor), ("cp", context)) if size > 1)
    ranks = plan.expert * folded
    note = f"ep{plan.expert} with {axes} spreads experts over {ranks:,} ranks, as {trainer.expert_flag} {ranks} does"
    if plan.expert % folded:
        return f"{note}."
    return f"{note}; for {plan.expert} ranks write ep{plan.expert // folded}."


def meant(stack: str, model: Transformer) -> str:
    """The stack that a user means by a name. Megatron-Core is a library: it means the trainer on it that builds the
    model.

    >>> from dragonscale.models import load_model
    >>> [meant("megatron-core", load_model(name)) for name in ("llama3-8b", "glm-5", "olmo2-32b")]
    ['megatron-lm', 'megatron-bridge-26.04', 'megatron-lm']
    """
    if stack != LIBRARY:
        return stack
    return next((name for name in ON_LIBRARY if not unbuilt(name, model)), ON_LIBRARY[0])


def builders_elsewhere(model: Transformer, chips: str) -> list[str]:
    """Trainers that build a model on a family of chips, whether plans can be exported to them or not: for when no stack
    of a search does.

    >>> from dragonscale.models import load_model
    >>> [builders_elsewhere(load_model("kimi-linear-48b-a3b"), chips) for chips in ("nvidia", "tpu")]
    [['axolotl', 'NeMo AutoModel'], []]
    """
    available = (trainer for trainer in trainers().values() if _runs_on(trainer, chips))
    return [trainer.title for trainer in available if not trainer.refuses(model.config, model.name)]


def _runs_on(trainer: TrainerBuilds, chips: str) -> bool:
    if not trainer.exported:
        return chips in trainer.chips
    return any(chips in rules(stack, chips).formats for stack in trainer.stacks)
