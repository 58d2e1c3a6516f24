"""The answer to `dscale verify`: compile and compare."""

from dragonscale.app.questions.verify import VerifyQuestion
from dragonscale.app.verify.question import VerifyAsked, read_question
from dragonscale.app.verify.records import Verification
from dragonscale.listener import Listener


def ask(question: VerifyQuestion, listener: Listener) -> Verification:
    """Read a question, tell how it was read, compile and compare."""
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    return verified(asked, listener, question.cache).came_from(asked, listener.notes)


def verified(asked: VerifyAsked, listener: Listener | None = None, cached: bool = True) -> Verification:
    """Compile a plan and lay the program beside it."""
    from dragonscale.app.verify.fit import with_fitting_plan
    from dragonscale.evidence.verify.quiet import verify_quietly

    if listener is not None:
        listener.wait(f"Compiling for {asked.request.slice}; this takes half a minute or more the first time.")
    found = verify_quietly(asked.request, asked.timeout, asked.memory, cached, asked.stack)
    return Verification.of(with_fitting_plan(found))
