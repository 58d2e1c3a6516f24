"""Which known family a new `model_type` is, by its fields.

New types are often known ones by another name. Every family's reader is tried; those that take the
config, all of its fields understood, are kin. Files list every field that their class has, so a field
that is absent does not exist there, and a family's defaults do not stand in for it. Of several kin the
one wins whose name begins alike, from which most others descend, and that reads most of the fields.
Where none understands every field, the nearest is told: a wrong count is worse than none.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.ffn import Mlp
from dragonscale.models.huggingface.families import PLAIN
from dragonscale.models.huggingface.fields import Findings
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer, count_parameters

Read = Callable[[str, Findings], tuple[Transformer, int]]
"""Reads the config as a family: the model, and how many fields that matter it understood."""

NAMED_ALIKE = 4
"""Letters that two types must begin with to be called alike: 'qwen', 'glm4', 'gemma'."""

APART = 0.01
"""Totals of two readings that differ by more than this part are both told."""


PLAIN_ACTS = ("relu", "relu2", "gelu", "gelu_new", "gelu_fast", "quick_gelu")
"""Nonlinearities of MLPs without a gate."""


@dataclass(frozen=True)
class Kin:
    """A family that reads the config, and what speaks for it."""

    family: str
    model: Transformer
    findings: Findings
    alike: int
    understood: int

    @property
    def rank(self) -> tuple[int, int, bool, int, int, str]:
        """Its place among its like: the lowest is taken."""
        plain = PLAIN.index(self.family) if self.family in PLAIN else len(PLAIN)
        return (len(self.findings.refused), -self.alike, plain == len(PLAIN), -self.understood, plain, self.family)


def alike(one: str, other: str) -> int:
    """How many letters two names begin with alike, 0 if too few.

    >>> alike("minimax_m3", "minimax_m2"), alike("qwen4_moe", "qwen3_moe"), alike("lamb", "llama")
    (8, 4, 0)
    """
    one, other = (name.replace("_", "").replace("-", "").lower() for name in (one, other))
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return same if same >= NAMED_ALIKE else 0


def kin_of(model_type: str, given: Mapping[str, Any], families: Iterable[str], read: Read) -> list[Kin]:
    """The families that read the config, those that understand every field first."""
    names = [model_type, *(str(name) for name in _listed(given.get("architectures")))]
    found: list[Kin] = []
    for family in families:
        findings = Findings()
        try:
            model, understood = read(family, findings)
        except InputError:
            continue
        if not model.layers or _contradicts(given, model.layers[0]):
            continue
        close = max(alike(name, family) for name in names)
        found.append(Kin(family, model, findings, close, understood))
    return sorted(found, key=lambda kin: kin.rank)


def _contradicts(given: Mapping[str, Any], layer: Layer) -> bool:
    """Whether fields that change no count say that a layer is not as this family has it: layer norms have an eps of
    another name and usually biases, some nonlinearities have no gate."""
    layered = "rms_norm_eps" not in given and any(name in given for name in ("layer_norm_eps", "layer_norm_epsilon"))
    act = next(
        (given[name] for name in ("hidden_act", "hidden_activation", "activation_function") if name in given), ""
    )
    gated = isinstance(layer.ffn, Mlp) and layer.ffn.gated
    return (layered and not layer.norm_bias) or (act in PLAIN_ACTS and gated)


def told(model_type: str, found: list[Kin]) -> str:
    """What is said of a config that is read as its kin."""
    best = found[0]
    total = count_parameters(best.model).total
    said = (
        f"The model type {model_type!r} is not known; its fields are those of {best.family}, so it is read as that "
        "(`--as FAMILY` takes another)."
    )
    fits = [kin for kin in found[1:] if not kin.findings.refused and (kin.alike or kin.family in PLAIN)]
    for other in fits:
        apart = count_parameters(other.model).total
        if abs(apart - total) > APART * total:
            return f"{said[:-2]}; as {other.family} it would have {apart:,} parameters and not {total:,})."
    return said


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
