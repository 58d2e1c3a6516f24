"""What goes wrong in a run: it dies, it is told to end, its data or disk or numbers are bad. Nothing
is ever damaged."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("orbax.checkpoint")

from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.runtime.train.checkpoints import Checkpoints
from dragonscale.runtime.train.metrics import read_metrics
from tests.runtime.tiny import CONFIGS

RUN = "import sys; from dragonscale.faces.cli import main; sys.exit(main(sys.argv[1:]))"
PATIENCE_S = 600
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a tiny model, some text, and compiled steps that processes hand on to each other."""
    folder = tmp_path_factory.mktemp("train")
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
    (folder / "model.json").write_text(json.dumps(CONFIGS["llama"] | sizes))
    numpy.random.default_rng(0).integers(0, 128, 6000).astype("<u2").tofile(folder / "text.bin")
    import jax
    from jax.experimental import compilation_cache

    before = {name: getattr(jax.config, name) for name in CACHE}
    for name, value in zip(CACHE, (str(folder / "cache"), 0.0), strict=True):
        jax.config.update(name, value)
    compilation_cache.compilation_cache.reset_cache()
    yield folder
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.compilation_cache.reset_cache()


def arguments(home: Path, kept: str, plan: str = "microbatch=4", **flags: Any) -> list[str]:
    settings = {
        "model": home / "model.json",
        "data": home / "text.bin",
        "steps": 30,
        "batch": 4,
        "seq": 32,
        "every": 4,
        "dtype": "fp32",
        "learning-rate": 1e-3,
        "checkpoints": home / kept,
        "log": 0,
    } | {name.replace("_", "-"): value for name, value in flags.items()}
    return ["run", "train", plan, *(part for name, value in settings.items() for part in (f"--{name}", str(value)))]


