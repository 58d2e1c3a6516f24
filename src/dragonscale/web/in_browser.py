"""The planner inside a browser: what the static edition's worker calls (Pyodide; `tools/static_edition/` builds it).

The worker gives a request as JSON text and gets each message as JSON text, the same as the server sends.

>>> messages = []
>>> answer_text('{"view": "chips", "fields": {"name": "h10"}}', messages.append)
>>> messages[-1][:47]
'{"error": {"kind": "input", "text": "There is n'
"""

import contextlib
import json
import signal
from collections.abc import Callable
from types import FrameType

from dragonscale.web.answers import Unwanted, answer


def pausing(unwanted: Callable[[], bool], rest: Callable[[], object]) -> Callable[[int, FrameType | None], None]:
    """What a signal does in the midst of an answer: let the worker hear what the page says meanwhile, which may be a
    question that is answered before this one goes on, and end it where nobody waits any more. `rest()` is a promise.

    Python can wait for a promise only where the browser can suspend WebAssembly; elsewhere a question runs to its end.
    """
    from pyodide.ffi import can_run_sync, run_sync  # pyright: ignore[reportMissingImports]

    def pause(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return  # another question must not see half of a module
            frame = frame.f_back
        if can_run_sync():
            run_sync(rest())
        if unwanted():
            raise Unwanted

    return pause


def answer_in_worker(
    text: str, post: Callable[[str], object], unwanted: Callable[[], bool], rest: Callable[[], object]
) -> None:
    """`answer_text` as the worker calls it, which sends a signal every now and then."""
    before = signal.signal(signal.SIGINT, pausing(unwanted, rest))
    with contextlib.suppress(Unwanted):
        try:
            answer_text(text, post, unwanted)
        finally:
            signal.signal(signal.SIGINT, before)


def answer_text(text: str, post: Callable[[str], object], unwanted: Callable[[], bool] = lambda: False) -> None:
    """Answer a request that is JSON text by messages that are; ends early where `unwanted` says that nobody waits."""

    def send(message: dict[str, object]) -> None:
        post(json.dumps(message))
        if unwanted():
            raise Unwanted

    with contextlib.suppress(Unwanted):
        answer(json.loads(text), send)
