"""Chrome traces that are broken, foreign or made to hurt: one sentence or a recording, in bounded memory."""

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.listener import Listener
from tests.evidence.profiles.traces import kineto, xprof_tpu

KERNEL = '{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":7,"ts":%d,"dur":1,"args":{"device":0,"stream":7}}'


def read_or_refuse(path: Path) -> int:
    """How many events were read; -1 where a sentence said why none."""
    recording = None
    try:
        recording = read_recording(str(path), Listener())
    except InputError as error:
        sentence = str(error)
    else:
        sentence = ""
    assert "\n" not in sentence
    assert len(sentence) < 500
    if recording is None:
        return -1
    assert (recording.events.duration >= 0).all()
    return len(recording.events.start)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[",
        b"{}",
        b"[]",
        b'{"traceEvents"',
        b'{"traceEvents":',
        b'{"traceEvents":[',
        b'{"traceEvents":7}',
        b'{"traceEvents":[}]',
        b"[}}}}]",
        b'{"traceEvents":[{"ph":"X"',
        b'{"a":' * 100_000,
        b"[" * 1_000_000,
        b'[{"args":' * 50_000,
        b'{"' + b"x" * 3_000_000,
        b'[{"name":"' + b"x" * 3_000_000,
        b'{"traceEvents":[1,2,3]}',
        b'[{"ph":"X","cat":"kernel","ts":1e999999999,"dur":1}]',
        b'[{"ph":"X","cat":"kernel","ts":' + b"9" * 100_000 + b',"dur":1}]',
        b'{"x":"\xff\xfe\x00","traceEvents":[]}',
        b"[,,,,]",
        b"[:::]",
        b'{"schemaVersion":1,"traceEvents":{"a":[{"ph":"X"}]}}',
        b'[{"ph":"X","cat":"kernel","ts":1,"pid":1' + b"0" * 400 + b"}]",
        b'[{"ph":"M","name":"process_name","pid":1,"args":{"name":"/device:TPU:0"}}]',
        b"[null" + b",null" * 100_000 + b"]",
    ],
)
def test_broken_text(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(text)
    assert read_or_refuse(tmp_path / "t.json") in (-1, 0, 1)


def test_numbers_that_are_too_large_and_nesting_that_is_too_deep_cost_only_their_event(tmp_path: Path) -> None:
    good = KERNEL % (0, 5)
    bad = [
        good.replace('"tid":7', '"tid":' + "7" * 5000),
        good.replace('"stream":7', '"stream":1e400'),
        good.replace('"stream":7', '"x":' + "[" * 5000 + "]" * 5000),
        good.replace('"device":0', '"device":-99999999999999999999'),
        good.replace('"ts":5', '"ts":-1e15'),
        good.replace('"k0"', '"\\ud800"'),
    ]
    (tmp_path / "t.json").write_text(f"[{','.join([good, *bad, good])}]")
    assert 2 <= read_or_refuse(tmp_path / "t.json") <= 8


def mutated(text: bytes, dice: random.Random) -> bytes:
    """The text with a few bytes changed, taken out, doubled, or cut off."""
    data = bytearray(text)
    for _ in range(dice.randint(1, 6)):
        at, what = dice.randrange(len(data)), dice.randrange(6)
        if what == 0:
            data[at] = dice.randrange(256)
        elif what == 1:
            del data[at : at + dice.randint(1, 40)]
        elif what == 2:
            data[at:at] = data[at : at + dice.randint(1, 200)]
        elif what == 3:
            data[at : at + 1] = dice.choice(
                [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"NaN", b"-1e999", b"null", b"\x00"]
            )
        elif what == 4 and dice.random() < 0.2:
            del data[at:]
        else:
            data[at : at + 1] = str(dice.choice([2**63, -(2**70), 1e308, 0, -1, 1 << 40])).encode()
        if not data:
            return b"["
    return bytes(data)


def mutations(tmp_path: Path, count: int, seed: int) -> None:
    dice, path = random.Random(seed), tmp_path / "t.json"
    texts = [
        json.dumps(kineto()).encode(),
        json.dumps(xprof_tpu()).encode(),
        json.dumps(kineto()["traceEvents"], indent=1).encode(),
    ]
    read = 0
    for _ in range(count):
        text = mutated(dice.choice(texts), dice)
        path.write_bytes(mutated(gzip.compress(text, 1), dice) if dice.random() < 0.1 else text)
        read += read_or_refuse(path) > 0
    assert read > count / 2  # most of a trace survives a few wrong bytes


def test_mutated_traces(tmp_path: Path) -> None:
    mutations(tmp_path, 200, 1)


@pytest.mark.slow
def test_many_mutated_traces(tmp_path: Path) -> None:
    mutations(tmp_path, 20_000, 2)


def read_within(path: Path, gigabytes: float) -> str:
    """What a process that may have so much memory says of a file."""
    program = (
        "import resource, sys; from dragonscale.errors import InputError; from dragonscale.listener import Listener\n"
        "from dragonscale.evidence.profiles.opening import read_recording\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({int(gigabytes * 2**30)},) * 2)\n"
        "try:\n    made = read_recording(sys.argv[1], Listener()); print(len(made.events.start), made.dropped, "
        "made.notes)\n"
        "except InputError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr[-500:]
    return found.stdout


@pytest.mark.slow
def test_ten_million_events_fit(tmp_path: Path) -> None:
    path = tmp_path / "many.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"[")
        for part in range(1000):
            file.write(",".join(KERNEL % (one % 100, part * 10_000 + one) for one in range(10_000)).encode() + b",")
        file.write(b"{}]")
    assert read_within(path, 3).startswith("8000000 2000000")


@pytest.mark.slow
@pytest.mark.parametrize("what", [b" ", b'"', b"{},", b"[", b'{"name":"aaaaaaaa', b'{"a":1},'])
def test_a_packed_file_that_unpacks_to_very_much(what: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 6) as file:
        file.write(b"[")
        for _ in range(100):
            file.write(what * (2**20 // len(what)))
    assert "Traceback" not in read_within(path, 1)
