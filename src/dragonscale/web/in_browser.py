"""The planner inside a browser: what the static edition's worker calls (Pyodide; `tools/static_edition/` builds it).

The worker gives a request as JSON text and gets each message as JSON text, the same as the server sends.

>>> messages = []
>>> answer_text('{"view": "chips", "fields": {"name": "h10"}}', messages.append)
>>> messages[-1][:47]
'{"error": {"kind": "input", "text": "There is n'
"""

import contextlib
import json
import time
from collections.abc import Callable

from dragonscale.web.answers import Unwanted, answer

BREATH_S = 0.04
"""How long Python computes before it lets messages in."""


def resting(unwanted: Callable[[], bool], rest: Callable[[], object]) -> Callable[[], bool]:
    """`unwanted`, after a moment in which the worker hears what the page says meanwhile; `rest()` is a promise of that
    moment.

    Python can wait for a promise only where the browser can suspend WebAssembly; elsewhere a question runs to its end.
    """
    from pyodide.ffi import can_run_sync, run_sync  # pyright: ignore[reportMissingImports]

    rested = time.perf_counter()

    def asked() -> bool:
        nonlocal rested
        if time.perf_counter() - rested > BREATH_S and can_run_sync():
            run_sync(rest())
            rested = time.perf_counter()
        return unwanted()

    return asked


def answer_in_worker(
    text: str, post: Callable[[str], object], unwanted: Callable[[], bool], rest: Callable[[], object]
) -> None:
    """`answer_text` as the worker calls it."""
    answer_text(text, post, resting(unwanted, rest))


def answer_text(text: str, post: Callable[[str], object], unwanted: Callable[[], bool] = lambda: False) -> None:
    """Answer a request that is JSON text by messages that are; ends early where `unwanted` says that nobody waits."""

    def send(message: dict[str, object]) -> None:
        if message:
            post(json.dumps(message))
        if unwanted():
            raise Unwanted

    with contextlib.suppress(Unwanted):
        answer(json.loads(text), send)
