"""The answer to `dscale verify`: compile and compare."""

from typing import Any

from dragonscale.listener import Listener
from dragonscale.reports.verify.question import VerifyAsked


def verified(asked: VerifyAsked, listener: Listener | None = None, cached: bool = True) -> Any:
    """Compile a plan and lay the program beside it."""
    from dragonscale.evidence.verify.quiet import verify_quietly
    from dragonscale.reports.verify.fit import with_fitting_plan

    if listener is not None:
        listener.note(f"Compiling for {asked.request.slice}; this takes half a minute or more the first time.")
    return with_fitting_plan(verify_quietly(asked.request, asked.timeout, asked.memory, cached, asked.stack))
