"""Pipes and devices never end: no reader of a file waits for one, or reads on and on."""

import os
from pathlib import Path

import pytest

from dragonscale.commands.train import lengths
from dragonscale.commands.train.lengths import read_lengths
from dragonscale.course.progress import read_progress
from dragonscale.errors import InputError
from dragonscale.listener import Listener


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    return path


def test_lengths_are_of_a_plain_file(pipe: Path) -> None:
    for path in ("/dev/zero", str(pipe)):
        with pytest.raises(InputError, match="is a pipe or a device; a plain file is needed"):
            read_lengths(path)


def test_lengths_are_read_line_by_line_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text('12\n\n{"length": 700}\n {"input_ids": [1, 2, 3]} \n')
    assert read_lengths(str(path)).tokens == [12, 700, 3]
    with path.open("ab") as file:
        file.truncate(60 << 30)  # a sparse file
    with pytest.raises(InputError, match="is larger than 16 GiB"):
        read_lengths(str(path))
    monkeypatch.setattr(lengths, "MAX_LINE", 100)
    path.write_bytes(b"12\n" + b"\0" * 10_000)
    with pytest.raises(InputError, match=r"Line 2 of --lengths .* is longer than"):
        read_lengths(str(path))
    monkeypatch.setattr(lengths, "MAX_EXAMPLES", 3)
    path.write_text("12\n" * 4)
    with pytest.raises(InputError, match="has more than 3 examples"):
        read_lengths(str(path))


def test_progress_is_in_a_plain_file(pipe: Path, tmp_path: Path) -> None:
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="is a pipe or a device; a plain file is needed"):
            read_progress(path)
    assert not read_progress(tmp_path / "none").problems


def test_a_plan_is_in_a_plain_file(pipe: Path) -> None:
    from dragonscale.commands.questions.train import TrainQuestion
    from dragonscale.commands.train.ask_train import ask

    with pytest.raises(InputError, match="is a pipe or a device"):
        ask(TrainQuestion("gpt2", on="h100:8", batch="64seq", plan=str(pipe)), Listener())
