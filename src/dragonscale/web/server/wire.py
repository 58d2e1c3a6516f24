"""What the page's server and its workers say to each other over the socket of `dragonscale.workers`: a letter and JSON.

A worker is sent what it is started with (`WorkerStart`), then questions and that nobody waits for the present one; it
sends that it is ready, each message of an answer, and at its end the names of the records that it remembers.
"""

import msgspec

ASKED, DROPPED = b"a", b"d"
READY, MESSAGE, ENDED = b"r", b"m", b"e"


class WorkerStart(msgspec.Struct):
    """What a worker is started with: the folder it stands in, files it may read and write besides, whether it may use
    the network, whether it answers a question or two before it counts as ready, and how large it may grow."""

    folder: str
    readable: list[str]
    writable: list[str]
    network: bool
    warm: bool
    memory_bytes: int
