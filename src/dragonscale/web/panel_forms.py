"""Panels that forms and dialogs read: what can be chosen, what is copied, exported and judged, a problem of the course,
and any answer as the terminal prints it."""

from typing import Any

from msgspec import UNSET, UnsetType

from dragonscale.web.panel_hardware import NamedText
from dragonscale.web.panel_pieces import Shape


class SheetPanel(Shape):
    """The blocks of a sheet, each with its `kind` (`sheets/sheet.py`)."""

    blocks: list[dict[str, Any]]
    notes: list[str]


class StackWords(Shape):
    group: str
    about: str


class PresetChoice(Shape):
    name: str
    family: str
    parameters: str


class ChipChoice(Shape):
    name: str
    title: str
    kind: str


class FlagField(Shape):
    """A flag of a command, as a form shows it."""

    name: str
    flag: str
    group: str
    place: bool
    switch: bool
    value: str
    needed: bool
    type: str | list[str]
    description: str
    examples: list[str] | UnsetType = UNSET
    default: Any = UNSET
    items: dict[str, str] | UnsetType = UNSET
    enum: list[Any] | UnsetType = UNSET


class ThemeColours(Shape):
    light: dict[str, str]
    dark: dict[str, str]


class CataloguePanel(Shape):
    version: str
    docs: bool
    models: list[str]
    stacks: list[str]
    engines: list[str]
    dtypes: list[str]
    slices: list[str]
    stack_words: dict[str, StackWords]
    presets: list[PresetChoice]
    chips: list[ChipChoice]
    fields: dict[str, list[FlagField]]
    colours: ThemeColours


class CopiedFile(Shape):
    """A file, with how it is used."""

    name: str
    text: str
    use: str


class TextsPanel(Shape):
    cli: str
    python: str
    toml: CopiedFile
    file: NamedText | None


class PlanFilePanel(Shape):
    name: str
    text: str
    use: str
    file: NamedText | None


class VerifyPanel(Shape):
    fields: dict[str, Any]
    cli: str


class JudgedCommand(Shape):
    """A command of other software, read."""

    view: str
    fields: dict[str, Any]
    software: str
    version: str
    notes: list[str]
    ignored: list[str]
    unplanned: list[str]
    unknown: list[str]
    plan: str
    settings: dict[str, Any]
    headline: str
    missing: list[str]


class SoftwareChoice(Shape):
    name: str
    title: str
    version: str


class LauncherChoice(Shape):
    name: str
    title: str


class TargetsPanel(Shape):
    own: str
    software: list[SoftwareChoice]
    launchers: list[LauncherChoice]
    loads: list[Any]


class FilesPanel(Shape):
    target: str
    version: str
    launcher: str
    expected: list[str]
    notes: list[str]
    files: list[NamedText]
    differences: list[Any]
    bundle: str
    cli: str


class ProblemPanel(Shape):
    """A problem of the course, with what was answered."""

    problem: str
    title: str
    chapter: str
    seed: int
    ask: str
    unit: str
    tolerance: float
    options: list[str]
    hints: list[str]
    hint_count: int
    answered: str
    right: bool | None
    told: str
    answer: str
    value: float | None
    solution: list[str]
    check: str
    page: str
    again: str
    next: str
