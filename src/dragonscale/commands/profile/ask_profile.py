"""The answer to `dscale profile`: read the file, say what each op is, find the steps, lay the plan beside it."""

import gzip
import json

from dragonscale.commands.profile.page import save_page
from dragonscale.commands.profile.profile_blocks import profile_blocks
from dragonscale.commands.profile.profile_question import ProfileAsked, read_question, the_chip
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.commands.questions.verify import ProfileQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.errors import InputError
from dragonscale.evidence.profiles.beside import ExpectedStep, expected_step
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.profiles.profiled import profiled
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.shown_step import shown_step
from dragonscale.evidence.profiles.trace import profile_trace
from dragonscale.files import write_file
from dragonscale.listener import Listener


def ask(question: ProfileQuestion, listener: Listener) -> ProfileReport:
    """Read a question and a profile, tell where the time went."""
    understood = read_question(question)
    for text in understood.notes:
        listener.note(text)
    recording = read_recording(understood.path, listener)
    return analysed(understood, recording).came_from(understood, listener.notes)


def analysed(understood: ProfileAsked, recording: Recording) -> ProfileReport:
    """A recording that has been read, analysed and laid beside its plan."""
    chip, unknown = the_chip(understood, recording)
    question = understood.question
    return ProfileReport.of(
        profiled(
            understood.path, recording, planned_step(understood), chip, unknown, top=question.top, step=question.step
        )
    )


def planned_step(understood: ProfileAsked) -> ExpectedStep | None:
    """The plan's step; None where no plan was given."""
    if understood.request is None:
        return None
    return expected_step(understood.request, understood.stack, understood.engine)


def save_trace(report: ProfileReport, path: str) -> str:
    """Write the trace for Perfetto, gzipped where the name says so; returns what it shows."""
    step = shown_step(report.analysis)
    if step is None:
        raise InputError("A profile in which nothing was timed has no timeline.")
    planned = None
    if isinstance(report.asked, ProfileAsked):
        planned = planned_step(report.asked)
    content = json.dumps(profile_trace(report.analysis, step, planned), separators=(",", ":")).encode()
    # without a time of writing in it, equal traces are equal files
    write_file(path, gzip.compress(content, mtime=0) if path.endswith(".gz") else content, "The trace")
    return f", step {step.number} of {report.steps.count}; open it at https://ui.perfetto.dev"


bind(ProfileReport, Face(sheet=profile_blocks, page=save_page, timeline=save_trace))
