"""Flags: the fields of a question.

    class TrainQuestion(Question):
        model: Thing = MODEL
        batch: Text = Text(value="TOKENS|SEQS")
        \"""Tokens of a step (4M), or sequences (512seq).\"""
        top: Whole = Whole(5, "N", SHOW)
        \"""How many of the best plans to show.\"""
        deadline: Amount = Duration("", "TIME")
        \"""The longest it may take.\"""

A field is a descriptor, so that one line is the declaration, the check and the type: a `Text` takes numbers
too (`seq=8192`) and keeps them as they would be typed, a `Duration` also knows how its text is read, a `Thing` also
takes the object that the text would name (a `Transformer`, a `Slice`, a `Plan`). A field without a default must be
given. The docstring below it is what help says, so that an editor shows the same words.
"""

import copy
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, dataclass_transform

from dragonscale.commands.questions.docstrings import constant_docstring, docstrings
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.listener import Listener
from dragonscale.physics.units import is_grouped, parse, parse_count, parse_length

Given = TypeVar("Given")
Kept = TypeVar("Kept")
Asked = TypeVar("Asked", bound="Question")


MOST = 1e18
"""No number that is asked about is larger."""


class _Required:
    """The default of a field that has none."""


REQUIRED: Any = _Required()

WORK = "Workload"
WHERE = "Chips and prices"
RUN = "Failures and checkpoints"
PLAN = "Plan"
TUNING = "Fine-tuning"
SOFTWARE = "Software and formats"
COMPILER = "Compiler"
SHOW = "Answer"
FILES = "Files"
GROUPS = (WORK, TUNING, WHERE, RUN, PLAN, SOFTWARE, COMPILER, SHOW, FILES)
"""The groups of a command's help, in their order."""


class Field(Generic[Given, Kept]):
    """A flag: its default, what its value is called, where help lists it, how else it may be spelled.

    `offers` is what completion offers: the values themselves, or the name of a list of them (models, slices,
    stacks, engines, dtypes, files). A field with `place` is given by its place, without a dash. `dash` is the
    flag where Python has taken the word for itself (`--as`). `needed`: help calls it so though it has a default, as
    where a plan file may say it. `limits` are the least and the most of a number
    (`check_limits`).
    """

    switch = False
    many = False
    gathers = False
    """Whether it takes every place that is left."""
    owner: type | None = None
    """The class that has it; none of one that several share."""
    origin: "Field[Any, Any] | None" = None
    """What it was made from by `but`, whose words it has unless a docstring says otherwise."""

    def __init__(
        self,
        default: Kept = REQUIRED,
        value: str = "VALUE",
        group: str = WORK,
        *,
        also: tuple[str, ...] = (),
        offers: tuple[str, ...] | str = (),
        place: bool = False,
        dash: str = "",
        needed: bool = False,
        limits: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        self.default, self.value, self.group, self.name = default, value, group, ""
        self.also, self.offers, self.place, self.dash = also, offers, place, dash
        self.needed, self.limits = needed, limits

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    @functools.cached_property
    def about(self) -> str:
        """What help says: the docstring below the field, below the constant it is, or of what it was made from."""
        below = self.owner and docstrings(self.owner.__module__).get(f"{self.owner.__qualname__}.{self.name}")
        return below or constant_docstring(self) or (self.origin.about if self.origin else "")

    def __get__(self, instance: object | None, owner: type) -> Kept:
        if instance is None:
            if self.required:
                # dataclasses take a class attribute for the default: none here means that it must be given
                raise AttributeError(self.name)
            return self.default
        return instance.__dict__[self.name]

    def __set__(self, instance: object, value: Given) -> None:
        instance.__dict__[self.name] = self.taken(value)

    def named(self, name: str) -> Self:
        """The field under a name, where no class gives it one."""
        self.name = name
        return self

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def flag(self) -> str:
        """The field as it is typed.

        >>> Text().named("max_time").flag
        '--max-time'
        """
        return self.dash or "--" + self.name.replace("_", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.flag, *self.also)

    @property
    def called(self) -> str:
        """What a refusal calls it: the flag, or the word at its place."""
        if self.place:
            return self.value
        return self.flag

    def but(self, **changed: Any) -> Self:
        """The same field with some words changed."""
        other = copy.copy(self)
        other.__dict__.pop("about", None)  # what help said of the other field, where somebody has asked
        other.origin, other.owner = self, None
        for name, value in changed.items():
            setattr(other, name, value)
        return other

    @classmethod
    def of(cls, field: "Field[Any, Any]", **changed: Any) -> Self:
        """The same field read as this kind, some words changed: a `Length` where another question keeps the text."""
        # a copy: the other question keeps its own field
        other: Any = field.but(**changed)
        other.__class__ = cls
        return other

    def taken(self, value: Any) -> Kept:
        """A value as the question keeps it; what cannot be one is refused in a sentence."""
        raise NotImplementedError

    def _refused(self, value: object, wanted: str) -> InputError:
        return InputError(f"{self.called} is {shorten(value)}; it takes {wanted}.")


class Text(Field[str | float | None, str]):
    """Words or a quantity, kept as text; the library may give a number, of a time in seconds.

    >>> Text("", "TIME").named("tpot").taken(0.03), Text("", "TOKENS").named("seq").taken(8192.0)
    ('0.03s', '8192')
    """

    @property
    def base(self) -> str:
        """The unit of a number that is given without one."""
        if self.value == "TIME":
            return "s"
        return ""

    def taken(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float | type(None)):
            raise self._refused(value, f"text or a number ({self.about})")
        # 8192.0 is written as a person would type it
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, str | None):
            return str(value or "")
        return f"{value}{self.base}"


