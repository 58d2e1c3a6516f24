"""The trainer's parts that need no JAX: settings, token files, hosts, metrics."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.installing import install_hint
from dragonscale.models import load_model
from dragonscale.runtime.train.hosts import Host, first_node, found_host
from dragonscale.runtime.train.metrics import Metrics, read_metrics
from dragonscale.runtime.train.planned import lacks_rate, planned
from dragonscale.runtime.train.settings import Order, RunSettings, read_order
from dragonscale.runtime.train.tokens import open_tokens, shuffled
from dragonscale.training.plan.plan_file import parse_plan

PLAN = """
model = "llama3-8b"
slice = "h100:8"
[plan]
fsdp = 4
tensor = 2
microbatch = 2
[run]
data = ["a.bin", "b*.bin"]
steps = 100
batch = 32
seq = 128
"""


def order_of(tmp_path: Path, text: str = PLAN, **changes: Any) -> Order:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return read_order(str(path), changes=changes)


def test_a_plan_file_says_what_is_run(tmp_path: Path) -> None:
    order = order_of(tmp_path, seed=7)
    assert (order.model, order.slice, order.plan.fsdp, order.microbatches) == ("llama3-8b", "h100:8", 4, 4)
    assert order.run == RunSettings(data=("a.bin", "b*.bin"), steps=100, batch=32, seq=128, seed=7, dtype="bf16")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"batch": 12},
            "A batch of 12 sequences does not divide into 4 replicas x microbatches of 2; make it a multiple of 8.",
        ),
        ({"step": 12}, "There is no setting of a run called 'step'; did you mean 'steps'?"),
        ({"steps": 0}, "In [run] steps is 0; write a whole number of at least 1."),
        ({"steps": 1.5}, "In [run] steps is 1.5; write a whole number"),
        ({"steps": float("nan")}, "In [run] steps is nan"),
        ({"learning_rate": -1}, "In [run] learning_rate is -1; write a number from 0 to 1000."),
        ({"learning_rate": True}, "In [run] learning_rate is True"),
        ({"data": 5}, "In [run] data is 5; write a file of tokens, or a list of them."),
        ({"dtype": "fp16"}, "does not train in fp16, only in bf16, fp32, fp8"),
        ({"tokens": "int8"}, "There is no type of tokens 'int8'"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        order_of(tmp_path, **changes)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('model = "llama3-8b"', "", "The run has no model"),
        ("[plan]", "[plans]", "called 'plans'; did you mean 'plan'?"),
        ("steps = 100", "", "The run does not say its steps"),
        (
            "tensor = 2",
            "context = 3",
            "Sequences of 128 tokens do not divide over context=3 and tensor=1; make them a multiple of 3.",
        ),
        ("tensor = 2", 'pipe = 2\nremat = "offload"', "cannot run remat=offload"),
        ("tensor = 2", 'dtype = "fp16"', "take dtype=bf16"),
    ],
)
def test_wrong_plan_files_are_refused(old: str, new: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        order_of(tmp_path, PLAN.replace(old, new))
    assert words in str(refused.value)


@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_epoch_visits_every_window_once(count: int, seed: int, epoch: int) -> None:
    assert sorted(shuffled(numpy.arange(count), count, seed, epoch)) == list(range(count))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(shuffled(numpy.arange(50), 50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    assert int(shuffled(10**11, 10**12, 1, 0)) < 10**12


def test_windows_are_pieces_of_the_files(tmp_path: Path) -> None:
    numpy.arange(0, 100, dtype="<u2").tofile(tmp_path / "a.bin")
    numpy.save(tmp_path / "b.npy", numpy.arange(100, 150))
    numpy.arange(150, 155, dtype="<u2").tofile(tmp_path / "short.bin")
    paths = tuple(str(tmp_path / name) for name in ("a.bin", "short.bin", "b.npy"))
    tokens = open_tokens(paths, "", 10, 200, seed=5)
    assert tokens.windows == 9 + 4
    rows = tokens.rows(numpy.arange(13))
    assert sorted(row[0] for row in rows) == [*range(0, 90, 10), *range(100, 140, 10)]
    assert (numpy.diff(rows, axis=1) == 1).all()
    assert (tokens.rows([3, 20]) == [tokens.rows([3])[0], tokens.rows([20])[0]]).all()
    assert tokens.fingerprint == open_tokens(paths, "", 10, 200, seed=6).fingerprint


def test_wrong_data_is_refused(tmp_path: Path) -> None:
    def refusal(name: str, content: bytes | None = None, vocab: int = 100) -> str:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError) as refused:
            open_tokens((str(path),), "", 8, vocab, 0).rows([0])
        return str(refused.value)

    assert "cannot be read: No such file" in refusal("none.bin")
    assert "No token file has a name like" in refusal("none*.bin")
    assert "has 21 bytes, no whole number of uint16 tokens" in refusal("odd.bin", bytes(21))
    assert "The longest token file has 4 tokens, and a sequence needs 9" in refusal("short.bin", bytes(8))
    assert "The longest token file has 0 tokens" in refusal("empty.bin", b"")
    assert "is no token file" in refusal("text.txt", b"abc")
    assert "is not what its ending says" in refusal("broken.npy", b"\x93NUMPY garbage")
    assert "has the token 65535 at place 0" in refusal("wild.bin", b"\xff" * 40)
    assert "has the token 1431655765 at place" in refusal("wide.bin", b"\x55" * 80, vocab=100_000)
    numpy.save(tmp_path / "floats.npy", numpy.zeros(40))
    assert "holds an array of 1 dims of float64" in refusal("floats.npy")


def test_a_file_that_is_cut_meanwhile_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(1000))
    tokens = open_tokens((str(path),), "", 8, 100, 0)
    path.write_bytes(bytes(10))
    with pytest.raises(InputError, match=r"was cut from 1,000 to 10 bytes"):
        tokens.rows([0])
    path.unlink()
    with pytest.raises(InputError, match=r"is gone"):
        tokens.rows([0])


SLURM = {"SLURM_JOB_ID": "4097", "SLURM_NTASKS": "16", "SLURM_PROCID": "9", "SLURM_STEP_NODELIST": "gpu[003-004]"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, None),
        (SLURM, Host("gpu003:61441", 16, 9, None, "slurm")),
        (
            SLURM | {"SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "16"},
            Host("gpu003:61441", 16, 9, 1, "slurm"),
        ),
        (SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "a,b"}, None),
        (
            {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"} | SLURM,
            Host("a:1", 2, 0, None, "jax"),
        ),
        (
            {
                "JOBSET_NAME": "run",
                "REPLICATED_JOB_NAME": "workers",
                "JOB_COMPLETION_INDEX": "3",
                "NUM_PROCESSES": "8",
                "JOB_INDEX": "1",
                "PROCESSES_PER_JOB": "4",
            },
            Host("run-workers-0-0.run:8476", 8, 7, None, "kubernetes"),
        ),
        (
            {"COORDINATOR_ADDRESS": "job-0", "COORDINATOR_PORT": "1234", "NUM_PROCESSES": "4", "PROCESS_ID": "2"},
            Host("job-0:1234", 4, 2, None, "kubernetes"),
        ),
        (
            {
                "KUBERNETES_SERVICE_HOST": "h",
                "JOB_COMPLETION_INDEX": "1",
                "COORDINATOR_ADDRESS": "j:9",
                "NUM_PROCESSES": "2",
            },
            Host("j:9", 2, 1, None, "kubernetes"),
        ),
        (
            {"TPU_WORKER_HOSTNAMES": "t-0.svc,t-1.svc", "TPU_WORKER_ID": "1"},
            Host("t-0.svc:8476", 2, 1, None, "tpu"),
        ),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, None),
        (
            {
                "MASTER_ADDR": "m",
                "MASTER_PORT": "29500",
                "WORLD_SIZE": "8",
                "RANK": "5",
                "LOCAL_WORLD_SIZE": "4",
                "LOCAL_RANK": "1",
            },
            Host("m:29500", 8, 5, 1, "torchrun"),
        ),
    ],
)
def test_schedulers_are_recognised(environ: dict[str, str], wanted: Host | None) -> None:
    assert found_host(environ) == wanted


def test_environments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match=r"process 16 of 16; they count from 0 to 15"):
        found_host(SLURM | {"SLURM_PROCID": "16"})
    with pytest.raises(InputError, match=r"SLURM_PROCID is 'x', which is not a whole number"):
        found_host(SLURM | {"SLURM_PROCID": "x"})


@given(st.text("ab-[],0123456789", max_size=30))
def test_any_list_of_nodes_is_read(text: str) -> None:
    assert len(first_node(text)) <= len(text)


def test_a_run_is_planned_in_what_it_multiplies_in() -> None:
    """The Tensor Cores of an H200 have no mode for fp32, so nothing is planned and a sentence says so; an MI300X has
    one."""
    model = load_model("qwen3-0.6b")
    run = RunSettings(steps=2, batch=4, seq=1024, data=("text.bin",))
    seconds = {}
    for on in ("h200:1", "mi300x:1"):
        for dtype in ("bf16", "fp32"):
            order = Order("qwen3-0.6b", on, parse_plan("microbatch=4"), replace(run, dtype=dtype))
            found = planned(order, model)
            assert (found is None) == bool(lacks_rate(order)) == ((on, dtype) == ("h200:1", "fp32"))
            seconds[on, dtype] = found.step_s if found else None
    assert seconds["mi300x:1", "fp32"] > 2 * seconds["mi300x:1", "bf16"]
    order = Order("qwen3-0.6b", "h200:1", parse_plan("microbatch=4,dtype=fp32"), replace(run, dtype="fp32"))
    assert planned(order, model) is None
    assert "no known matrix rate for fp32" in lacks_rate(order)


def test_metrics_stay_one_curve(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "metrics.jsonl"
    lines = Metrics(str(path), 0)
    for step in range(1, 8):
        lines.write({"step": step, "loss": 1 / step})
    lines.close()
    path.write_text(path.read_text() + '{"step": 8, "lo')
    again = Metrics(str(path), 5)
    again.write({"step": 6, "loss": 0.5})
    again.close()
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4, 5, 6]
    assert json.loads(path.read_text().splitlines()[-1]) == {"step": 6, "loss": 0.5}
    with pytest.raises(InputError, match=r"Metrics cannot be written to"):
        Metrics(str(path / "below"), 0)


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optax" else found(name))
    assert main(["run", "train", "data=1"]) == 2
    assert capsys.readouterr().err == f"dscale: To run a plan optax must be installed: {install_hint('jax')}\n"
