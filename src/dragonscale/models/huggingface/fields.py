"""The fields of a `config.json`, read one by one with their kind checked, so that what nobody read can be refused.

A family's reader asks for the fields that shape its model; each question is remembered. What is left over must be on the
list of fields known not to matter (`inert.py`), else the config is refused by that field's name: a field that changes
the model and is silently ignored would give wrong numbers. Absent fields have the default of the public configuration
class (`defaults.toml`).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dragonscale.errors import InputError, nearest, shorten
from dragonscale.models.huggingface.inert import is_inert

MOST = 2**40
MOST_LAYERS = 10_000


class Fields:
    """One JSON object and the memory of what was asked of it."""

    def __init__(self, given: Mapping[str, Any], defaults: Mapping[str, Any], what: str) -> None:
        self.given, self.defaults, self.what = given, defaults, what
        self.read: set[str] = {"model_type"}

    def value(self, *names: str) -> Any:
        """The field's value under the first of its names that is given, else its default, else None."""
        self.read.update(names)
        present = [name for name in names if self.given.get(name) is not None]
        if len(present) > 1 and any(self.given[name] != self.given[present[0]] for name in present):
            raise InputError(
                f"{self.what} has {present[0]} = {shorten(self.given[present[0]])} and {present[1]} = "
                f"{shorten(self.given[present[1]])}, which are two names of one field; give it once."
            )
        if present:
            return self.given[present[0]]
        if any(name in self.given for name in names):
            return None
        return next((self.defaults[name] for name in names if name in self.defaults), None)

    def _wrong(self, name: str, value: object, wanted: str) -> InputError:
        return InputError(f"{self.what} has {name} = {shorten(value)}, which is not {wanted}.")

    def _whole(self, name: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, value, f"a whole number from {least} to {most:,}")
        return value

    def natural(self, *names: str, at_most: int = MOST) -> int:
        """A whole number, 0 if null or absent."""
        value = self.value(*names)
        return 0 if value is None else self._whole(names[0], value, 0, at_most)

    def count(self, *names: str, at_most: int = MOST) -> int:
        """A whole number of at least one, which must be known."""
        value = self.value(*names)
        if value is None:
            raise InputError(f"{self.what} lacks {names[0]}, which is needed to count the model.")
        return self._whole(names[0], value, 1, at_most)

    def optional(self, *names: str) -> int | None:
        """A whole number of at least one, or None if null, absent or 0."""
        return self.natural(*names) or None

    def flag(self, *names: str) -> bool:
        """True or false; false if null or absent."""
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
        fits = isinstance(value, list) and len(value) <= MOST_LAYERS
        if not fits or any(type(entry) is not int or not 0 <= entry <= MOST for entry in value):
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
                    f"{self.what} has a layer of kind {shorten(entry)} in {name}; understood here: {', '.join(sorted(allowed))}."
                )
        return value

    def either(
        self, name: str, n_layers: int, kinds: tuple[str, str], otherwise: Callable[[int], object]
    ) -> list[bool]:
        """Of two kinds of layers, which are of the second: by the list in the field, or where `otherwise` says so."""
        found = self.kinds(name, n_layers, kinds, lambda number: kinds[bool(otherwise(number))])
        return [kind == kinds[1] for kind in found]

    def inner(self, name: str, defaults: Mapping[str, Any] | None = None) -> "Fields | None":
        """The object inside a field, or None if it is null or absent."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return Fields(value, defaults or {}, f"{name} of {self.what}")

    def skip(self, *names: str) -> None:
        """Fields that this family carries but does not use."""
        self.read.update(names)

    def must_be(self, name: str, *allowed: Any) -> None:
        """A field that may be absent, but if given must have a value that the reader's form stands for."""
        self.read.add(name)
        value = self.given.get(name, allowed[0])
        if value not in allowed:
            raise self._wrong(name, value, f"understood here; known: {', '.join(map(repr, allowed))}")

    def n_layers(self, *names: str) -> int:
        """The number of layers."""
        return self.count(*(names or ("num_hidden_layers",)), at_most=MOST_LAYERS)

    def refuse_unread(self) -> None:
        """Raise for the first field that was neither read nor known not to matter."""
        for name, value in self.given.items():
            if name not in self.read and not is_inert(name, value):
                close = nearest(name, self.read)
                guess = f" (did you mean {close!r}?)" if close else ""
                raise InputError(
                    f"{self.what} has the field {name} = {shorten(value)}{guess}, which Dragonscale does not understand "
                    "for this kind of model; it could change the counts, so it is refused."
                )
