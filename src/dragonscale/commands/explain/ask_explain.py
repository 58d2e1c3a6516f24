"""Questions about where numbers come from, read and answered: one function for each kind of answer. Answers are laid
out (each quantity with its formula and the numbers put in, then what was solved) and drawn (the times as bars)."""

from dataclasses import fields

from dragonscale.blocks.charts import Bar, Chart, bars
from dragonscale.blocks.sheet import Block, Prose, Sheet, Title
from dragonscale.commands import grids
from dragonscale.commands.asked_chips import asked_chips, profile_notes
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.collective import read_question as read_collective
from dragonscale.commands.collective import read_volume
from dragonscale.commands.explain import physics
from dragonscale.commands.explain.formulas import Explanation, FormulaLine
from dragonscale.commands.given import maybe_target, mesh_of, sizes_of, target_of
from dragonscale.commands.questions import explain as questions
from dragonscale.commands.questions.flag import written
from dragonscale.commands.record import Face, bind
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware.changes import check_effect, with_changes
from dragonscale.physics.units import parse_length

# Words in the names of lines that are made of the others.
_BOUNDS = ("bound", "step", "total", "kernel by kernel")
_NETWORK = ("latency", "bandwidth", "network", "collectives", "all_", "reduce_scatter", "permute")


def explanation_blocks(explanation: Explanation, detail: bool = False) -> Sheet:  # noqa: ARG001 - it is all detail
    """The lines, the crossovers and what the letters stand for; what bounds the answer comes last."""
    blocks: list[Block] = [Title(explanation.subject)]
    if explanation.terms:
        blocks += [grids.grid("explain-terms", explanation.terms)]
    if explanation.lines:
        blocks.append(Prose("\n".join(map(_line, explanation.lines))))
    if explanation.crossovers:
        blocks.append(Prose("\n".join(["crossovers", *(f"  {text}" for text in explanation.crossovers)])))
    *notes, last = explanation.notes or [""]
    blocks += [Prose(note, "dim") for note in notes]
    return Sheet((*blocks, Prose(last, "key")))


def _line(line: FormulaLine) -> str:
    """The quantity with its value, its formula, and below it the formula with the numbers in."""
    text = f"{line.name} = {line.value}\n    = {line.formula}"
    if line.numbers != line.formula:  # a constant is its own formula
        text += f"\n    = {line.numbers}"
    return text


def draw(explanation: Explanation, _kind: str) -> Chart:
    """Every line that is a time, in the order of the explanation; crossovers in words below the title."""
    rows: list[Bar] = []
    for line in explanation.lines:
        if line.unit == "s" and line.value_si is not None:
            # `T_math = FLOPs / C` is labelled with its letter alone
            rows.append(Bar(line.name.split(" = ")[0], line.value_si, _role(line.name)))
    if not rows:
        raise nothing_to_draw("no line of the explanation is a time with all its sizes known")
    crossing = ""
    if explanation.crossovers:
        crossing = explanation.crossovers[0]
    return bars(rows, explanation.subject, crossing.partition(";")[0], "s")


def _role(name: str) -> str:
    """What a line is of, by the words of its name."""
    if any(word in name for word in _BOUNDS):
        return "overhead"
    if "bytes" in name or "hbm" in name.lower():
        return "hbm"
    if any(word in name for word in _NETWORK):
        return "tensor"
    return "compute"


bind(Explanation, Face(sheet=explanation_blocks, draw=draw))


def ask_roofline(question: questions.ExplainRooflineQuestion, listener: Listener) -> Explanation:
    check_effect(question.set, "kernels")
    chip = target_of(with_changes(question.on, question.set), listener)[0]
    counting = {"weights_only": question.weights_only, "per_element": question.per_element}
    explanation = physics.explain_roofline(
        question.expression, chip, sizes_of(question.sizes), question.memory, **counting
    )
    return explanation.came_from(chip, listener.notes)


def ask_collective(question: questions.ExplainCollectiveQuestion, listener: Listener) -> Explanation:
    understood = read_collective(question, listener)
    volume = None
    if question.size:
        volume = read_volume(question.size, understood)
    explanation = physics.explain_collective(
        understood.kind, volume, understood.mesh, understood.axes, understood.options
    )
    return explanation.came_from(understood, listener.notes)


def ask_shard(question: questions.ExplainShardQuestion, listener: Listener) -> Explanation:
    check_effect(question.set, "wires")
    mesh = mesh_of(question.mesh, *maybe_target(with_changes(question.on, question.set), listener))
    return physics.explain_shard(question.expression, mesh, sizes_of(question.sizes)).came_from(mesh, listener.notes)


def ask_model(question: questions.ExplainModelQuestion, listener: Listener) -> Explanation:
    if isinstance(question.model, Transformer):
        model = question.model
    else:
        model = load_model(question.model)
    length, note = parse_length(question.seq, "--seq")
    if note:
        listener.note(note)
    explanation = physics.explain_model(model, length)
    return explanation.came_from(model, listener.notes)


def ask_train(question: questions.ExplainTrainQuestion, listener: Listener) -> Explanation:
    # the planners are large: loaded only for questions about them
    from dragonscale.commands.explain.train import explain_train, explained_job

    check_effect(question.set, "training")
    on, plan = asked_chips(question.on, question.set, question.profile), written(question.plan)
    names = ("batch", "seq", "stack", "dtype", "numerics", "method", "lora_rank", "lora_targets", "frozen", "teacher")
    names += ("attention",)
    job, split = explained_job(plan, question.model, on, **{name: getattr(question, name) for name in names})
    for text in profile_notes([job.slice.chip]):
        listener.note(text)
    return explain_train(job, split, question.line, question.solve, question.wire).came_from(job, listener.notes)


def ask_serve(question: questions.ExplainServeQuestion, listener: Listener) -> Explanation:
    # the planners are large: loaded only for questions about them
    from dragonscale.commands.explain.serve import explain_serve
    from dragonscale.commands.serve.serve_question import ServeQuestion, read_question

    not_of_serve = ("line", "solve")
    # all other flags are those of `dscale serve`
    flags = {field.name: getattr(question, field.name) for field in fields(question) if field.name not in not_of_serve}
    understood = read_question(ServeQuestion(**flags))
    for text in profile_notes(chip for chip, _ in understood.targets):
        listener.note(text)
    return explain_serve(understood, question.line, question.solve).came_from(understood, listener.notes)
