"""What `--checkpoint-every`, `--storage`, `--mtbf`, `--restart`, `--spares` and `--pricing spot` say of a run."""

import re

from dragonscale.commands.given import read_part
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.price_book import SPOT
from dragonscale.physics.units import parse
from dragonscale.training.cost.goodput import Conditions

LONGEST = 1e9
"""Seconds that a flag may say, at most."""


def _seconds(text: str, flag: str, example: str) -> float | None:
    if not text.strip():
        return None
    seconds = parse(re.sub(r"(?<=\d)\s*m$", "min", text.strip()), "s", flag)  # nobody saves every 30 milliseconds
    if not 0 < seconds < LONGEST:
        raise InputError(f"{flag} is {shorten(text)}; write a time, such as {example}.")
    return seconds


def read_conditions(question: TrainQuestion) -> Conditions:
    """What the flags say of failures and checkpoints."""
    rate, *words = (part.strip() for part in question.storage.split(","))
    if words and words != ["sync"]:
        raise InputError(f"--storage is {shorten(question.storage)}; write a rate, such as 50GB/s or 50GB/s,sync.")
    storage = parse(rate, "bytes/s", "--storage") if rate and rate != "sync" else None
    if storage is not None and storage <= 0:
        raise InputError(f"--storage is {shorten(question.storage)}; it is more than nothing.")
    spares, said = None, question.spares.strip()
    if said.endswith("%"):
        spares = read_part(said, "--spares", "write hosts, or a part of them below 100%", 0.0, 0.99)
    elif said:
        spares = float(parse(said, "count", "--spares"))
    return Conditions(
        _seconds(question.checkpoint_every, "--checkpoint-every", "30m"),
        storage,
        bool(words) or rate == "sync",
        _seconds(question.mtbf, "--mtbf", "3h"),
        spares,
        question.pricing.strip().lower() == SPOT,
        _seconds(question.restart, "--restart", "5m"),
    )