class Amount(str):
    """A quantity as it was typed, which is read in the unit of its field."""

    unit: str
    flag: str

    def read(self, absent: Any = REQUIRED) -> Any:
        """The quantity in base units, refused in the name of its flag; `absent`, if given, where nothing was typed.

        >>> class Server(Question):
        ...     grace: Duration = Duration("30s")
        >>> Server().grace.read(), Server("").grace.read(math.inf), Server("2min").grace
        (30.0, inf, '2min')
        """
        if absent is not REQUIRED and not self.strip():
            return absent
        return parse(self, self.unit, self.flag)


class TokenCount(Amount):
    """The length of a sequence, a prompt or an output as it was typed."""

    def tokens(self, listener: Listener) -> int:
        """The tokens; a reading that needs a word (32k are 32,768) is told to the listener."""
        length, note = parse_length(self, self.flag)
        if note:
            listener.note(note)
        return length


class _Quantity(Text):
    unit = ""
    kept: type[Amount] = Amount

    @property
    def base(self) -> str:
        return self.unit

    def taken(self, value: Any) -> Amount:
        amount = self.kept(super().taken(value))
        amount.unit, amount.flag = self.unit, self.called
        return amount

    if TYPE_CHECKING:

        def __get__(self, instance: object | None, owner: type) -> Amount: ...


class Duration(_Quantity):
    """A time, such as 30s."""

    unit = "s"


class Bytes(_Quantity):
    """An amount of memory, such as 8GB."""

    unit = "bytes"


class Length(_Quantity):
    """A length in tokens, such as 8192 or 32k."""

    kept = TokenCount

    if TYPE_CHECKING:

        def __get__(self, instance: object | None, owner: type) -> TokenCount: ...


class Several(Field[str | list[str] | tuple[str, ...] | None, str]):
    """Text that may be given several times, kept with commas between."""

    many = True

    def taken(self, value: Any) -> str:
        if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            return ",".join(value)
        if not isinstance(value, str | type(None)):
            raise self._refused(value, f"text, or a list of texts ({self.about})")
        return value or ""


class Thing(Field[Any, Any]):
    """Text, or the object it would name: a model, a slice, a plan; or several of them in a list."""

    many = True

    def taken(self, value: Any) -> Any:
        if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
            return ",".join(value)
        if value is None:
            return ""
        return value


class Items(Field[Any, tuple[Any, ...]]):
    """Things given by their place, as many as there are: texts, or objects; kept as a tuple."""

    gathers = True

    def taken(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, list | tuple):
            return tuple(value)
        if value is None:
            return ()
        return (value,)


