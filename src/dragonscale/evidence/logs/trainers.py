"""What trainers log, read by the patterns of `formats.toml`: every step, the largest peak of memory, and what a run
says when it starts of its batch, its chips and its plan.

    [2025-08-01 07:19:50] iteration  2/ 5000 | consumed samples: 256 | elapsed time per iteration (ms): 12936.1 |
        throughput per GPU (TFLOP/s/GPU): 118.7 | … | global batch size:   128 | lm loss: 1.04E+01 | …
    [rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: 10  loss: 10.7069  grad_norm:  3.1  memory:
        30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: 41.19%
    completed step: 5, seconds: 20.585, TFLOP/s/device: 97.566, Tokens/s/device: 1989.820, total_weights: 31457280, …
    [2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,
        RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
"""

import ast
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dragonscale.evidence.logs.text import LogText, formats, number
from dragonscale.evidence.logs.training_log import LoggedStep, TrainingLog

UNSAID = ("None", "[]", "")
"""Arguments of Megatron that say nothing."""
Fields = dict[str, float | None]
StepLine = tuple[str, Fields]
"""A line that logs a step, and what it says."""


class StepFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way in which steps are logged; `formats.toml` says what each field means."""

    line: str = ""
    also: tuple[str, ...] = ()
    row: dict[str, str] = {}

    def logs(self, log: LogText) -> bool:
        if self.row:
            return any(self.row["seconds"] in row for row in log.rows)
        return any(re.search(self.line, line) for line in log.lines)

    def read(self, log: LogText) -> list[StepLine]:
        """Every line that logs a step. A row of JSON needs its number and its time."""
        if self.row:
            rows = [("", fields_of({name: row.get(key) for name, key in self.row.items()})) for row in log.rows]
            return [row for row in rows if row[1].get("number") is not None and row[1].get("seconds") is not None]
        found = [(line, match) for line in log.lines if (match := re.search(self.line, line))]
        return [(line, fields_of(match.groupdict()) | _beside(line, self.also)) for line, match in found]


class TrainerFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a trainer logs."""

    name: str
    steps: tuple[StepFormat, ...]
    counter: str = ""
    rank: str = ""
    memory: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def recognises(self, log: LogText) -> bool:
        return any(way.logs(log) for way in self.steps)

    def read(self, log: LogText) -> TrainingLog:
        """The run as it was logged."""
        lines: list[StepLine] = next(filter(None, (way.read(log) for way in self.steps)), [])
        if self.rank:
            lines = [line for line in lines if self._rank(line) == self._rank(lines[0])]
        fields = [said for _, said in lines]
        peaks = [size for said in fields if (size := said.pop("memory", None)) is not None]
        every = [said.pop("mfu", None) for said in fields]
        shares = sorted(share for share in every[1:] if share is not None)
        for match in (match for line in log.lines for find in self.memory for match in re.finditer(find, line)):
            peaks.append(fields_of(match.groupdict())["memory"] or 0.0)
        memory = (max(peaks), self.counter) if peaks else (None, "")
        share = shares[len(shares) // 2] if shares else None
        begun = STARTS[self.name](log, self) if self.name in STARTS else {}
        return TrainingLog(self.name, tuple(map(_step, fields)), *memory, share, **begun)

    def _rank(self, line: StepLine) -> str:
        found = re.match(self.rank, line[0])
        return found[1] if found else ""


@functools.cache
def trainer_formats() -> tuple[TrainerFormat, ...]:
    """Trainers in the order in which a log is tried."""
    return msgspec.convert(formats()["trainer"], tuple[TrainerFormat, ...])


def fields_of(groups: Mapping[str, Any]) -> Fields:
    """Numbers by field, in its unit.

    >>> fields_of({"number": "7", "millis": "250", "tera": None})
    {'number': 7.0, 'seconds': 0.25, 'flops': None}
    """
    found: Fields = {}
    for name, text in groups.items():
        field, times, per = formats()["units"].get(name, (name, 1.0, 1.0))
        value = number(text)
        found[field] = None if value is None else value * times / per
    return found


def _beside(line: str, patterns: Sequence[str]) -> Fields:
    """What else a line says; of two patterns for one field the later counts."""
    found: Fields = {}
    for pattern in patterns:
        if match := re.search(pattern, line):
            found |= fields_of(match.groupdict())
    return found


def _step(said: Fields) -> LoggedStep:
    times = (said.get(name) for name in ("seconds", "tokens", "samples", "flops"))
    return LoggedStep(int(said.get("number") or 0), *times, batch=int(said.get("batch") or 0))


# What a run says when it starts.


def _megatron_start(log: LogText, trainer: TrainerFormat) -> dict[str, Any]:
    """Of the last start."""
    del trainer
    argument = re.compile(formats()["megatron"]["argument"])
    said = {found[1]: found[2] for line in log.lines if (found := argument.match(line))}
    sizes = {"batch": "global_batch_size", "seq": "seq_length", "chips": "world_size"}
    return {name: _whole(said, key) for name, key in sizes.items()} | {"plan": megatron_command(said)}


def _whole(said: Mapping[str, str], name: str) -> int:
    """An argument's number; 0 where it says none."""
    text = said.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= 12 else 0


def megatron_command(said: Mapping[str, str]) -> str:
    """The command that gives the arguments which Megatron printed; empty where it printed none.

    >>> megatron_command({"tensor_model_parallel_size": "8", "world_size": "16", "bf16": "True", "num_experts": "None"})
    'torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 8 --bf16'
    """
    if "tensor_model_parallel_size" not in said:
        return ""
    known, chips = formats()["megatron"], _whole(said, "world_size")
    each = math.gcd(chips, 8) if chips > 8 else chips  # hosts are alike, so that the processes come to the world
    words = ["torchrun", "--nproc-per-node", str(each), "--nnodes", str(chips // each)] if chips else []
    words.append("pretrain_gpt.py")
    on = {name for name, value in said.items() if value not in (*UNSAID, "False")}
    vocabulary = "vocab_size" if said.get("vocab_size", "None") not in UNSAID else "padded_vocab_size"
    parts = [name for part, names in known["parts"].items() if part in on for name in names]
    flags = {name: _flag(name) for name in (*known["values"], vocabulary, *parts)}
    pairs = [*flags.items(), *((name, flag) for name, flag in known["otherwise"].items() if name in on)]
    if said.get("recompute_granularity") == "selective":
        pairs.append(("recompute_modules", "--recompute-modules"))
    words += [word for name, flag in pairs for word in _words(flag, said.get(name, "None"))]
    words += [_flag(name) for name in known["switches"] if said.get(name) == "True"]
    return " ".join(words + (["--disable-bias-linear"] if said.get("add_bias_linear") == "False" else []))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _words(flag: str, value: str) -> list[str]:
    """A flag and its value; a list is as many words."""
    if value in UNSAID:
        return []
    if not value.startswith("["):
        return [flag, value] if re.fullmatch(r"[\w.,*+/|()-]+", value) else []
    try:
        values = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [flag, *map(str, values)] if all(re.fullmatch(r"[\w.-]+", str(each)) for each in values) else []


def _titan_start(log: LogText, trainer: TrainerFormat) -> dict[str, Any]:
    """The lines at the start say the mesh, the batch and the device."""
    said: dict[str, str] = {}
    for pattern in trainer.start:
        matches = [match for line in log.lines if (match := re.search(pattern, line))]
        said |= {name: text for name, text in matches[-1].groupdict().items() if text} if matches else {}
    found: dict[str, Any] = {name: int(said.get(name, 0)) for name in ("batch", "seq")}
    model = f"{said['model']}-{said['size']}".lower() if "model" in said else ""
    found |= {"chip": said.get("chip", ""), "model": model}
    if not (mesh := dict(_mesh(said))):
        return found
    policy = formats()["torchtitan"]["policies"].get(said.get("recompute", "").lower())
    settings = {**mesh, **({"remat": policy} if policy else {})}
    # Experts lie on the chips of the other axes.
    found["chips"] = math.prod(degree for name, degree in mesh.items() if name != "expert")
    return found | {"plan": ",".join(f"{name}={value}" for name, value in settings.items())}


def _mesh(said: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Degrees by the names of a plan: `pp=1, dp_shard=8, tp=1`, or `Building 2-D device mesh with ['dp_shard', 'tp'],
    [4, 2]`."""
    pairs = [part.split("=") for part in said.get("mesh", "").split(",") if part.count("=") == 1]
    if "names" in said:
        pairs = [list(pair) for pair in zip(said["names"].split(","), said["degrees"].split(","), strict=False)]
    for written, value in pairs:
        name, degree = formats()["torchtitan"]["degrees"].get(written.strip(" '\""), ""), value.strip()
        if name and degree.isdecimal() and len(degree) <= 9:
            yield name, int(degree)


STARTS = {"Megatron-LM": _megatron_start, "torchtitan": _titan_start}
