"""The answer to `dscale models`, put together from what was asked."""

from dragonscale.app.models.records import ModelReport, ModelsReport
from dragonscale.app.models.report import model_report, models_report
from dragonscale.app.questions.facts import ModelsQuestion
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.units import parse_length


def ask(question: ModelsQuestion, listener: Listener) -> ModelReport | ModelsReport:
    """One model by part, or every preset."""
    dtype_bytes(question.kv_dtype)
    length, said = parse_length(question.seq, "--seq")
    if said:
        listener.note(said)
    if question.model == "":
        if question.assume or question.family or question.program:
            raise InputError("--assume, --as and --program are about one model; name it, such as llama3-8b.")
        return models_report().came_from(question, listener.notes)
    model = load_model(with_assumed(question.model, question.assume, question.family))
    report = model_report(model, length, question.kv_dtype, causal=not question.full)
    for text in report.notes:
        listener.note(text)
    return report.came_from(question, listener.notes)


def ask_model(question: ModelsQuestion, listener: Listener) -> ModelReport:
    """One model, which must be named."""
    report = ask(question, listener)
    if not isinstance(report, ModelReport):
        raise InputError("Name a model, such as 'llama3-8b'; `ds.model_names()` lists the presets.")
    return report