class Whole(Field[int | None, Any]):
    """A whole number; None where the default is."""

    range_flag = ""
    """The flag that takes a range of it (`0..3`), where there is one."""

    def taken(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        if isinstance(value, str):
            # a range, which another flag takes
            bounds = re.fullmatch(r"(\d+)\.{2,3}(\d+)", value.strip())
            if bounds is not None and self.range_flag:
                least, largest = bounds.groups()
                raise self._refused(
                    value,
                    f"one whole number; {self.range_flag} {least}..{largest},target=24 scales between {least} and "
                    f"{largest} replicas, with about 24 requests on each",
                )
            if value.strip().startswith("-"):
                raise self._refused(value, f"a whole number of {max(self.limits[0], 0):g} or more")
            # 1,024 is one number and 1,2 are two
            if "," in value and not is_grouped(value):
                raise self._refused(value, "one whole number; a table of `dscale sweep` takes lists of them")
            return parse_count(value, self.called)
        # True is an int to Python and no number to a user
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            raise self._refused(value, "a whole number")
        return int(value)


class Real(Field[float | None, Any]):
    """A number; None where the default is."""

    def taken(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        try:
            if value is None or isinstance(value, bool):
                number = math.nan
            else:
                number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not -MOST <= number <= MOST:
            raise self._refused(value, "a number, such as 0.5")
        return number


class Switch(Field[bool | None, Any]):
    """Yes or no; None, where the default is, leaves it to the planner."""

    switch = True

    def __init__(self, default: bool | None = False, **words: Any) -> None:
        super().__init__(default, **words)

    def taken(self, value: Any) -> Any:
        if not isinstance(value, bool) and not (value is None and self.default is None):
            raise self._refused(value, "true or false")
        return value


@dataclass_transform(frozen_default=True)
class Question:
    """What can be asked: a frozen dataclass whose fields are flags.

    Its methods are these and not generated ones, so that the table of commands can load every question in a blink.
    """

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *given: Any, **named: Any) -> None:
        fields = {field.name: field for field in fields_of(type(self))}
        values = dict(zip(fields, given, strict=False)) | named
        # a field that is given twice, or one that there is not
        if len(given) + len(named) > len(values) or not values.keys() <= fields.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(fields)}, each once.")
        for name, field in fields.items():
            if field.required and name not in values:
                raise TypeError(f"{type(self).__name__} needs {name}.")
            field.__set__(self, values.get(name, field.default))

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Question) or type(self) is not type(other):
            return NotImplemented
        return values_of(self) == values_of(other)

    def __hash__(self) -> int:
        return hash(tuple(values_of(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values_of(self).items())})"


def values_of(question: Question) -> dict[str, Any]:
    """The value of each field by its name, in the order of the fields."""
    return {field.name: getattr(question, field.name) for field in fields_of(type(question))}


def with_values(question: Asked, **values: Any) -> Asked:
    """The same question with other values of some fields, taken as they are and not read as text is.

    >>> from dragonscale.commands.questions.train import TrainQuestion
    >>> with_values(TrainQuestion("llama3-8b", "h100:8"), on="h200:8").on
    'h200:8'
    """
    unknown_fields = values.keys() - values_of(question).keys()
    if unknown_fields:
        raise TypeError(f"{type(question).__name__} has no {', '.join(sorted(unknown_fields))}.")
    changed = copy.copy(question)
    changed.__dict__.update(values)
    return changed


@functools.cache
def fields_of(question: type) -> tuple[Field[Any, Any], ...]:
    """The fields of a question, in order.

    >>> from dragonscale.commands.questions.train import TrainQuestion
    >>> [field.name for field in fields_of(TrainQuestion)][:4]
    ['model', 'on', 'batch', 'seq']
    """
    fields: dict[str, Field[Any, Any]] = {}
    for kind in reversed(question.__mro__):  # a field of a subclass takes the place of its parent's
        fields |= {name: value for name, value in kind.__dict__.items() if isinstance(value, Field)}
    return tuple(fields.values())


def check_limits(question: Question) -> None:
    """Refuse a number that is beyond the limits of its field."""
    for field in fields_of(type(question)):
        (least, largest), value = field.limits, getattr(question, field.name)
        if isinstance(value, int | float) and not least <= value <= largest:
            raise InputError(f"{field.called} is {shorten(value)}; it is from {least:g} to {largest:,}.")


def written(thing: Any) -> str:
    """A thing as it would be typed: text as it is, an object by its name or as it prints itself.

    A plan that was found is one too: the dict of its settings, its record, or the answer whose best it is.

    >>> written("llama3-8b"), written(None), written({"tensor": 8, "remat": "block"}), written(["v5e", "h100"])
    ('llama3-8b', '', 'tensor=8,remat=block', 'v5e,h100')
    """
    if thing is None or isinstance(thing, str):
        return thing or ""
    if isinstance(thing, PathLike):  # whose `name` is only the end of it
        return str(thing)
    if isinstance(thing, Mapping):
        return ",".join(f"{name}={value}" for name, value in thing.items() if value not in ("", None))
    if isinstance(thing, list | tuple):
        return ",".join(map(written, thing))
    # an answer of train or serve
    if hasattr(thing, "best"):
        if thing.best is None:
            raise Infeasible("The answer that is given for a plan has none that fits; give a plan.")
        return written(thing.best)
    # one of its plans or configurations
    if hasattr(thing, "plan"):
        return written(thing.plan)
    if hasattr(thing, "all_settings"):  # a plan: none of its settings is left to the stack of another question
        return written(thing.all_settings)
    return getattr(thing, "name", None) or str(thing)
