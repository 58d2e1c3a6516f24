"""Small packed files that unpack to gigabytes are refused in time."""

import gzip
import time
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.profiles import json_stream
from dragonscale.evidence.profiles.json_stream import EventStream
from dragonscale.listener import Listener

OPEN = b'{"traceEvents":['
EVENT = b'{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1},'


def bomb(folder: Path, start: bytes, part: bytes, count: int) -> Path:
    """A file of a start and many times the same, as members of gzip, which need not be packed one by one."""
    path = folder / "bomb.json.gz"
    path.write_bytes(gzip.compress(start) + gzip.compress(part) * count)
    return path


def read(path: Path) -> EventStream:
    stream = EventStream(path, Listener())
    for _ in stream:
        pass
    return stream


@pytest.mark.parametrize("start", [b"", OPEN, b'{"a":', OPEN + EVENT])
def test_gigabytes_of_blanks_are_refused(tmp_path: Path, start: bytes) -> None:
    path = bomb(tmp_path, start, b" " * (1 << 20), 3000)
    assert path.stat().st_size < 4e6
    began = time.process_time()
    with pytest.raises(InputError, match="16 MiB of blanks; that is no profile"):
        read(path)
    assert time.process_time() - began < 5


def test_what_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_MOST_UNPACKED", 4 << 20)
    monkeypatch.setattr(json_stream, "_MOST_RATIO", 2)
    path = bomb(tmp_path, OPEN, EVENT * 20_000, 10)
    with pytest.raises(InputError, match=r"bytes and unpacks to more than 4,194,304; that is no profile"):
        read(path)
    monkeypatch.setattr(json_stream, "_MOST_RATIO", 2000)
    assert read(path).events == 200_000, "a file as large as that is read"


def test_a_value_of_very_many_parts_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_MOST_BRACKETS", 100_000)
    stream = read(bomb(tmp_path, b'{"stackFrames":[', b"[]," * 100_000, 3))
    assert "more than 100,000 parts" in stream.cut
