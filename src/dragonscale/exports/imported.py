"""What is imported (a file, a folder or a pasted command, read once and looked at in the ways that targets need), and
what it comes to: a plan file's content, and what was made of the words it was read from.

>>> Source.of("vllm serve meta-llama/Meta-Llama-3-8B -tp 2").command("vllm").words[2]
'meta-llama/Meta-Llama-3-8B'
>>> Source.of('{"zero_optimization": {"stage": 3}}').table
{'zero_optimization': {'stage': 3}}
"""

import contextlib
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.exports.runs import STEPS, read_kept
from dragonscale.exports.shell import ShellCommand, read_commands
from dragonscale.pasted import may_name_files
from dragonscale.physics.hardware import Slice, load_chip, parse_slice
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.physics.units import parse
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import TABLES, SavedPlan
from dragonscale.tables import read_regular, safe_yaml
from dragonscale.training.plan.plan import Plan, effective
from dragonscale.training.plan.plan_file import TUNED, TrainingFile
from dragonscale.training.plan.stages import chunk_sizes

LONGEST = 1_000_000


@dataclass(frozen=True)
class Source:
    """A text and where it was found; `path` is None of a pasted one. Of a text that was inside a launcher's file,
    `files` are the config files that came with it, and `launch` is what the launcher says of the chips and the
    replicas."""

    text: str
    path: Path | None = None
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    launch: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(given: str) -> "Source":
        """A path that exists, or the text itself."""
        path = as_path(given)
        return Source(given) if path is None else Source.at(path)

    @staticmethod
    def at(path: Path) -> "Source":
        """A file; of a folder the one file in it that an export writes first."""
        if path.is_dir():
            path = _main_file(path)
        try:
            return Source(read_regular(path, "Config", LONGEST).decode("utf-8"), path)
        except OSError as error:
            raise InputError(f"Config {shorten(str(path))} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise InputError(f"Config {shorten(str(path))} is not text.") from None

    @property
    def shown(self) -> str:
        """How messages name it."""
        return shorten(str(self.path)) if self.path else shorten(self.text.strip())

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What the header of an export keeps; what a launcher says counts more, as people edit it."""
        return {**read_kept(self.text), **self.launch}

    def kept_word(self, name: str) -> str:
        """A word of what is kept; empty where it has none."""
        return str(self.kept.get(name, ""))

    def needs(self, what: str, how: str) -> InputError:
        """That it does not say something that a plan needs."""
        return InputError(f"{self.shown} does not say {what}; give {how}.")

    @cached_property
    def commands(self) -> list[ShellCommand]:
        """The commands of a script or a pasted line; none of a config."""
        return [] if self.table is not None else read_commands(self.text)

    def command(self, *words: str) -> ShellCommand | None:
        """The first command that has one of these among its words: `vllm`, `sglang.launch_server`,
        `pretrain_gpt.py`."""
        for command in self.commands:
            for word in words:
                if any(word == one or one.endswith(("/" + word, "." + word)) for one in command.words):
                    return command
        return None

    def started(self, *programs: str) -> list[list[str]]:
        """The words after a program (`vllm serve`, `sglang.launch_server`) in each command that starts one of them."""
        found: list[list[str]] = []
        for words in (command.words for command in self.commands):
            for at, program in itertools.product(range(len(words)), programs):
                first, *more = program.split()
                named = words[at] == first or words[at].endswith(("/" + first, "." + first))
                if named and words[at + 1 : at + 1 + len(more)] == more:
                    found.append(words[at + 1 + len(more) :])
                    break
        return found

    @cached_property
    def tables(self) -> list[dict[str, Any]]:
        """The tables of a TOML, YAML or JSON file, one for each document; none of anything else."""
        text = self.text.strip()
        for begins, read in _READERS:
            with contextlib.suppress(ValueError, RecursionError):
                tables = [one for one in read(text) if isinstance(one, dict)] if begins.search(text) else []
                if tables:
                    return tables
        return []

    @property
    def table(self) -> dict[str, Any] | None:
        """The first of its tables."""
        return self.tables[0] if self.tables else None

    def beside(self, name: str) -> "Source | None":
        """A file that it names, from the folder it lies in; None where there is none. Text that was pasted, which may
        be anyone's, reaches only what lies below the current folder."""
        if not name or len(name) > 4000 or "\0" in name:
            return None
        folder, last = self.path.parent if self.path else Path(), name.rpartition("/")[2]
        if last in self.files:
            return replace(self, text=self.files[last])
        if not may_name_files():
            return None
        try:
            path = (folder / name).resolve()
            reached = self.path is not None or path.is_relative_to(Path().resolve())
            return Source.at(path) if reached and path.is_file() else None
        except (OSError, RuntimeError):  # a name too long, links in a circle
            return None


def as_path(given: str) -> Path | None:
    """The file or folder that a text names; None where it names none."""
    if len(given) > 4000 or "\n" in given or "\0" in given or not may_name_files():
        return None
    try:
        path = Path(given.strip()).expanduser()
        return path if given.strip() and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, a home that nobody has
        return None


_MAIN = (".sbatch", ".k8s.yaml", ".sky.yaml", ".sh", ".yaml", ".yml", ".toml", ".py", ".json")


def _main_file(folder: Path) -> Path:
    for ending in _MAIN:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(ending))
        if found:
            return found[0]
    raise InputError(f"The folder {shorten(str(folder))} has no script or config to import ({', '.join(_MAIN)}).")


