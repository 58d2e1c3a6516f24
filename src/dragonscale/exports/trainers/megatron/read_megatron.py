"""Commands and scripts that start Megatron-LM's `pretrain_gpt.py`, read as plans.

The sizes of the model (`model_read`) and the plan (`plan_read`) come from the arguments; the chips are the user's word,
the header's, or the processes that the launcher starts. Recipes of Megatron-Bridge come here too, once their fields are
flags.
"""

import math
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.flags import ReadFlags, read_flags
from dragonscale.exports.imported import Given, Imported, left_over, needs, slice_counted, training_file, with_slice
from dragonscale.exports.keys import load_keys
from dragonscale.exports.source import Source
from dragonscale.exports.trainers.megatron import plan_read as megatron_plan
from dragonscale.exports.trainers.megatron.model_read import model_read
from dragonscale.exports.trainers.megatron.plan_read import heavy, is_harmless, number, said_tokens
from dragonscale.exports.trainers.megatron.settle import STEPS
from dragonscale.models import load_model

SCRIPT = "pretrain_gpt.py"


def recognises(source: Source) -> bool:
    return source.command(SCRIPT) is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a command or a script that starts `pretrain_gpt.py`."""
    command, table = source.command(SCRIPT), load_keys("megatron")
    assert command is not None
    at = next(place for place, word in enumerate(command.words) if word.rsplit("/", 1)[-1] == SCRIPT)
    # scripts keep a flag and its value in one word of an array, which an unquoted `${ARGS[@]}` takes apart
    words = [piece for word in command.words[at + 1 :] for piece in (word.split() if word.startswith("--") else [word])]
    read = read_flags(table, words)
    return read_run(source, given, read, command.processes, "megatron", table.version)


def read_run(
    source: Source, given: Given, read: ReadFlags, processes: int, target: str, version: str, named: str = ""
) -> Imported:
    """The plan that arguments say, on so many processes; the chips are the user's word, the header's, or those
    processes. `named` is the model that is said by name."""
    piece = slice_counted(source, given, processes)
    if piece is None:
        how = f"--on CHIP (its {processes} processes are counted)" if processes else "--on SLICE"
        raise needs("its chips", how, source)
    other = processes and processes != piece.chips
    told = [f"It starts {processes} processes; it is read for {piece}."] if other else []
    model = model_read(read, str(source.kept.get("model", ""))) or named
    if not model and not given.model and not source.kept.get("model"):
        raise needs("the model's sizes", "--model", source)
    built = load_model(given.model or model or str(source.kept["model"]))
    experts = any("e" in section.dims for section in built.program().sections)
    seq = number(read, "--seq-length", number(read, "--encoder-seq-length", 0))
    if not seq:
        raise InputError(f"{source.shown} does not say its --seq-length.")
    stack = megatron_plan.stack_read(read)
    if target == "megatron-bridge" and stack in ("megatron-core", "megatron-overlap"):
        stack = target
    plan, batch, notes = megatron_plan.plan_read(read, piece.chips, built.n_layers, experts)
    file = training_file(source, given, plan, batch, seq, model, stack)
    if tokens := said_tokens(read, batch, seq, file, STEPS if source.kept else 0):
        file = replace(file, tokens=tokens)
    if capacity := read.take("--moe-expert-capacity-factor"):
        file = replace(file, capacity=_capacity(capacity))
    weighty = () if target == "megatron-bridge" else heavy(read)
    ignored, unplanned = left_over(read.values, filter(is_harmless, read.values))
    found = Imported(target, version, file, (*told, *notes), ignored, (*weighty, *unplanned), tuple(read.unknown))
    return with_slice(found, piece)


def _capacity(value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--moe-expert-capacity-factor is {shorten(value)}; write a number.")
    return max(number, 0.0)
