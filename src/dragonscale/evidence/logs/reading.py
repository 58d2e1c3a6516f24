"""Whose log a file is, and what it says."""

from importlib import import_module
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.logs.load_test import LoadTest
from dragonscale.evidence.logs.text import LogText
from dragonscale.evidence.logs.training_log import TrainingLog

READERS = (
    "megatron",
    "torchtitan",
    "maxtext",
    "deepspeed",
    "huggingface",
    "vllm_bench",
    "sglang_bench",
    "genai_perf",
    "served_record",
)
"""In this order: Megatron-DeepSpeed prints both its own lines and DeepSpeed's, of which its own say more, and trainers
on top of the Hugging Face Trainer print its lines too."""
COMMANDS = {"training": "dscale validate training", "serving": "dscale validate serving"}


def _readers() -> list[Any]:
    return [import_module(f"dragonscale.evidence.logs.{name}") for name in READERS]


def reader_of(log: LogText) -> Any | None:
    """The module that reads a log; None where it is nobody's."""
    return next((reader for reader in _readers() if reader.recognises(log)), None)


def read_training_log(log: LogText) -> TrainingLog:
    """The run that a trainer logged."""
    return _reader(log, "training").read(log)


def read_load_test(log: LogText) -> LoadTest:
    """The load test that a generator wrote down."""
    return _reader(log, "serving").read(log)


def _reader(log: LogText, kind: str) -> Any:
    reader = reader_of(log)
    if reader is None:
        names = ", ".join(one.NAME for one in _readers() if kind == one.KIND)
        what = {"training": "a log of a trainer", "serving": "the result of a load test"}[kind]
        raise InputError(f"{log.shown} is not {what} that is read ({names}), or holds no step or request yet.")
    if kind != reader.KIND:
        raise InputError(f"{log.shown} is of {reader.NAME}, which `{COMMANDS[reader.KIND]}` scores.")
    return reader
