"""The known family that a new `model_type` belongs to, by its fields.

New types are often known ones by another name. Every family's reader is tried; those that understand all fields of the
config match. Configs list every field that their class has, so a field that is absent does not exist there, and a
family's defaults are not filled in for it. Of several matches the best has a name that begins like the type's, is a
family from which most others descend, and reads most of the fields. Where no family understands every field, the
nearest is only named in the error: a wrong count is worse than none.
"""

import re
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

MIN_PREFIX = 4
"""Letters that two names must share at the beginning to be related: 'qwen', 'glm4', 'gemma'."""

NOTED_DIFFERENCE = 0.01
"""Two readings whose parameters differ by more than this fraction are both named in the note."""


PLAIN_ACTS = ("relu", "relu2", "gelu", "gelu_new", "gelu_fast", "quick_gelu")
"""Nonlinearities of MLPs without a gate."""
_LAYER_NORM_FIELDS = ("layer_norm_eps", "layer_norm_epsilon")
_ACT_FIELDS = ("hidden_act", "hidden_activation", "activation_function")


@dataclass(frozen=True)
class FamilyMatch:
    """A family that can read the config: the model that it reads, the fields that it refused, the length of the prefix
    that its name shares with the type's, and how many fields it understood."""

    family: str
    model: Transformer
    findings: Findings
    prefix: int
    understood: int

    @property
    def rank(self) -> tuple[int, int, bool, int, int, str]:
        """The sort key of matches: the lowest is the best."""
        plain = [*PLAIN, self.family].index(self.family)  # len(PLAIN) for a family that is not among them
        return (len(self.findings.refused), -self.prefix, plain == len(PLAIN), -self.understood, plain, self.family)


def shared_prefix(name: str, other: str) -> int:
    """The letters that two names share at the beginning; 0 if they are too few.

    >>> shared_prefix("minimax_m3", "minimax_m2"), shared_prefix("qwen4_moe", "qwen3_moe")
    (8, 4)
    >>> shared_prefix("lamb", "llama")
    0
    """
    letters, others = (re.sub("[_-]", "", text).lower() for text in (name, other))
    count = 0  # letters[:count] == others[:count]
    while letters[count : count + 1] and letters[count : count + 1] == others[count : count + 1]:
        count += 1
    return count if count >= MIN_PREFIX else 0


def matching_families(
    model_type: str, fields: Mapping[str, Any], families: Iterable[str], read: Read
) -> list[FamilyMatch]:
    """The families that can read the config, best first; those that understand every field come before others."""
    names = [model_type]
    architectures = fields.get("architectures")  # class names, which may name the family where the type does not
    if isinstance(architectures, list):
        names += map(str, architectures)
    matches: list[FamilyMatch] = []
    for family in families:
        findings = Findings()
        try:
            model, understood = read(family, findings)
        except InputError:  # a needed size is absent, or a value is not what the family allows
            continue
        if not model.layers or _contradicts(fields, model.layers[0]):
            continue
        prefix = max(shared_prefix(name, family) for name in names)
        matches.append(FamilyMatch(family, model, findings, prefix, understood))
    return sorted(matches, key=lambda match: match.rank)


def _contradicts(fields: Mapping[str, Any], layer: Layer) -> bool:
    """Whether fields that change no count show that a layer is not one of this family: layer norms have an eps of
    another name and usually biases, some nonlinearities have no gate."""
    has_layer_norm = "rms_norm_eps" not in fields and not fields.keys().isdisjoint(_LAYER_NORM_FIELDS)
    act = next((fields[name] for name in _ACT_FIELDS if name in fields), "")
    is_gated = isinstance(layer.ffn, Mlp) and layer.ffn.gated
    return (has_layer_norm and not layer.norm_bias) or (act in PLAIN_ACTS and is_gated)


def match_note(model_type: str, matches: list[FamilyMatch]) -> str:
    """A note on a config of an unknown type that is read as its best match."""
    best = matches[0]
    total = count_parameters(best.model).total
    note = (
        f"The model type {model_type!r} is not known; its fields are those of {best.family}, so it is read as that "
        "(`--as FAMILY` takes another)."
    )
    for other in matches[1:]:
        if other.findings.refused or not (other.prefix or other.family in PLAIN):
            continue  # it does not fit, or only by accident
        other_total = count_parameters(other.model).total
        if abs(other_total - total) > NOTED_DIFFERENCE * total:
            return f"{note[:-2]}; as {other.family} it would have {other_total:,} parameters and not {total:,})."
    return note
