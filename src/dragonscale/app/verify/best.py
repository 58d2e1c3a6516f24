"""What to compile to verify the answer of `dscale train` or `dscale serve`: the best plan, or the one
that was given."""

from typing import Any

from dragonscale.app.given import check_named
from dragonscale.app.questions.verify import VerifyQuestion
from dragonscale.app.train.slices import written_slice
from dragonscale.app.verify.verify_question import VerifyAsked, read_question
from dragonscale.errors import InputError


def training_question(asked: Any, report: Any) -> VerifyAsked:
    """A training step of the first plan of a `TrainReport`."""
    if asked.documents:
        raise InputError("--verify compiles our own program, which masks no documents yet; leave out --documents.")
    if asked.question.largest == "model":
        raise InputError("--verify compiles a model that exists; leave out --largest model.")
    check_named(asked.question.model, asked.question.on)
    best, work = report.plans[0], report.workload
    plan, batch = str(best.plan), f"{work.sequences}seq"
    asks = plan, asked.question.model, written_slice(asked, report), batch, str(work.seq), "train"
    return read_question(VerifyQuestion(*asks, stack=best.stack))


def serving_question(asked: Any, report: Any) -> VerifyAsked:
    """A decode step of the first configuration of a `ServeReport`: one copy of the model, room for
    prompts and answers."""
    check_named(asked.question.model, asked.question.on)
    best, work = report.configs[0], report.workload
    room, model = work.prompt + work.output, asked.question.model
    where = asked.written_slice(best.copy_slice)
    return read_question(VerifyQuestion(best.plan, model, where, str(best.batch), str(room), "decode"))
