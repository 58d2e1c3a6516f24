"""A process that tries grammars, so that one that takes too long, or too much memory, can be killed.

    python -m dragonscale.runtime.server.grammar_process FD

FD is its end of a socket of `grammar_check`, over which comes first the vocabulary and then one grammar after the
other; what goes back is why it cannot be used, and nothing where it can. It ends when the other end is gone.
"""

import contextlib
import math
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from dragonscale.errors import InputError
from dragonscale.runtime.serve.constraints import GrammarReader

MEMORY = 1 << 30
"""Bytes that all grammars together may take beside the vocabulary."""
CORE_S = 2
"""Seconds of a core that a grammar may take. One that people use takes hundredths."""


class Vocabulary(msgspec.Struct, frozen=True):
    """What grammars are over: a tokenizer as JSON, the model's logits, the tokens that end a text. `core_s` are the
    seconds of a core that one may take."""

    tokenizer: str
    size: int
    ends: list[int]
    core_s: int = CORE_S


def main(descriptor: int) -> int:
    """Try grammars until nobody sends any."""
    for stop in (signal.SIGINT, signal.SIGTERM):  # the server drains when a terminal signals both
        signal.signal(stop, signal.SIG_IGN)
    pipe = Connection(descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        vocabulary = msgspec.msgpack.decode(pipe.recv_bytes(), type=Vocabulary)
        try:
            reader = GrammarReader(vocabulary.tokenizer, vocabulary.size, vocabulary.ends)
        except ValueError:  # its decoder does not say which bytes a token stands for
            reader = None
        _limit_memory()
        pipe.send_bytes(b"ready")
        while True:
            kind, text = msgspec.msgpack.decode(pipe.recv_bytes(), type=tuple[str, str])
            _limit_time(vocabulary.core_s)
            pipe.send_bytes(_fault(reader, kind, text).encode())
    return 0


def _fault(reader: GrammarReader | None, kind: str, text: str) -> str:
    if reader is None:
        return "The tokenizer has no decoder, so output cannot be held to a grammar."
    try:
        reader.read(kind, text)
    except InputError as error:
        return str(error)
    return ""


def _limit_time(seconds: int) -> None:
    """End this process by SIGXCPU after so many seconds of a core from now on (rounded up). The time of day would count
    what other programs take."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))


def _limit_memory() -> None:
    """Let this process grow by `MEMORY` from now on, where the system can say how large it is."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        return


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
