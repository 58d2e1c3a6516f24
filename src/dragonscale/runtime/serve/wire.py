"""What the front and its workers say to each other: msgpack messages over a socket, each after its length.

The front says first what a worker is to run (`WorkerOrder`), then requests and who left. A worker tells how far it is, that it is
ready, and after each step one message with all that is new.
"""

import socket
import struct
from typing import Any

import msgspec

from dragonscale.runtime.serve.requests import Emitted, ServeRequest

LENGTH = struct.Struct("<I")
BUFFER = 4 << 20
"""Bytes that a socket holds on its way: a worker goes on while the front is busy with something else for a moment."""


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker runs. `weights` is a folder of Hugging Face files (none: random weights by `seed`). `pages` 0 takes those that fit
    into `memory`, the part of a device's memory that may be used. `role` is `both`, or `prefill` or `decode` of a disaggregated pair,
    whose pages go through files in `folder`. On a CPU there are `cpu` virtual devices.
    A `lazy` one compiles how tokens are sampled when it is first asked for."""

    model: str
    weights: str = ""
    plan: str = "tensor=1"
    length: int = 4096
    sequences: int = 64
    tokens: int = 2048
    page: int = 16
    pages: int = 0
    memory: float = 0.9
    draft: str = ""
    draft_weights: str = ""
    draft_tokens: int = 0
    prefix_cache: bool = True
    lazy: bool = False
    tokenizer: str = ""
    seed: int = 0
    cpu: int = 0
    role: str = "both"
    folder: str = ""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A request; a prefill worker writes its pages to the file `into`, a decode worker takes them `out_of` it, after the `first`
    tokens that it was given there."""

    request: ServeRequest
    into: str = ""
    out_of: str = ""
    first: list[int] = []


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Whoever asked is gone."""

    id: str


class Starting(msgspec.Struct, frozen=True, tag=True):
    """How far a worker is: what it does, and how much of that is done."""

    what: str
    done: int = 0
    total: int = 0


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """A worker takes requests. Sizes are of one rank; `page_bytes` of one chip."""

    pages: int
    page_bytes: int
    page: int
    ranks: int
    devices: int
    device_kind: str
    parameters: int
    load_s: float
    compile_s: float
    programs: int


class StepOutput(msgspec.Struct, frozen=True, tag=True):
    """All that is new after a step. The pages of a request that ends with `handover` lie in its file; those of `taken` ones were read."""

    emitted: list[Emitted] = []
    taken: list[str] = []
    stats: dict[str, float] = {}


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """Why a worker ends; `wrong` where what was asked for is at fault, so that another try would end alike."""

    why: str
    wrong: bool = False


ToWorker = Submit | Drop
FromWorker = Starting | WorkerReady | StepOutput | WorkerFailed
_encode = msgspec.msgpack.Encoder().encode


def framed(message: Any) -> bytes:
    """A message as it goes over the socket.

    >>> len(framed(Drop("a")))
    20
    """
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


class Pipe:
    """A worker's end: sends whole messages, and takes what has come without waiting, or waits where there is nothing to do."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.open = end, True
        self._kept = bytearray()
        self._decode = msgspec.msgpack.Decoder(ToWorker).decode
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    def send(self, message: FromWorker) -> None:
        self.end.setblocking(True)
        self.end.sendall(framed(message))

    def order(self) -> WorkerOrder:
        """The first message."""
        self.end.setblocking(True)
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return msgspec.msgpack.decode(self._exactly(size), type=WorkerOrder)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.end.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def drain(self, wait: bool) -> list[ToWorker]:
        """What has come; `wait` for something. `open` is no longer set when the other end is gone."""
        self.end.setblocking(wait)
        try:
            while True:
                part = self.end.recv(1 << 20)
                if not part:
                    self.open = False
                    break
                self._kept += part
                self.end.setblocking(False)
        except BlockingIOError:
            pass
        found, at, kept = [], 0, self._kept
        while len(kept) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(kept, at)
            if len(kept) - at - LENGTH.size < size:
                break
            found.append(self._decode(memoryview(kept)[at + LENGTH.size : at + LENGTH.size + size]))
            at += LENGTH.size + size
        del kept[:at]
        return found
