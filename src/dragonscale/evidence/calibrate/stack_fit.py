"""What is timed to settle a stack: steps of training, prompts and single tokens of our own program, from
`stack_cases.toml`; and the file of those that were timed: a line of JSON for each case, with what a profile of one more
step says of its kernels.

The few constants of a stack and an engine that no kernel measurement gives, settled on whole steps.

What is expected of a step is nearly a sum of seconds, each times a constant. From the constants as they are, a few
steps of Gauss and Newton on the logarithms of measured over expected seconds find better ones; each is held near its
start as by a measurement of its own with an error of `LOOSE`, so that what the rows do not tell stays as it was. Models
left out only say how good the result is.
"""

import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import first_number
from dragonscale.plan.settings import MeasuredOn, read_settings
from dragonscale.serving.engine.engine import Engine, adjust
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.tables import read_regular, toml_value
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import Stack, change

DEVICE = "device"
"""The key of the row that says what was measured on."""
SHORTEST, LONGEST = 1e-7, 1e5
"""Seconds of a step; a number beyond them is no measurement."""
_MATMUL = re.compile(r"nvjet|gemm|cutlass|sm\d+_xmma|.*gemm|cublas|.*splitK", re.IGNORECASE)
_FLASH = re.compile(r"cudnn.*sdpa|.*fmha|.*cudnn::fusion", re.IGNORECASE)


class TrainCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of training: `passes` microbatches of `microbatch` sequences of `seq` tokens, AdamW."""

    use: str
    model: str
    seq: int
    microbatch: int
    passes: int
    remat: str
    capacity: float = 0.0

    @property
    def key(self) -> str:
        """What tells cases apart."""
        return f"train {self.model} {self.passes}x{self.microbatch}x{self.seq} {self.remat} {self.capacity:g}"


class ServeCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`prefill` of `batch` prompts of `length` tokens, or `decode` of a token each behind `length` others."""

    use: str
    model: str
    kind: str
    batch: int
    length: int
    capacity: float = 0.0

    @property
    def key(self) -> str:
        """What tells cases apart."""
        return f"{self.kind} {self.model} {self.batch}x{self.length} {self.capacity:g}"


Case = TrainCase | ServeCase


