"""The fields of a `config.json`, read one by one with their kind checked, so that what nobody read can be refused.

A family's reader asks for the fields that shape its model; each question is remembered. What is
left over is on the lists of fields known not to matter (`inert.toml`), or cannot change a count by
what it is (`harmless.toml`; noted), or the config is refused: a field that changes the model and is
silently ignored would give wrong numbers. All of them are named at once. Absent fields have the
default of the public configuration class (`defaults.toml`).

`inert.toml` lists fields that change neither parameters, FLOPs nor the cache in any family; the rules of
`harmless.toml`, by names and values, are for the ones that nobody has listed yet. What they let pass is noted, so that
a person can object. A rule must be narrow: `rope_theta_swa` turns positions, but `qk_rope_head_dim` is a width.

>>> why_harmless("swa_rope_theta", 10000.0), why_harmless("shared_expert_size", 0)
('RoPE', 'off')
>>> why_harmless("qk_rope_head_dim", 64), why_harmless("num_experts_per_token", 8)
('', '')
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError, nearest, shorten
from dragonscale.tables import beside

# The largest number that a field may have: far above any size, and small enough for products of a few to stay exact.
MAX_NUMBER = 2**40
# A config with more layers than this is a mistake, and would take minutes to read.
MAX_LAYERS = 10_000


MAX_NAMED = 12
"""A refusal names this many fields before it says how many more there are."""


@dataclass(frozen=True)
class Unread:
    """A field that is not understood, and those that were read where it stands."""

    name: str
    value: Any
    known: frozenset[str]

    def __str__(self) -> str:
        close = nearest(self.name, self.known)
        guess = f" (did you mean {close!r}?)" if close else ""
        return f"{self.name} = {_shown(self.value)}{guess}"


class Findings:
    """What reading a config brought up beside the model: fields passed over with a note, and fields
    that are not understood."""

    def __init__(self) -> None:
        self.harmless: dict[str, list[str]] = {}
        self.refused: list[Unread] = []
        self.notes: list[str] = []

    def join(self, other: "Findings") -> None:
        """What reading a part of the config brought up is the config's."""
        self.notes += other.notes
        for why, names in other.harmless.items():
            self.harmless.setdefault(why, []).extend(names)

    def told(self) -> list[str]:
        """The notes, what was passed over among them."""
        if not self.harmless:
            return self.notes
        passed = [f"{', '.join(few(names))} ({why})" for why, names in self.harmless.items()]
        return [*self.notes, f"Fields passed over, as they change no count: {'; '.join(passed)}."]

    def refuse(self, what: str) -> None:
        """Raise if there are fields that are not understood; every one is named."""
        if not self.refused:
            return
        fields, pronoun = "field", "it"
        if len(self.refused) > 1:
            fields, pronoun = "fields", "them"
        ignoring = ",".join(f"{unread.name}=ignore" for unread in self.refused)
        raise InputError(
            f"{what} has the {fields} {', '.join(few(self.refused))}, which Dragonscale does not understand for this "
            f"kind of model and which could change the counts; `--assume {ignoring}` counts without {pronoun}, and "
            "`--assume key=value` gives a field another value."
        )


def few(names: Sequence[object]) -> list[str]:
    """The first names, and how many more there are."""
    listed = list(map(str, names[:MAX_NAMED]))
    if len(names) > MAX_NAMED:
        listed.append(f"and {len(names) - MAX_NAMED} more")
    return listed


