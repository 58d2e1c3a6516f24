"""What `--checkpoint-every`, `--storage`, `--mtbf`, `--restart`, `--spares` and `--pricing spot` say of a run."""

import re

from dragonscale.commands.given import read_part
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.price_book import SPOT
from dragonscale.physics.units import parse
from dragonscale.training.cost.goodput import Conditions

MAX_SECONDS = 1e9


def read_conditions(question: TrainQuestion) -> Conditions:
    """What the flags say of failures, checkpoints and spare hosts."""
    storage, waits = _read_storage(question.storage)
    return Conditions(
        every=_read_seconds(question.checkpoint_every, "--checkpoint-every", "30m"),
        storage=storage,
        waits=waits,
        mtbf=_read_seconds(question.mtbf, "--mtbf", "3h"),
        spares=_read_spares(question.spares.strip()),
        spot=question.pricing.strip().lower() == SPOT,
        restart=_read_seconds(question.restart, "--restart", "5m"),
    )


def _read_seconds(text: str, flag: str, example: str) -> float | None:
    """A time in seconds; None where none is given."""
    if not text.strip():
        return None
    minutes = re.sub(r"(?<=\d)\s*m$", "min", text.strip())  # nobody saves every 30 milliseconds
    seconds = parse(minutes, "s", flag)
    if not 0 < seconds < MAX_SECONDS:
        raise InputError(f"{flag} is {shorten(text)}; write a time, such as {example}.")
    return seconds


def _read_storage(text: str) -> tuple[float | None, bool]:
    """Bytes a second that storage takes from all hosts (None: not given), and whether the job waits for every save:
    `50GB/s`, `50GB/s,sync` or `sync`."""
    # `50GB/s,sync`: a rate, and whether saves are asynchronous
    rate, *options = map(str.strip, text.split(","))
    if options and options != ["sync"]:
        raise InputError(f"--storage is {shorten(text)}; write a rate, such as 50GB/s or 50GB/s,sync.")
    if rate == "sync":
        return None, True
    if not rate:
        return None, bool(options)
    storage = parse(rate, "bytes/s", "--storage")
    if storage <= 0:
        raise InputError(f"--storage is {shorten(text)}; it is more than nothing.")
    return storage, bool(options)


def _read_spares(text: str) -> float | None:
    """Spare hosts; below one: the fraction of the job's hosts."""
    if text.endswith("%"):
        return read_part(text, "--spares", "write hosts, or a part of them below 100%", 0.0, 0.99)
    return float(parse(text, "count", "--spares")) if text else None