_READERS: tuple[tuple[re.Pattern[str], Callable[[str], list[Any]]], ...] = (
    (re.compile(r"\A\{"), lambda text: [json.loads(text)]),
    (re.compile(r"^[ \t]*(\[|[\w.-]+[ \t]*=)", re.MULTILINE), lambda text: [tomllib.loads(text)]),
    (re.compile(r"^[\w./\"'-]+[ \t]*:([ \t]|$)", re.MULTILINE), safe_yaml),
)
"""What a text of JSON, TOML or YAML has in it, and what reads it."""


@dataclass(frozen=True)
class Given:
    """What the user says beside the file: it wins over what the file says."""

    model: str = ""
    slice: str = ""

    def on(self, piece: Slice | None) -> "Given":
        """The same on a slice, where that is known."""
        return self if piece is None else replace(self, slice=str(piece))


@dataclass(frozen=True)
class Imported:
    """A plan as its file holds it. `notes` say how it was read; `ignored` are options that change nothing that is
    planned (paths, logging, seeds); `unplanned` those that would and that the planner has no word for; `unknown` names
    that the software's version does not have. `served_length` is the longest request that a launch of an engine is for
    (0: as long as its cache holds; None: it does not say)."""

    target: str
    version: str
    file: TrainingFile | SavedPlan
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unplanned: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    served_length: int | None = None


def slice_word(given: str, said: str) -> str:
    """The slice that a user gives; the shape that a file says of TPUs, where the user names only their chip.

    >>> slice_word("tpu7x", "tpu7x:4x8x8"), slice_word("v5p", "tpu7x:4x8x8"), slice_word("h200", "h100:16")
    ('tpu7x:4x8x8', 'v5p', 'h200')
    """
    shaped = is_chip(given) and load_chip(given).kind == "tpu" and said.partition(":")[0] == load_chip(given).name
    return said if shaped else given or said


def slice_given(source: Source, given: Given, chips: int = 0) -> Slice | None:
    """The slice that is said: by the user, or by the header of an export. A chip alone takes the number of chips that
    the config is for; of TPUs, the smallest torus of so many."""
    text = slice_word(given.slice, source.kept_word("slice"))
    if not text:
        return None
    if chips and is_chip(text):
        return parse_slice(f"{chips}x{text}" if load_chip(text).kind == "tpu" else f"{text}:{chips}")
    return parse_slice(text)


def slice_counted(source: Source, given: Given, chips: int) -> Slice | None:
    """`slice_given` for software that runs on as many chips as it is started on: a chip alone says nothing of their
    number, where the config does not say it either."""
    text = given.slice or source.kept_word("slice")
    if text and not chips and is_chip(text):
        raise source.needs("how many chips it is for", f"them by --on, such as {text}:8")
    return slice_given(source, given, chips)


