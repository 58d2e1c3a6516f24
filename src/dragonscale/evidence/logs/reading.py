"""Whose log a file is, and what it says."""

from dataclasses import dataclass
from typing import Any, Protocol

from dragonscale.errors import InputError
from dragonscale.evidence.logs import genai_perf, huggingface, served_record
from dragonscale.evidence.logs.bench_serving import SGLANG, VLLM
from dragonscale.evidence.logs.load_test import LoadTest
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.trainers import trainer_formats
from dragonscale.evidence.logs.training_log import TrainingLog

KINDS = {"training": "a log of a trainer", "serving": "the result of a load test"}


class LogFormat(Protocol):
    """What reads the logs of one software."""

    def recognises(self, log: LogText) -> bool: ...
    def read(self, log: LogText) -> Any: ...


@dataclass(frozen=True)
class LogReader:
    """The format of a software's logs, and what they are of."""

    name: str
    kind: str
    format: LogFormat


READERS = (
    *(LogReader(trainer.name, "training", trainer) for trainer in trainer_formats()),
    # Trainers on top of the Hugging Face Trainer print its lines too.
    LogReader(huggingface.NAME, "training", huggingface),
    *(LogReader(bench.name, "serving", bench) for bench in (VLLM, SGLANG)),
    LogReader("AIPerf", "serving", genai_perf),
    LogReader(served_record.NAME, "serving", served_record),
)
"""In this order: the first that recognises a log reads it."""


def reader_of(log: LogText) -> LogReader | None:
    """Who reads a log; None where it is nobody's."""
    return next((reader for reader in READERS if reader.format.recognises(log)), None)


def read_training_log(log: LogText) -> TrainingLog:
    """The run that a trainer logged."""
    return _read(log, "training")


def read_load_test(log: LogText) -> LoadTest:
    """The load test that a generator wrote down."""
    return _read(log, "serving")


def _read(log: LogText, kind: str) -> Any:
    reader = reader_of(log)
    if reader is None:
        names = ", ".join(known.name for known in READERS if known.kind == kind)
        raise InputError(f"{log.shown} is not {KINDS[kind]} that is read ({names}), or holds no step or request yet.")
    if kind != reader.kind:
        raise InputError(f"{log.shown} is of {reader.name}, which `dscale validate {reader.kind}` scores.")
    return reader.format.read(log)
