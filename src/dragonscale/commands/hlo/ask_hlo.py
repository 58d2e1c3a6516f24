"""`dscale hlo`: a question about HLO read and answered. What was given tells which kind of question it is: a topic, a
shape, one instruction, or a program."""

import re
from pathlib import Path

from msgspec.structs import asdict

from dragonscale.commands.given import maybe_target
from dragonscale.commands.hlo.hlo_blocks import layout_blocks, op_blocks, program_blocks, topic_blocks
from dragonscale.commands.hlo.hlo_records import (
    TOPICS,
    HloModuleReport,
    HloOp,
    HloTopic,
    LayoutFacts,
    layout_facts,
    topic,
)
from dragonscale.commands.questions.operations import HloQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.errors import InputError, nearest, shorten, unknown
from dragonscale.evidence.xla.dumps import HloDump, read_dump_file, read_dump_folder, read_dumps
from dragonscale.evidence.xla.op_facts import op_facts
from dragonscale.evidence.xla.program_facts import program_facts
from dragonscale.listener import Listener
from dragonscale.physics.hardware.changes import check_effect, with_changes

_SHAPE = re.compile(r"\s*[a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?\s*")
_LINE = re.compile(r"\s*(?:ROOT )?%?[\w.\-]+ = \S")
# The word for a built-in program: a training step of three MLP layers that XLA compiled for 64 TPU v5p.
EXAMPLE = "example"
# Characters of a path; a longer text is no name of a file.
_MAX_PATH = 4096
# Modules of a text that are named when one of several is taken.
_MAX_NAMED = 8
HloAnswer = LayoutFacts | HloOp | HloModuleReport | HloTopic


def ask(question: HloQuestion, listener: Listener) -> HloAnswer:
    """A note, the facts of a shape, an instruction decoded, or a program's table."""
    return _answer(question, listener).came_from(question, listener.notes)


def _answer(question: HloQuestion, listener: Listener) -> HloAnswer:
    text = question.text
    if not text.strip():
        raise InputError(
            "TEXT|FILE is empty; give HLO text, a file of it, a shape such as 'bf16[8,128]{1,0:T(8,128)(2,1)}' "
            "or a topic."
        )
    check_effect(question.set, "kernels")
    chip, where = maybe_target(with_changes(question.on, question.set), listener)
    if where is not None and where.chips > 1:
        listener.note(f"Times are those of one chip: using one {where.chip.title} of {where}.")
    if text in TOPICS:
        return topic(text)
    if _SHAPE.fullmatch(text):
        return layout_facts(text)
    if _is_one_instruction(text):
        return HloOp(**asdict(op_facts(text, chip)))
    if text == EXAMPLE:
        dump = read_dump_file(Path(__file__).with_name("example.hlo.gz"))[0]
    else:
        dump = _chosen(_dumps(text, question.module, listener), question, listener)
    return HloModuleReport(**asdict(program_facts(dump, chip)), listed=question.top)


def _is_one_instruction(text: str) -> bool:
    """Whether a text is one line of HLO, which may be broken into several: no later line begins an instruction."""
    _, *later = [line for line in text.strip().splitlines() if line.strip()]
    return bool(_LINE.match(text)) and not any(map(_LINE.match, later))


def _dumps(text: str, module: str, listener: Listener) -> list[HloDump]:
    """The modules of a file, of a folder of dumps, or of the text itself."""
    path = _existing_path(text)
    if path is not None and path.is_file():
        listener.wait(f"Reading {path.name}.")
        return read_dump_file(path)
    if path is not None and path.is_dir():
        dumps, count = read_dump_folder(path, module)
        if count > 1 and not module:
            listener.note(
                f"{count} modules in {path.name}: reading the largest; --module NAME or the file's own path takes "
                "another."
            )
        return dumps
    if "\n" in text or "HloModule" in text or "{" in text:
        return read_dumps(text)
    close = nearest(text, (*TOPICS, EXAMPLE))
    if close:
        hint = f"did you mean {close!r}?"
    else:
        hint = f"topics are {', '.join(TOPICS)}, and there is an {EXAMPLE}."
    raise InputError(f"{shorten(text)} is no file, no HLO and no topic; {hint}")


def _existing_path(text: str) -> Path | None:
    """The file or folder that a text names; None where it is HLO itself, or names nothing."""
    if len(text) >= _MAX_PATH or "\n" in text or "\0" in text:
        return None
    try:
        if Path(text).exists():
            return Path(text)
        return None
    except OSError:  # longer than a name may be
        return None


def _chosen(dumps: list[HloDump], question: HloQuestion, listener: Listener) -> HloDump:
    """The module that is named, or the largest."""
    if question.module:
        named = [dump for dump in dumps if dump.name == question.module]
        if not named:
            raise unknown("module of the HLO text", question.module, [dump.name for dump in dumps])
        return named[-1]
    if len(dumps) > 1:
        names = ", ".join(dump.name for dump in dumps[:_MAX_NAMED])
        listener.note(f"The text has {len(dumps)} modules; this is the largest. --module takes another: {names}.")
    return max(dumps, key=lambda dump: len(dump.text))


bind(LayoutFacts, Face(sheet=lambda report, _: layout_blocks(report)))
bind(HloOp, Face(sheet=op_blocks))
bind(HloModuleReport, Face(sheet=program_blocks))
bind(HloTopic, Face(sheet=lambda report, _: topic_blocks(report)))