def training_file(
    source: Source, given: Given, plan: Plan, batch: int, seq: int, model: str, stack: str, steps: int = 0
) -> TrainingFile:
    """A training plan's file, with what the header of an export keeps: its tokens where they come to the steps of the
    run, its slice where the user names no other."""
    kept = source.kept
    if kept and steps == STEPS and not kept.get("tokens"):  # what an export writes that knows none
        steps = 0
    words: dict[str, Any] = {name: source.kept_word(name) for name in ("price", "documents", *TUNED)}
    words |= {"model": given.model or model or source.kept_word("model"), "stack": stack}
    words["slice"] = given.slice or source.kept_word("slice")
    words["tokens"] = run_tokens(source.kept_word("tokens"), steps, batch * seq)
    numbers: dict[str, Any] = {name: float(kept.get(name, 0) or 0) for name in ("skew", "capacity")}
    numbers["lora_rank"] = int(kept.get("lora_rank", 0) or 0)
    return TrainingFile(effective(plan), batch=batch, seq=seq, named=frozenset(PLAN_FIELDS), **words, **numbers)


def run_tokens(kept: str, steps: int, step: int) -> str:
    """The tokens of a run of so many steps, as a plan file writes them: those of the header where they come to these
    steps.

    >>> run_tokens("15T", 3_576_279, 4_194_304), run_tokens("", 375_000, 4_194_304), run_tokens("15T", 7, 1001)
    ('15T', '1.572864T', '7007')
    """
    text = kept.strip()
    if not steps or not step:
        return kept
    if text and text != "chinchilla" and max(round(parse(text, "count", "the tokens") / step), 1) == steps:
        return kept
    for mark, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        short = f"{steps * step / size:.12g}{mark}"
        if steps * step >= size and len(short) < 12 and parse(short, "count", "the tokens") == steps * step:
            return short
    return str(steps * step)


def layout_named(sizes: list[int], layers: int) -> str:
    """The plan's word for how layers are dealt to the chunks of a pipeline.

    >>> layout_named([8, 8, 8, 8], 32), layout_named([5, 9, 9, 9], 32)
    ('even', '5-9-9-9')
    """
    named = (layout for layout in ("even", "ends") if sizes == chunk_sizes(layers, len(sizes), layout))
    return next(named, "-".join(map(str, sizes)))


PLAN_FIELDS = tuple(Plan.__dataclass_fields__)
SERVING_FIELDS = tuple(ServingPlan.__dataclass_fields__)


def serving_file(
    source: Source, given: Given, plan: ServingPlan, model: str, engine: str, **said: Mapping[str, Any] | int
) -> SavedPlan:
    """A serving plan's file, with what the header of an export keeps. `said` are tables (`launch`, `traffic`, …) and
    counts that the config itself says; they win over the header."""
    kept = source.kept
    tables: dict[str, Any] = {}
    for name, record in TABLES.items():
        own = said.get(name, {})
        values = {**kept.get(name, {}), **(own if isinstance(own, Mapping) else {})}
        tables[name] = msgspec.convert({key: value for key, value in values.items() if value is not None}, record)
    counts = {name: int(said.get(name) or kept.get(name, 0) or 0) for name in ("batch", "replicas")}  # pyright: ignore[reportArgumentType]
    piece = given.slice or str(kept.get("slice", ""))
    piece = str(slice_given(source, given, plan.chips)) if is_chip(piece) else piece
    return SavedPlan(
        plan,
        model=given.model or model or str(kept.get("model", "")),
        slice=piece,
        engine=str(kept.get("engine", "")) or engine,
        named=frozenset(SERVING_FIELDS),
        **counts,
        **tables,
    )


def left_over(names: Iterable[str], harmless: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that were not read, as those that change nothing and those that would."""
    fine = set(harmless)
    every = [*dict.fromkeys(names)]
    return tuple(one for one in every if one in fine), tuple(one for one in every if one not in fine)