def begin(home: Path, words: list[str], devices: int = 1, **options: Any) -> subprocess.Popen[str]:
    environ = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0",
        "JAX_COMPILATION_CACHE_DIR": str(home / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    said = [line for line in err.splitlines() if "absl::" not in line and "cudart_stub" not in line]
    return process.returncode, out, "\n".join(said)


def wait(process: subprocess.Popen[str], happened: Callable[[], bool]) -> bool:
    """Until something has happened (True) or the process has ended (False)."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if happened():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.003)
    raise AssertionError("the run neither did anything nor ended")


def reached(home: Path, kept: str, step: int) -> Callable[[], bool]:
    """Whether the run that is begun next has come to a step: it makes the file of metrics anew."""
    path = home / kept / "metrics.jsonl"
    before = path.stat().st_ino if path.exists() else None

    def happened() -> bool:
        if not path.exists() or path.stat().st_ino == before:
            return False
        lines = read_metrics(path)
        return lines != [] and lines[-1]["step"] >= step

    return happened


def writing(home: Path, kept: str) -> Callable[[], bool]:
    """Whether the run that is begun next is writing a checkpoint: there is a folder whose name is not final yet."""

    def newest() -> int:
        made = [0]
        for one in (home / kept).glob("*tmp*"):
            with contextlib.suppress(OSError):  # it has got its name meanwhile
                made.append(one.stat().st_ctime_ns)
        return max(made)

    before = newest()
    return lambda: newest() > before


def curve(home: Path, kept: str) -> list[tuple[int, float, float]]:
    return [(line["step"], line["loss"], line["grad_norm"]) for line in read_metrics(home / kept / "metrics.jsonl")]


def steps_kept(home: Path, kept: str) -> list[int]:
    return sorted(int(one.name) for one in (home / kept).iterdir() if one.name.isdigit())


def killed(home: Path, kept: str, kills: int, seed: int, **flags: Any) -> int:
    """Run to the end, killed so many times at random: at any instant of its start, of its steps, or of writing a
    checkpoint. How many times it was killed."""
    dice, done = random.Random(seed), 0
    for attempt in range(2 * kills):
        if done == kills:
            break
        lines = curve(home, kept) if (home / kept / "metrics.jsonl").exists() else []
        step = min((lines[-1][0] if lines else 0) + dice.randint(1, 8), flags["steps"] - 2)
        happened = writing(home, kept) if attempt % 2 else reached(home, kept, step)
        process = begin(home, arguments(home, kept, **flags))
        if wait(process, happened):
            time.sleep(dice.random() * 0.1)
        done += process.poll() is None
        process.kill()
        finish(process)
    code, out, err = finish(begin(home, [*arguments(home, kept, **flags), "--json"]))
    assert code == 0, err
    assert json.loads(out)["last_step"] == json.loads(out)["steps"]
    return done


def test_a_run_that_is_killed_twice_goes_on_exactly(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert killed(home, "twice-killed", 2, seed=3, steps=8, every=2) == 2
    assert main(arguments(home, "calm-8", steps=8, every=2)) == 0
    capsys.readouterr()
    assert curve(home, "twice-killed") == curve(home, "calm-8")
    assert steps_kept(home, "twice-killed")[-1] == 8


@pytest.mark.slow
def test_a_run_that_is_killed_20_times_goes_on_exactly(home: Path) -> None:
    assert finish(begin(home, arguments(home, "whole", steps=120)))[0] == 0
    assert steps_kept(home, "whole") == [112, 116, 120]
    assert killed(home, "broken", 20, seed=0, steps=120) == 20
    assert curve(home, "broken") == curve(home, "whole")
    assert steps_kept(home, "broken")[-1] == 120


@pytest.mark.slow
def test_sigterm_saves_and_leaves(home: Path) -> None:
    happened = reached(home, "told", 3)
    process = begin(home, arguments(home, "told", steps=100_000, every=0))
    assert wait(process, happened)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 0, err
    assert "Stopped by SIGTERM after step" in out
    assert steps_kept(home, "told") == [curve(home, "told")[-1][0]]


def answer(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str]:
    code = main(words)
    return code, capsys.readouterr().err.strip()


def test_what_cannot_be_run_is_said_in_a_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answer(capsys, arguments(home, "none", "data=4096", batch=4096))
    assert code == 2
    assert "needs 4096 devices and there are" in said
    code, said = answer(capsys, arguments(home, "none", "pipe=2,microbatch=2,schedule=dualpipe"))
    assert code == 2
    assert "cannot run schedule=dualpipe, only 1f1b, gpipe, interleaved" in said
    code, said = answer(capsys, arguments(home, "none", "pipe=8,microbatch=1"))
    assert code == 2
    assert "the longest run of equal ones has 2, fewer than 8 chunks" in said
    code, said = answer(capsys, arguments(home, "none", data=home / "nothing.bin"))
    assert code == 2
    assert "nothing.bin' cannot be read: No such file or directory." in said
    (home / "wild.bin").write_bytes(b"\xf0" * 4000)
    code, said = answer(capsys, arguments(home, "none", data=home / "wild.bin"))
    assert code == 2
    assert "has the token 61680 at place" in said
    assert said.count("\n") == 0
    assert not list((home / "none").glob("[0-9]*"))


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = arguments(home, "nan", learning_rate=1000, every=1, steps=60)
    code, said = answer(capsys, [*words, "--warmup-steps", "1"])
    assert code == 3, said
    assert " of step " in said
    assert "Take a lower learning rate" in said
    kept = steps_kept(home, "nan")
    assert kept
    assert kept[-1] < 60


@pytest.mark.slow
def test_checkpoints_of_another_run_are_not_taken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(home, "other", steps=2)) == 0
    capsys.readouterr()
    code, said = answer(capsys, arguments(home, "other", steps=4, seed=1))
    assert code == 2
    assert "are of a run with seed = 0, and this one has 1; give another folder" in said
    code, said = answer(capsys, arguments(home, "other", "microbatch=4,optimizer=sgd", steps=4))
    assert code == 2
    assert "are of a run with optimizer = 'adam'" in said
    (home / "other" / "2" / "checksums.json").unlink()  # as of earlier versions: there is nothing to compare with
    for one in (home / "other" / "2").rglob("*"):
        if one.is_file():
            one.write_bytes(one.read_bytes()[: one.stat().st_size // 2])
    code, said = answer(capsys, arguments(home, "other", steps=4))
    assert code == 2
    assert "The checkpoint of step 2 in" in said
    assert "delete its folder" in said


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    import jax

    state = {"w": jax.numpy.arange(4096.0), "m": jax.numpy.ones((64, 64))}
    kept = Checkpoints(str(tmp_path), 3, {"seed": 0})
    for step in (1, 2, 3):
        kept.save(step, state)
    kept.finish(3)
    newest = tmp_path / "3"
    assert numpy.array_equal(kept.restore(state)["w"], state["w"])
    tensors = [one for one in newest.rglob("*") if one.is_file() and one.parent.name == "d"]
    for file in (*tensors, newest / "checksums.json"):
        before = file.read_bytes()
        place = len(before) // 2
        file.write_bytes(before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :])
        with pytest.raises(InputError, match=r"of the checkpoint of step 3 in .* is not what was written") as refused:
            kept.restore(state)
        assert "the last good one is of step 2: delete 3 to go on from it." in str(refused.value)
        file.write_bytes(before)
    (newest / "checksums.json").unlink()  # as earlier versions left it
    assert numpy.array_equal(kept.restore(state)["m"], state["m"])
    kept.close()
    assert len(tensors) > 1


HOLD = """
import sys, time
from pathlib import Path
from dragonscale.locks import lock_folder
lock_folder(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_folder_belongs_to_one_run_until_its_process_is_gone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = home / "held"
    kept.mkdir()
    unfinished = kept / "4.orbax-checkpoint-tmp-1"  # what the other run is writing
    unfinished.mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(kept)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            code, said = answer(capsys, arguments(home, "held", steps=2))
        finally:
            other.kill()  # kill -9: nothing is tidied up
    assert code == 2
    assert said.startswith(f"dscale: Another run (process {other.pid} on ")
    assert f"keeps its checkpoints in '{kept}'; wait for it, or give --checkpoints another folder." in said
    assert unfinished.exists()
    opened = Checkpoints(str(kept), 3, {})
    with pytest.raises(InputError, match=f"process {os.getpid()} on"):
        Checkpoints(str(kept), 3, {})
    opened.close()
    Checkpoints(str(kept), 3, {}).close()


def test_the_first_process_of_a_run_locks_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    first = Checkpoints(str(tmp_path), 3, {})
    monkeypatch.setattr(jax, "process_index", lambda *_: 1)
    second = Checkpoints(str(tmp_path), 3, {})
    assert (first.held is None, second.held is None) == (False, True)
    second.close()
    first.close()


@pytest.mark.slow
def test_the_second_of_two_runs_on_one_folder_is_refused(home: Path) -> None:
    happened = reached(home, "twice", 3)
    first = begin(home, arguments(home, "twice", steps=100_000, every=2))
    assert wait(first, happened)
    code, _, said = finish(begin(home, arguments(home, "twice", steps=20, every=2)))
    first.send_signal(signal.SIGTERM)
    ended = finish(first)
    assert code == 2
    assert f"Another run (process {first.pid} on " in said
    assert "Traceback" not in said
    assert ended[0] == 0, ended[2]


def test_a_full_disk_is_noticed_before_anything_is_written(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(arguments(home, "full", steps=4)) == 0
    capsys.readouterr()
    from dragonscale.runtime.train.checkpoints import Checkpoints

    monkeypatch.setattr(Checkpoints, "_free", lambda _: 1000)
    code, said = answer(capsys, arguments(home, "full", steps=8))
    assert code == 3
    assert "GB left and the checkpoint of step 8 needs" in said
    assert "the last whole one is of step 4" in said
    monkeypatch.undo()
    assert main(arguments(home, "full", steps=8)) == 0
    assert steps_kept(home, "full") == [4, 8]


@pytest.mark.slow
def test_a_write_that_fails_leaves_the_last_checkpoint(home: Path) -> None:
    """Files may not grow beyond a few kilobytes: what a disk does that fills up while a checkpoint is written."""
    import resource

    words = arguments(home, "limit", steps=4)
    assert finish(begin(home, words))[0] == 0

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    code, _, said = finish(begin(home, arguments(home, "limit", steps=8), preexec_fn=limit))
    assert code == 3, said
    assert "could not be written to" in said
    assert "the last whole one is of step 4" in said
    assert finish(begin(home, arguments(home, "limit", steps=8)))[0] == 0
    assert steps_kept(home, "limit") == [4, 8]


@pytest.mark.slow
def test_killed_many_times_on_changing_meshes(home: Path) -> None:
    """The curve is that of one device to float tolerance, whatever mesh each piece ran on, and no step is lost beyond
    the last checkpoint."""
    dice = random.Random(0)
    assert finish(begin(home, arguments(home, "calm", steps=40, batch=8, every=5)))[0] == 0
    plans = ("fsdp=2,tensor=2,context=2", "microbatch=4", "data=2,fsdp=4,zero=1", "pipe=2,fsdp=2")
    step, kills = 0, 0
    while step < 40:
        words = arguments(home, "wild", plans[kills % len(plans)], steps=40, batch=8, every=5)
        before = step
        happened = writing(home, "wild") if kills % 2 else reached(home, "wild", before + dice.randint(1, 9))
        process = begin(home, words, devices=8)
        if wait(process, happened):
            time.sleep(dice.random() * 0.1)
            process.kill()
            kills += 1
        finish(process)
        step = max(steps_kept(home, "wild"), default=0)
        assert step >= before
    assert kills >= 5
    for got, wanted in zip(curve(home, "wild"), curve(home, "calm"), strict=True):
        assert got == pytest.approx(wanted, rel=1e-3)