class Fields:
    """One JSON object and the memory of what was asked of it."""

    def __init__(
        self, given: Mapping[str, Any], defaults: Mapping[str, Any], what: str, findings: Findings | None = None
    ) -> None:
        self.given, self.defaults, self.what = given, defaults, what
        self.read: set[str] = {"model_type"}
        self.findings = findings or Findings()

    def value(self, *names: str) -> Any:
        """The field's value under the first of its names that is given, else its default, else None."""
        self.read.update(names)
        present = [name for name in names if self.given.get(name) is not None]
        if len(present) > 1 and any(self.given[name] != self.given[present[0]] for name in present):
            # a config that went through several versions of a tool may have both; equal ones do no harm
            raise InputError(
                f"{self.what} has {present[0]} = {shorten(self.given[present[0]])} and {present[1]} = "
                f"{shorten(self.given[present[1]])}, which are two names of one field; give it once."
            )
        if present:
            return self.given[present[0]]
        if any(name in self.given for name in names):  # null is not the default: it says that there is none
            return None
        return next((self.defaults[name] for name in names if name in self.defaults), None)

    def _wrong(self, name: str, value: object, wanted: str) -> InputError:
        return InputError(f"{self.what} has {name} = {shorten(value)}, which is not {wanted}.")

    def _whole(self, name: str, value: object, least: int, highest: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= highest:
            raise self._wrong(name, value, f"a whole number from {least} to {highest:,}")
        return value

    def natural(self, *names: str, at_most: int = MAX_NUMBER) -> int:
        """A whole number, 0 if null or absent."""
        value = self.value(*names)
        return 0 if value is None else self._whole(names[0], value, 0, at_most)

    def count(self, *names: str, at_most: int = MAX_NUMBER) -> int:
        """A whole number of at least one, which must be known."""
        value = self.value(*names)
        if value is None:
            raise InputError(f"{self.what} lacks {names[0]}, which is needed to count the model.")
        return self._whole(names[0], value, 1, at_most)

    def repeated(self, name: str) -> int:
        """A whole number, 0 if null or absent; a list may repeat it, for all layers or for both sides of an image."""
        value = self.value(name)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            return self._whole(name, value[0], 0, MAX_NUMBER)
        return self.natural(name)

    def counts(self, *names: str) -> list[int]:
        """Several fields, each a whole number of at least one, which must be known."""
        return [self.count(name) for name in names]

    def optional(self, *names: str) -> int | None:
        """A whole number of at least one, or None if null, absent or 0."""
        return self.natural(*names) or None

    def flag(self, *names: str) -> bool:
        """True or false; false if null or absent."""
        # no 0 or "true": such a value shows that the field is not what the reader takes it for
        value = self.value(*names)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(names[0], value, "true or false")
        return bool(value)

    def text(self, *names: str) -> str:
        """A string; empty if null or absent."""
        value = self.value(*names)
        if value is not None and not isinstance(value, str):
            raise self._wrong(names[0], value, "a string")
        return value or ""

    def choice(self, name: str, allowed: Collection[str]) -> str:
        """A string that must be one of those understood here."""
        value = self.text(name)
        if value not in allowed:
            raise self._wrong(name, value, f"understood here; known: {', '.join(map(repr, sorted(allowed)))}")
        return value

    def numbers(self, *names: str) -> list[int] | None:
        """A list of whole numbers, or None."""
        value = self.value(*names)
        if value is None:
            return None
        fits = isinstance(value, list) and len(value) <= MAX_LAYERS
        if not fits or any(type(entry) is not int or not 0 <= entry <= MAX_NUMBER for entry in value):
            raise self._wrong(names[0], value, "a list of whole numbers")
        return value

    def kinds(self, name: str, n_layers: int, allowed: Collection[str], otherwise: Callable[[int], str]) -> list[str]:
        """The kind of every layer: the list in the field, or what `otherwise` says of each layer's number."""
        value = self.value(name)
        if value is None:
            return [otherwise(number) for number in range(n_layers)]
        if not isinstance(value, list) or len(value) != n_layers:
            raise self._wrong(name, value, f"a list of {n_layers} names, one for each layer")
        for entry in value:
            if not isinstance(entry, str) or entry not in allowed:
                raise InputError(
                    f"{self.what} has a layer of kind {shorten(entry)} in {name}; understood here: "
                    f"{', '.join(sorted(allowed))}."
                )
        return value

    def either(
        self, name: str, kinds: tuple[str, str], otherwise: Callable[[int], object], n_layers: int | None = None
    ) -> list[bool]:
        """Of two kinds of layers, which are of the second: by the list in the field, or where `otherwise` says so."""
        listed = self.kinds(name, n_layers or self.n_layers(), kinds, lambda number: kinds[bool(otherwise(number))])
        return [kind == kinds[1] for kind in listed]

    def inner(self, name: str) -> "Fields":
        """The object inside a field, without any fields if it is null or absent."""
        value = self.value(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return Fields(value, {}, f"{name} of {self.what}", self.findings)

    def skip(self, *names: str) -> None:
        """Fields that this family carries but does not use."""
        self.read.update(names)

    def must_be(self, name: str, *allowed: Any) -> None:
        """A field that may be absent, but if given must have a value that the reader's form stands for."""
        self.read.add(name)
        value = self.given.get(name, allowed[0])
        if value not in allowed:
            raise self._wrong(name, value, f"understood here; known: {', '.join(map(repr, allowed))}")

    def check(self, row: Mapping[str, Any]) -> None:
        """What a row of a file says of fields: what they must be, and which of them the family does not use."""
        for name, wanted in row.get("must", {}).items():
            self.must_be(name, wanted)
        self.skip(*row.get("skip", ()))

    def split_evenly(self, total: int, parts: int, what: str) -> int:
        """One part's share, or an error if it does not come out even."""
        if total % parts:
            raise InputError(f"{self.what} cannot split {what} of {total} over {parts} heads evenly.")
        return total // parts

    def n_layers(self, *names: str) -> int:
        """The number of layers."""
        return self.count(*(names or ("num_hidden_layers",)), at_most=MAX_LAYERS)

    def settle(self, text_only: bool = False) -> None:
        """Sort the fields that nobody read: known not to matter, harmless by their kind, or refused."""
        for name, value in self.given.items():
            if name in self.read or is_inert(name, value):
                continue
            why = why_harmless(name, value, text_only)
            if why:
                shown = name if why == "off" else f"{name} = {_shown(value)}"
                self.findings.harmless.setdefault(why, []).append(shown)
                continue
            self.findings.refused.append(Unread(name, value, frozenset(self.read)))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "{…}"
    return shorten(value, 40)


_LISTS = beside(__file__, "inert.toml")
INERT_WHILE_OFF, SIZES = (frozenset(_LISTS.pop(name).split()) for name in ("while_off", "sizes"))
INERT = frozenset(" ".join(_LISTS.values()).split())


def is_inert(name: str, value: Any) -> bool:
    """Whether a field that no reader asked for can be passed over.

    >>> is_inert("rope_theta", 10000.0), is_inert("attention_bias", False), is_inert("attention_bias", True)
    (True, True, False)
    """
    return name in INERT or name.startswith("_") or (name in INERT_WHILE_OFF and not value)


_SIZES = re.compile(r"(?:_dims?|_size|_rank|_heads|_width|_experts|per_tok\w*)$|^(?:num|n)_")
"""Names of sizes, which matter whatever else the name says."""

_RULES = {why: re.compile(names) for why, names in beside(__file__, "harmless.toml").items()}
_SCALES = re.compile(r"(?:_scale|_scaling|_scaling_factor|_multipliers?|_alpha|_beta|_limit)$")
_WIDTH_SCALES = re.compile(r"dim_mult|expan|ratio|ffn|ff_|hidden")
_FUNCTIONS = re.compile(r"(?:_act|_act_fn|activation|activation_func(?:tion)?)$")
_SEEN = re.compile(
    r"(?:^|_)(?:vision|visual|image|img|video|audio|patch|pixel|frame|mm|multimodal|vit|projector|tile|crop)"
)


def why_harmless(name: str, value: Any, text_only: bool = False) -> str:
    """Why a field cannot change a count, in a word or two; empty if it could. With `text_only`
    nothing but the language model is counted, so what is said of images does not matter."""
    if is_off(value):
        return "off"
    lower = name.lower()
    if text_only and _SEEN.search(lower):
        return "of what it sees or hears"
    # rotary_dim: how much of a head rotates, which no count sees
    if _SIZES.search(lower) and not lower.endswith("rotary_dim"):
        return ""
    for why, pattern in _RULES.items():
        if pattern.search(lower):
            return why
    # a scale of activations changes no count, but one of a width does: ffn_dim_multiplier
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and _SCALES.search(lower) and not _WIDTH_SCALES.search(lower):
        return "a constant factor"
    if isinstance(value, str) and _FUNCTIONS.search(lower):
        return "a nonlinearity"
    return ""


def is_off(value: Any) -> bool:
    """Null, false, zero, empty, or holding nothing but these.

    >>> is_off({"a": None, "b": [0, False]}), is_off([0, 1])
    (True, False)
    """
    if isinstance(value, dict):
        return all(map(is_off, value.values()))
    if isinstance(value, list):
        return all(map(is_off, value))
    return not value
