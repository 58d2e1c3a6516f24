"""Questions about where numbers come from, read and answered: one function for each kind of answer."""

from dataclasses import fields
from typing import Any

from dragonscale.app.asked_chips import asked_chips, profile_notes
from dragonscale.app.collective import read_question as read_collective
from dragonscale.app.collective import read_volume
from dragonscale.app.explain import physics
from dragonscale.app.explain.formulas import Explanation
from dragonscale.app.explain.shown import draw, explanation_sheet
from dragonscale.app.given import maybe_target, mesh_of, sizes_of, target_of
from dragonscale.app.questions.explain import (
    ExplainCollectiveQuestion,
    ExplainModelQuestion,
    ExplainRooflineQuestion,
    ExplainServeQuestion,
    ExplainShardQuestion,
    ExplainTrainQuestion,
)
from dragonscale.app.questions.flag import written
from dragonscale.app.record import Face, bind
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware.changes import with_changes
from dragonscale.physics.units import parse_length

bind(Explanation, Face(sheet=explanation_sheet, draw=draw))


def ask_roofline(question: ExplainRooflineQuestion, listener: Listener) -> Explanation:
    chip = target_of(with_changes(question.on, question.set), listener)[0]
    found = physics.explain_roofline(question.expression, chip, sizes_of(question.sizes), question.memory)
    return found.came_from(chip, listener.notes)


def ask_collective(question: ExplainCollectiveQuestion, listener: Listener) -> Explanation:
    asked = read_collective(question, listener)
    volume = read_volume(question.size) if question.size else None
    found = physics.explain_collective(asked.kind, volume, asked.mesh, asked.axes, asked.options)
    return found.came_from(asked, listener.notes)


def ask_shard(question: ExplainShardQuestion, listener: Listener) -> Explanation:
    mesh = mesh_of(question.mesh, *maybe_target(with_changes(question.on, question.set), listener))
    return physics.explain_shard(question.expression, mesh, sizes_of(question.sizes)).came_from(mesh, listener.notes)


def ask_model(question: ExplainModelQuestion, listener: Listener) -> Explanation:
    model = question.model if isinstance(question.model, Transformer) else load_model(question.model)
    length, said = parse_length(question.seq, "--seq")
    if said:
        listener.note(said)
    found = physics.explain_model(model, length)
    return found.came_from(model, listener.notes)


def ask_train(question: ExplainTrainQuestion, listener: Listener) -> Explanation:
    from dragonscale.app.explain.train import explain_train, explained_job

    on, plan = asked_chips(question.on, question.set, question.profile), written(question.plan)
    job, split = explained_job(plan, question.model, on, question.batch, question.seq, question.stack, question.dtype)
    for text in profile_notes([job.slice.chip]):
        listener.note(text)
    return explain_train(job, split, question.line, question.solve, question.wire).came_from(job, listener.notes)


def ask_serve(question: ExplainServeQuestion, listener: Listener) -> Explanation:
    from dragonscale.app.explain.serve import explain_serve
    from dragonscale.app.serve.serve_question import ServeQuestion, read_question

    own = ("line", "solve", "set")
    given: dict[str, Any] = {one.name: getattr(question, one.name) for one in fields(question) if one.name not in own}
    given["on"] = with_changes(question.on, question.set)
    asked = read_question(ServeQuestion(**given))
    for text in profile_notes(chip for chip, _ in asked.targets):
        listener.note(text)
    return explain_serve(asked, question.line, question.solve).came_from(asked, listener.notes)
