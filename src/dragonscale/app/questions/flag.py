"""Flags: the fields of a question.

    @dataclass(frozen=True)
    class TrainQuestion:
        model: Thing = MODEL
        batch: Text = Text("Tokens of a step (4M), or sequences (512seq).", value="TOKENS|SEQS")
        top: Whole = Whole("How many of the best plans to show.", default=5)
        force: Switch = Switch("Judge what the stack cannot run.")

A field is a descriptor, so that one line is the declaration, the check and the type: a `Text` takes numbers
too (`seq=8192`) and keeps them as they would be typed, a `Thing` also takes the object that the text would
name (a `Transformer`, a `Slice`, a `Plan`). A field without a default must be given.
"""

import copy
import math
from collections.abc import Mapping
from os import PathLike
from typing import Any, Generic, Self, TypeVar

from dragonscale.errors import Infeasible, InputError, shorten

Given = TypeVar("Given")
Kept = TypeVar("Kept")


MOST = 1e18
"""No number that is asked about is larger."""


class _Required:
    """The default of a field that has none."""


REQUIRED: Any = _Required()

WORK = "Workload"
WHERE = "Chips and prices"
PLAN = "Plan"
SOFTWARE = "Software and formats"
COMPILER = "Compiler"
SHOW = "Answer"
FILES = "Files"
GROUPS = (WORK, WHERE, PLAN, SOFTWARE, COMPILER, SHOW, FILES)
"""The groups of a command's help, in their order."""