@functools.cache
def timed_steps() -> dict[str, Any]:
    """The tables of `stack_cases.toml`."""
    text = (resources.files("dragonscale.evidence.calibrate") / "stack_cases.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@functools.cache
def step_cases() -> tuple[Case, ...]:
    """All of them, in the order in which they are timed.

    >>> {case.use for case in step_cases()} == {"fit", "seen", "left out"}
    True
    """
    return _cases([*timed_steps()["train"], *timed_steps()["serve"]])


def small_steps() -> tuple[Case, ...]:
    """A few of a model that a CPU runs in a blink: a trial of the whole way."""
    return _cases(timed_steps()["small"])


def _cases(rows: Iterable[dict[str, Any]]) -> tuple[Case, ...]:
    return tuple(msgspec.convert(row, TrainCase if "remat" in row else ServeCase) for row in rows)


@dataclass(frozen=True)
class MeasuredCase:
    """Seconds of a case, and of its matmuls and its flash attention where the profile tells them apart (0: it does
    not)."""

    seconds: float
    matmul: float = 0.0
    attention: float = 0.0


def kernel_kind(name: str) -> str:
    """`matmul`, `attention` or `other`, by the name of a kernel.

    >>> [
    ...     kernel_kind(name)
    ...     for name in ("nvjet_sm90_tst_128x256", "cudnn_generated_fort_native_sdpa_sm90", "loop_add_fusion_6")
    ... ]
    ['matmul', 'attention', 'other']
    """
    return "attention" if _FLASH.match(name) else "matmul" if _MATMUL.match(name) else "other"


def parts_of(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of kernels by their kind."""
    found = {"matmul": 0.0, "attention": 0.0, "other": 0.0}
    for name, seconds in kernels:
        found[kernel_kind(name)] += seconds
    return found


class StepRow(msgspec.Struct, frozen=True):
    """A line of the file: a case that was timed, or the device that it was timed on. Without seconds it failed."""

    key: str
    s: Annotated[float, msgspec.Meta(ge=SHORTEST, le=LONGEST)] | msgspec.UnsetType = msgspec.UNSET
    parts: dict[str, Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST)]] | None = None
    device: Any = ""
    software: dict[str, Any] = {}


def read_device(path: Path) -> tuple[str, dict[str, str]]:
    """The device that a file's steps were timed on, and with which software: its first row."""
    for row in _lines(path):
        if row.key == DEVICE:
            return str(row.device), {name: str(version) for name, version in row.software.items()}
    return "", {}


def read_rows(path: Path, known: Iterable[Case] = ()) -> dict[Case, MeasuredCase]:
    """The rows of a file that are of known cases; of a case that was timed twice the last. Failures are left out."""
    by_key = {case.key: case for case in known or step_cases()}
    found: dict[Case, MeasuredCase] = {}
    for row in _lines(path):
        if row.key in by_key and isinstance(row.s, float):
            parts = row.parts or {}
            found[by_key[row.key]] = MeasuredCase(row.s, *(parts.get(name, 0.0) for name in ("matmul", "attention")))
    return found


def timed_keys(path: Path) -> set[str]:
    """The keys of all rows that a file has, if it is there."""
    return {row.key for row in _lines(path)} if path.exists() else set()


def unknown_rows(path: Path) -> list[str]:
    """Keys of timed rows that are of no case there is: of another version's list, or misspelt."""
    known = {DEVICE, *(case.key for case in (*step_cases(), *small_steps()))}
    return list(dict.fromkeys(row.key for row in _lines(path) if row.key not in known and isinstance(row.s, float)))


def _lines(path: Path) -> Iterator[StepRow]:
    """Rows of a file, each with a key."""
    try:
        text = read_regular(path, "File of steps", most=64_000_000).decode("utf-8")
    except OSError as error:
        raise InputError(f"The file {shorten(str(path))} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"The file {shorten(str(path))} is not text.") from None
    decoder = msgspec.json.Decoder(StepRow)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            raise InputError(f"Line {number} of {shorten(str(path))} is no row of steps that were timed.") from None


BASE, ENGINE = "dragonscale", "jax-program"
"""The stack and the engine that describe our own programs of a step."""
FREE_STACK, FREE_ENGINE = (tuple[str, ...](timed_steps()["free"][name]) for name in ("stack", "engine"))
LOOSE = 0.5
"""How far, in logarithms, a constant may be from its start as easily as a step by `NOISE` from what is expected."""
NOISE = 0.03
PART_NOISE = 0.1
"""The same for a step's matmuls or attention: a profile's, of one step."""
FAR = 7.0
"""The farthest, in logarithms, that a constant may be from its start: a thousand times."""
STEPS = 4
NUDGE = 0.05


@dataclass(frozen=True)
class ExpectedCase:
    """Seconds, and where they go."""

    seconds: float
    parts: dict[str, float]

    @property
    def matmul(self) -> float:
        """Seconds of all matmuls."""
        return sum(value for name, value in self.parts.items() if name.endswith("matmul"))

    @property
    def attention(self) -> float:
        """Seconds of attention."""
        return self.parts.get("attention", 0.0)


def expected_case(case: Case, piece: Slice, stack: Stack, engine: Engine) -> ExpectedCase:
    """A case on one chip."""
    return _training(case, piece, stack) if isinstance(case, TrainCase) else _serving(case, piece, engine)


def _training(case: TrainCase, piece: Slice, stack: Stack) -> ExpectedCase:
    job = Job(load_model(case.model), piece, case.microbatch * case.passes, case.seq, stack)
    verdict = judge_one(job, Plan(microbatch=case.microbatch, remat=case.remat))
    parts: defaultdict[str, float] = defaultdict(float)
    for line in verdict.ledger.lines:
        name = line.kind if line.kind in ("matmul", "grouped matmul", "attention", "elementwise") else line.term
        name = f"{line.section} {name}" if line.section in ("embed", "head") else name
        parts[name] += first_number(line.total("exposed_s"))
    return ExpectedCase(first_number(verdict.seconds), dict(parts))


def _serving(case: ServeCase, piece: Slice, engine: Engine) -> ExpectedCase:
    deployment = Deployment(load_model(case.model), piece, ServingPlan(), engine)
    asked = decode(case.batch, case.length - 1) if case.kind == "decode" else prefill(case.length, case.batch)
    cost = iteration_cost(deployment, asked)
    parts: defaultdict[str, float] = defaultdict(float)
    for line in cost.lines:
        name = f"head {line.kind}" if line.section == "head" and line.kind == "matmul" else line.kind
        parts[name] += float(numpy.ravel(line.total("exposed_s"))[0])
    for name in ("host", "sampling", "issuing"):
        parts[name] += float(numpy.ravel(getattr(cost, name))[0])
    return ExpectedCase(float(numpy.ravel(cost.expected)[0]), dict(parts))


@dataclass(frozen=True)
class Settled:
    """A stack and an engine with their constants settled, and the ratios of measured to expected seconds of every row
    by its case."""

    stack: Stack
    engine: Engine
    ratios: dict[Case, float]


Rows = Mapping[Case, MeasuredCase]


def settle(rows: Rows, piece: Slice, stack: Stack, engine: Engine) -> Settled:
    """Constants from the rows to fit on, and how all rows then stand."""
    fit = {case: row for case, row in rows.items() if case.use == "fit"}
    training: Rows = {case: row for case, row in fit.items() if isinstance(case, TrainCase)}
    serving: Rows = {case: row for case, row in fit.items() if isinstance(case, ServeCase)}
    if training:
        found = _solved(FREE_STACK, stack, training, lambda one, case: expected_case(case, piece, one, engine))
        stack = with_constants(stack, found)
    if serving:
        found = _solved(FREE_ENGINE, engine, serving, lambda one, case: expected_case(case, piece, stack, one))
        engine = with_constants(engine, found)
    return Settled(stack, engine, ratios(rows, piece, stack, engine))


def ratios(rows: Rows, piece: Slice, stack: Stack, engine: Engine) -> dict[Case, float]:
    """Measured over expected seconds."""
    return {case: row.seconds / expected_case(case, piece, stack, engine).seconds for case, row in rows.items()}


def constant(record: Any, path: str) -> float:
    """A constant of a stack or an engine by its group and name."""
    group, name = path.split(".")
    return float(getattr(getattr(record, group), name))


def with_constants(record: Any, values: Mapping[str, float]) -> Any:
    """A stack or an engine with some constants set."""
    for path, value in values.items():
        group, name = path.split(".")
        record = (
            change(record, group, **{name: value})
            if isinstance(record, Stack)
            else adjust(record, **{group: {name: value}})
        )
    return record


def _solved(
    free: Sequence[str], start: Any, rows: Rows, expected: Callable[[Any, Case], ExpectedCase]
) -> dict[str, float]:
    """Constants that make what is expected what was measured: of whole steps, and more loosely of their matmuls and
    attention."""
    names = [path for path in free if constant(start, path) > 0]
    origin = numpy.log([constant(start, path) for path in names])
    kinds = [(case, kind) for case in rows for kind in _told(case, rows[case])]
    measured = numpy.log([max(getattr(rows[case], kind), 1e-9) for case, kind in kinds])
    noise = numpy.array([NOISE if kind == "seconds" else PART_NOISE for _, kind in kinds])
    at = origin.copy()

    def seconds(point: Any) -> Any:
        record = with_constants(start, dict(zip(names, numpy.exp(point).tolist(), strict=True)))
        found = {case: expected(record, case) for case in rows}
        return numpy.log([max(getattr(found[case], kind), 1e-9) for case, kind in kinds])

    for _ in range(STEPS):
        here = seconds(at)
        slopes = numpy.stack([(seconds(at + NUDGE * one) - here) / NUDGE for one in numpy.eye(len(names))], 1)
        known = [slopes / noise[:, None], numpy.eye(len(names)) / LOOSE]
        wanted = [(measured - here) / noise, (origin - at) / LOOSE]
        at = at + numpy.linalg.lstsq(numpy.concatenate(known), numpy.concatenate(wanted), rcond=None)[0]
        at = numpy.clip(at, origin - FAR, origin + FAR)  # rows that no constants explain must not send them anywhere
    return {path: float(f"{value:.3g}") for path, value in zip(names, numpy.exp(at), strict=True)}


def _told(case: Case, row: MeasuredCase) -> tuple[str, ...]:
    """What a row says: where attention is no kernel of its own, its matmuls cannot be told from others, and while
    decoding many matmuls are loops."""
    if not (row.attention and row.matmul):
        return ("seconds",)
    return ("seconds", "attention") if kind_of_case(case) == "decode" else ("seconds", "matmul", "attention")


def measured_on(settled: Settled, chip: str, source: str, date: str) -> dict[str, MeasuredOn]:
    """What the rows left out say, of training, prefill and decode."""
    found: dict[str, MeasuredOn] = {}
    for what in ("training", "prefill", "decode"):
        chosen = {case: ratio for case, ratio in settled.ratios.items() if kind_of_case(case) == what}
        fitted = sum(case.use == "fit" for case in chosen)
        out = sorted(ratio - 1 for case, ratio in chosen.items() if case.use == "left out")
        if out:
            errors = numpy.abs([1 / (1 + error) - 1 for error in out])
            numbers = (float(numpy.median(errors)), float(errors.max()), out[0], out[-1])
            rounded = (round(number, 3) for number in numbers)
            found[what] = MeasuredOn(chip, what, source, date, fitted, len(out), *rounded)
    return found


def kind_of_case(case: Case) -> str:
    """Training, prefill or decode."""
    return "training" if isinstance(case, TrainCase) else case.kind


def stack_text(
    settled: Settled, measured: Mapping[str, MeasuredOn], where: str, date: str, tpu: Mapping[str, Sequence[str]] | None
) -> str:
    """The file. `where` says what it was measured with; `tpu` are the base's switches for TPUs, by table, where the
    chip is one."""
    head = f"# Written by `dscale calibrate --whole-steps` on {date}, {where}. Take it by --stack FILE, --engine FILE."
    why = f"Our own JAX program, its constants settled on whole steps: {where}, {date}."
    parts = [head]
    for table, base, record, free, whats in (
        ("stack", BASE, settled.stack, FREE_STACK, ("training",)),
        ("engine", ENGINE, settled.engine, FREE_ENGINE, ("prefill", "decode")),
    ):
        groups = read_settings((tpu or {}).get(table, ()))
        for path in free:
            group, name = path.split(".")
            groups.setdefault(group, {})[name] = constant(record, path)
        parts.append(
            f"[{table}]\nbase = {toml_value(base)}\nwhy = {toml_value(why)}" + ("" if tpu is None else "\ntpu = []")
        )
        parts += [f"[{table}.{group}]\n{_settings(values)}" for group, values in groups.items()]
        rows = [measured[what] for what in whats if what in measured]
        parts += [f"[[{table}.measured]]\n{_settings(msgspec.to_builtins(row))}" for row in rows]
    return "\n\n".join(parts) + "\n"


def _settings(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{name} = {toml_value(value)}" for name, value in values.items())
