"""Frames between the server and its workers: a kind of one letter, a length, and JSON."""

import struct

import msgspec

HEAD = struct.Struct(">cI")


class WorkerStart(msgspec.Struct):
    """What a worker is started with."""

    folder: str
    readable: list[str]
    writable: list[str]
    network: bool
    warm: bool
    memory_bytes: int


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """A frame as it is sent.

    >>> frame(b"e")
    b'e\\x00\\x00\\x00\\x00'
    """
    return HEAD.pack(kind, len(payload)) + payload