class Field(Generic[Given, Kept]):
    """A flag: what it is about, what its value is called, where help lists it, how else it may be spelled.

    `offers` is what completion offers: the values themselves, or the name of a list of them (models, slices,
    stacks, engines, dtypes, files). A field with `place` is given by its place, without a dash. `dash` is the
    flag where Python has taken the word for itself (`--as`).
    """

    switch = False
    many = False
    gathers = False
    """Whether it takes every place that is left."""
    needed = False
    """Whether help calls it needed though it has a default, as where a plan file may say it."""

    def __init__(
        self,
        about: str,
        default: Kept = REQUIRED,
        *,
        value: str = "VALUE",
        group: str = WORK,
        also: tuple[str, ...] = (),
        offers: tuple[str, ...] | str = (),
        place: bool = False,
        dash: str = "",
    ) -> None:
        self.about, self.default, self.value, self.group = about, default, value, group
        self.also, self.offers, self.place, self.name = also, offers, place, ""
        self.dash = dash

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

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

        >>> Text("The longest it may take.").named("max_time").flag
        '--max-time'
        """
        return self.dash or "--" + self.name.replace("_", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.flag, *self.also)

    def but(self, **changed: Any) -> Self:
        """The same field with some words changed."""
        other = copy.copy(self)
        for name, value in changed.items():
            setattr(other, name, value)
        return other

    def taken(self, value: Any) -> Kept:
        """A value as the question keeps it; what cannot be one is refused in a sentence."""
        raise NotImplementedError

    def _refused(self, value: object, wanted: str) -> InputError:
        name = self.value if self.place else self.flag
        return InputError(f"{name} is {shorten(value)}; it takes {wanted}.")


class Text(Field[str | float | None, str]):
    """Words or a quantity, kept as text; the library may give a number."""

    def taken(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float | type(None)):
            raise self._refused(value, f"text or a number ({self.about})")
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        return "" if value is None else str(value)


class Several(Field[str | list[str] | tuple[str, ...] | None, str]):
    """Text that may be given several times, kept with commas between."""

    many = True

    def taken(self, value: Any) -> str:
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return ",".join(value)
        if not isinstance(value, str | type(None)):
            raise self._refused(value, f"text, or a list of texts ({self.about})")
        return value or ""


class Thing(Field[Any, Any]):
    """Text, or the object it would name: a model, a slice, a plan; or several of them in a list."""

    many = True

    def taken(self, value: Any) -> Any:
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return ",".join(value)
        return "" if value is None else value


class Items(Field[Any, tuple[Any, ...]]):
    """Things given by their place, as many as there are: texts, or objects; kept as a tuple."""

    gathers = True

    def taken(self, value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, list | tuple) else () if value is None else (value,)


class Whole(Field[int | None, Any]):
    """A whole number; None where the default is."""

    def taken(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        if isinstance(value, str):
            from dragonscale.physics.units import parse_count

            if value.strip().startswith("-"):
                raise self._refused(value, "a whole number of 0 or more")
            return parse_count(value, self.flag)
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            raise self._refused(value, "a whole number")
        return int(value)


class Real(Field[float | None, Any]):
    """A number; None where the default is."""

    def taken(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        try:
            number = math.nan if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not -MOST <= number <= MOST:
            raise self._refused(value, "a number, such as 0.5")
        return number


class Switch(Field[bool | None, Any]):
    """Yes or no; None, where the default is, leaves it to the planner."""

    switch = True

    def __init__(self, about: str, default: bool | None = False, **words: Any) -> None:
        super().__init__(about, default, **words)

    def taken(self, value: Any) -> Any:
        if not isinstance(value, bool) and not (value is None and self.default is None):
            raise self._refused(value, "true or false")
        return value


def fields_of(question: type) -> tuple[Field[Any, Any], ...]:
    """The fields of a question, in order.

    >>> from dragonscale.app.questions.train import TrainQuestion
    >>> [field.name for field in fields_of(TrainQuestion)][:4]
    ['model', 'on', 'batch', 'seq']
    """
    every = {name: value for kind in reversed(question.__mro__) for name, value in vars(kind).items()}
    return tuple(value for value in every.values() if isinstance(value, Field))


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
    if hasattr(thing, "best"):
        if thing.best is None:
            raise Infeasible("The answer that is given for a plan has none that fits; give a plan.")
        return written(thing.best)
    if hasattr(thing, "plan"):
        return written(thing.plan)
    if hasattr(thing, "all_settings"):  # a plan: none of its settings is left to the stack of another question
        return written(thing.all_settings)
    return getattr(thing, "name", None) or str(thing)


MODEL = Thing(
    "A preset (llama3-70b), org/name of the Hugging Face Hub, a config.json, a folder, a GGUF or TOML file.",
    value="MODEL",
    place=True,
    offers="models",
).named("model")
ASSUME = Several(
    "A field of the model's config to take as KEY=VALUE, or KEY=ignore to leave one out; may be repeated.",
    default="",
    value="KEY=VALUE",
    group=SOFTWARE,
)
FAMILY = Text(
    "Read the model's config as this model type (llama, mixtral, deepseek_v3 …).",
    default="",
    value="FAMILY",
    group=SOFTWARE,
    also=("--family",),
    dash="--as",
)
ON = Thing(
    "A slice: v5p:8x16x16, h100:4096, 8xh100, v6e-256, v5p:16x20x28*4 (four pods), mychip.toml:4x4.",
    value="SLICE",
    group=WHERE,
    offers="slices",
)
SET = Several(
    (
        "What if the chip were another: hbm=1.5x, nvlink=2x, flops=2x, network=800GB/s, hbm_capacity, ici, dcn, "
        "pcie, price …"
    ),
    default="",
    value="NAME=VALUE",
    group=WHERE,
)
PROFILE = Text(
    (
        "Kernel times of your own device: a file of `dscale calibrate`, own (of your folder, the default if it is "
        "there) or built-in."
    ),
    default="",
    value="FILE",
    group=WHERE,
    offers="files",
)
PRICE = Text("What an hour of a chip costs: 2.5/h, or h100=2.2/h,v5e=1.1/h.", default="", value="$/H", group=WHERE)
TRAIN_BATCH = Text("Tokens of a step (4M), or sequences (512seq).", value="TOKENS|SEQS")
SEQ = Text("Tokens of a sequence (8192, 32k).", value="TOKENS")
STACK = Text(
    "The software: megatron, torchtitan, maxtext, dragonscale, generic …; auto: what people run there.",
    default="auto",
    value="STACK",
    group=SOFTWARE,
    offers="stacks",
)
ENGINE = Text(
    "The software: vllm, sglang, sglang-ep, trtllm, vllm-tpu, generic …; auto: what people run there.",
    default="",
    value="ENGINE",
    group=SOFTWARE,
    offers="engines",
)
DTYPE = Text("Format of matmuls: bf16, fp8 …", default="bf16", value="DTYPE", group=SOFTWARE, offers="dtypes")
FORCE = Switch("Judge what the software cannot run as if it could, and say so.", group=SOFTWARE)
