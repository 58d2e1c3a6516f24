"""Two real processes as one run: the curve of one, checkpoints that both write, a signal to one that both obey."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("orbax.checkpoint")

from dragonscale.errors import InputError
from dragonscale.runtime.train.hosts import Host, check_names, found_host
from dragonscale.runtime.train.metrics import read_metrics
from tests.runtime.tiny import CONFIGS

RUN = "import sys; from dragonscale.faces.cli import main; sys.exit(main(sys.argv[1:]))"
PATIENCE_S = 900


def start(home: Path, kept: str, plan: str, processes: int, **flags: Any) -> list[subprocess.Popen[str]]:
    """So many processes with four virtual devices between them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    settings = {
        "model": home / "model.json",
        "data": home / "text.bin",
        "steps": 40,
        "batch": 8,
        "seq": 32,
        "every": 4,
        "dtype": "fp32",
        "learning-rate": 1e-3,
        "checkpoints": home / kept,
        "log": 0,
    } | flags
    words = ["run", "train", plan, "--json"]
    words += [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    begun = []
    for index in range(processes):
        environ = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={4 // processes} --xla_backend_optimization_level=0",
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": str(processes),
            "JAX_PROCESS_ID": str(index),
        }
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", RUN, *words],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return begun


def finish(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    found = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_S)
        found.append((process.returncode, out, err))
    return found


def curve(home: Path, kept: str) -> list[float]:
    return [line["loss"] for line in read_metrics(home / kept / "metrics.jsonl")]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"JAX_COORDINATOR_ADDRESS": "nobody.invalid:1234"}, "no host by the name 'nobody.invalid'"),
        ({"JAX_COORDINATOR_ADDRESS": "localhost"}, "'localhost', which is no HOST:PORT"),
        ({"JAX_COORDINATOR_ADDRESS": "localhost:99999"}, "which is no HOST:PORT"),
        ({"JAX_COORDINATOR_ADDRESS": "a..b:1"}, "no host by the name 'a..b'"),
        ({"TPU_WORKER_HOSTNAMES": "localhost,nobody.invalid", "TPU_WORKER_ID": "0"}, "by the name 'nobody.invalid'"),
    ],
)
def test_hosts_are_looked_up_by_name_before_anything_starts(environ: dict[str, str], told: str) -> None:
    """JAX would wait five minutes for the first, and for the last without looking at it."""
    if "TPU_WORKER_ID" not in environ:
        environ |= {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    host = found_host(environ)
    assert host is not None
    with pytest.raises(InputError, match=re.escape(told)):
        check_names(host, 0)


def test_a_name_that_is_not_known_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of pods are, which come up one after the other."""
    look, tries = socket.getaddrinfo, []

    def late(name: str, port: int) -> Any:
        tries.append(name)
        return look("nobody.invalid" if len(tries) < 3 else "localhost", port)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    check_names(Host("pod-0:8476", 2, 1, source="kubernetes"), 300)
    assert tries == ["pod-0"] * 3


@pytest.mark.slow
def test_two_processes_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(CONFIGS["llama"] | {"num_hidden_layers": 2}))
    numpy.random.default_rng(0).integers(0, 128, 6000).astype("<u2").tofile(tmp_path / "text.bin")
    plan = "data=2,fsdp=2"
    alone, *_ = finish(start(tmp_path, "one", plan, 1))
    assert alone[0] == 0, alone[2][-2000:]
    # The second process is told to end while both run: both save the same step and leave.
    both = start(tmp_path, "two", plan, 2)
    metrics = tmp_path / "two" / "metrics.jsonl"
    end = time.monotonic() + PATIENCE_S
    while not (metrics.exists() and len(read_metrics(metrics)) >= 2) and time.monotonic() < end:
        assert all(process.poll() is None for process in both), finish(both)
        time.sleep(0.01)
    both[1].send_signal(signal.SIGTERM)
    first, second = finish(both)
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert second[1] == ""
    assert json.loads(first[1])["last_step"] == len(curve(tmp_path, "two"))
    # One process goes on, on another mesh, with what two have saved.
    after, *_ = finish(start(tmp_path, "two", "tensor=2,fsdp=2", 1))
    assert after[0] == 0, after[2][-2000:]
    assert curve(tmp_path, "two") == pytest.approx(curve(tmp_path, "one"), rel=1e-4)
