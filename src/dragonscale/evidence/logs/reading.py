"""Whose log a file is, and what it says."""

from typing import Any, Protocol

from dragonscale.errors import InputError
from dragonscale.evidence.logs.load_test import BENCHES, GenaiPerf, LoadTest, ServedRecord
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.trainers import trainer_formats
from dragonscale.evidence.logs.training_log import HuggingFaceTrainer, TrainingLog

KINDS = {"training": "a log of a trainer", "serving": "the result of a load test"}


class LogReader(Protocol):
    """What reads the logs of one software, by its name."""

    @property
    def name(self) -> str: ...
    def recognises(self, log: LogText) -> bool: ...
    def read(self, log: LogText) -> Any: ...


READERS: dict[str, tuple[LogReader, ...]] = {
    # Trainers on top of the Hugging Face Trainer print its lines too.
    "training": (*trainer_formats(), HuggingFaceTrainer()),
    "serving": (*BENCHES, GenaiPerf(), ServedRecord()),
}
"""In this order: the first that recognises a log reads it."""


def reader_of(log: LogText) -> tuple[str, LogReader] | None:
    """What a log is of, and who reads it; None where it is nobody's."""
    every = ((kind, reader) for kind, readers in READERS.items() for reader in readers)
    return next((found for found in every if found[1].recognises(log)), None)


def read_training_log(log: LogText) -> TrainingLog:
    """The run that a trainer logged."""
    return _read(log, "training")


def read_load_test(log: LogText) -> LoadTest:
    """The load test that a generator wrote down."""
    return _read(log, "serving")


def _read(log: LogText, kind: str) -> Any:
    found = reader_of(log)
    if found is None:
        names = ", ".join(known.name for known in READERS[kind])
        raise InputError(f"{log.shown} is not {KINDS[kind]} that is read ({names}), or holds no step or request yet.")
    if kind != found[0]:
        raise InputError(f"{log.shown} is of {found[1].name}, which `dscale validate {found[0]}` scores.")
    return found[1].read(log)
