"""How to read HLO: short notes that `dscale hlo TOPIC` shows, each with a line to try (`topics.toml`).

A question about HLO, read and answered: what was given tells which kind of question it is.
"""

import re
from pathlib import Path

from dragonscale.commands.given import maybe_target
from dragonscale.commands.hlo.hlo_sheet import layout_sheet, op_sheet, program_sheet, topic_sheet
from dragonscale.commands.hlo.op import TOPICS, HloOp, HloTopic, LayoutFacts, layout_facts, op_answer, topic
from dragonscale.commands.hlo.program import HloModuleReport, program_answer
from dragonscale.commands.questions.operations import HloQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.errors import InputError, nearest, shorten, unknown
from dragonscale.evidence.xla.dumps import HloDump, read_dump_file, read_dump_folder, read_dumps
from dragonscale.listener import Listener
from dragonscale.physics.hardware.changes import check_effect, with_changes

_SHAPE = re.compile(r"\s*[a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?\s*")
_LINE = re.compile(r"\s*(?:ROOT )?%?[\w.\-]+ = \S")
EXAMPLE = "example"
"""A training step of three MLP layers that XLA compiled for 64 TPU v5p, to try the command on."""
_LONGEST_NAME = 4096
HloAnswer = LayoutFacts | HloOp | HloModuleReport | HloTopic
bind(LayoutFacts, Face(sheet=lambda report, _: layout_sheet(report)))
bind(HloOp, Face(sheet=op_sheet))
bind(HloModuleReport, Face(sheet=program_sheet))
bind(HloTopic, Face(sheet=lambda report, _: topic_sheet(report)))


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
    chip, piece = maybe_target(with_changes(question.on, question.set), listener)
    if piece is not None and piece.chips > 1:
        listener.note(f"Times are those of one chip: using one {piece.chip.title} of {piece}.")
    if text in TOPICS:
        return topic(text)
    if text == EXAMPLE:
        return program_answer(read_dump_file(Path(__file__).with_name("example.hlo.gz"))[0], chip, question.top)
    if _SHAPE.fullmatch(text):
        return layout_facts(text)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if _LINE.match(text) and (len(lines) == 1 or not any(map(_LINE.match, lines[1:]))):
        return op_answer(text, chip)
    return program_answer(_chosen(_dumps(text, question.module, listener), question, listener), chip, question.top)


def _dumps(text: str, module: str, listener: Listener) -> list[HloDump]:
    """The modules of a file, of a folder of dumps, or of the text itself."""
    path = Path(text) if len(text) < _LONGEST_NAME and "\n" not in text and "\0" not in text else None
    try:
        path = path if path is not None and path.exists() else None
    except OSError:  # longer than a name may be
        path = None
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
    hint = f"did you mean {close!r}?" if close else f"topics are {', '.join(TOPICS)}, and there is an {EXAMPLE}."
    raise InputError(f"{shorten(text)} is no file, no HLO and no topic; {hint}")


def _chosen(dumps: list[HloDump], question: HloQuestion, listener: Listener) -> HloDump:
    if question.module:
        named = [dump for dump in dumps if dump.name == question.module]
        if not named:
            raise unknown("module of the HLO text", question.module, [dump.name for dump in dumps])
        return named[-1]
    if len(dumps) > 1:
        listener.note(
            f"The text has {len(dumps)} modules; this is the largest. --module takes another: "
            f"{', '.join(one.name for one in dumps[:8])}."
        )
    return max(dumps, key=lambda one: len(one.text))
