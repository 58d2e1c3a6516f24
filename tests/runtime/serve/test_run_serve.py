"""`dscale run serve`: what is refused before anything is loaded, what a record is read as, and a server of a tiny model
from start to end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragonscale.commands.questions.run import RunServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.questions.validate import ServingScoreQuestion
from dragonscale.commands.run.run_serve import ServedSoFar
from dragonscale.commands.run.serve_order import read_order
from dragonscale.commands.run.serve_planned import planned_page_bytes, planned_serving, uneven_heads
from dragonscale.commands.simulate.ask_simulate import ask as ask_simulate
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.commands.validate.ask_validate import ask_serving
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.models.huggingface import load_config
from dragonscale.runtime.server.handover import HandoverRoom, read_arrays, write_arrays
from dragonscale.runtime.server.traffic_record import TrafficRecord
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.engine.plan_file import SavedPlan, SavedPrefill, SavedTraffic, save_serving_plan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from tests.runtime.tiny import CONFIGS

GIVEN: dict[str, Any] = {"plan": "tp1", "model": "llama3-8b", "random": True}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"plan": "llama3-8b", "model": "", "random": False}, "Say where the weights of 'llama3-8b' are"),
        ({"plan": "nonsense words"}, "is no plan"),
        ({"plan": "pp2"}, "pipeline stages"),
        ({"plan": "tp2 ep2"}, "has none"),
        (
            {"plan": "ep2", "model": "mixtral-8x7b"},
            "data x tensor = 1 chips, which expert=2 does not split evenly; write tp2,ep2",
        ),
        ({"plan": "tp4,dp3,ep2", "model": "mixtral-8x7b"}, "does not split evenly"),
        ({"plan": "tp3,ep3", "model": "mixtral-8x7b"}, "8 experts of"),
        ({"prefill_plan": "pp2", "prefill_replicas": 1}, "pipeline stages"),
        ({"plan": "tp1,weights=fp8"}, "weights in fp8; bf16, fp32, int8"),
        ({"plan": "tp4", "cpu": 2}, "give --cpu 4"),
        ({"load_weights": "/nowhere", "random": False}, "no .safetensors file"),
        ({"tokenizer": "/nowhere"}, "no tokenizer.json"),
        ({"length": "20k"}, "up to 8,192 tokens"),
        ({"router": "nearest"}, "no router 'nearest'"),
        ({"pages": 3, "length": "64"}, "a sequence of 64 tokens (--length) takes 5"),
        ({"draft": "gpt2", "cpu": 1}, "a draft has the same"),
        ({"draft_weights": "folder"}, "name it with --draft"),
        ({"drafts": 0}, "draft 1 to 16"),
        ({"replicas": 0}, "0 replicas"),
        ({"prefill_plan": "tp2"}, "say how many with --prefill-replicas"),
        ({"max_seqs": 0}, "--max-seqs is 0"),
        ({"draft": "ngram", "drafts": 40}, "draft 1 to 16"),
        ({"max_seqs": 64, "token_budget": 32}, "every sequence that decodes needs a token"),
        ({"port": 70000}, "from 0 to 65535"),
        ({"replicas": 0, "prefill_replicas": 5000}, "cannot be started on one machine"),
        ({"plan": "tp16", "prefill_replicas": 1, "prefill_plan": "tp8"}, "8 KV heads of a layer"),
        ({"draft": "llama3-8b", "prefill_replicas": 1, "cpu": 1}, "take --draft ngram"),
        ({"lora_modules": "sql"}, "--lora-modules is 'sql'; write NAME=FOLDER"),
        ({"lora_modules": "sql=/nowhere"}, "no adapter_config.json in '/nowhere'"),
        ({"lora_modules": "llama3-8b=/nowhere"}, "Two models would be called 'llama3-8b'"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        read_order(RunServeQuestion(**{**GIVEN, **given}))


def test_a_saved_plan_says_everything_and_its_pages_are_the_planners(tmp_path: Path) -> None:
    saved = SavedPlan(
        parse_serving_plan("tensor=2,data=2,kv=int8"),
        "llama3-8b",
        "h200:4",
        "dragonscale",
        32,
        replicas=2,
        traffic=SavedTraffic(prompt=512, output=64),
        prefill=SavedPrefill(slice="h200:1", plan="tensor=1", replicas=3),
    )
    save_serving_plan(saved, str(tmp_path / "plan.toml"))
    order = read_order(RunServeQuestion(str(tmp_path / "plan.toml"), random=True, cpu=4, dtype="fp32"))
    roles = [(one.role, one.plan, one.sequences) for one in order.workers]
    decode, prefill = "tensor=2,data=2,weights=fp32,kv=int8,compute=fp32", "weights=fp32,kv=int8,compute=fp32"
    assert roles == [("prefill", prefill, 16)] * 3 + [("decode", decode, 16)] * 2
    assert planned_page_bytes(order, 16) == 16 * 32 * (8 / 2) * (128 + 2) * 2  # with a scale for each vector
    order = read_order(RunServeQuestion(**GIVEN, on="h200:1"))
    planned = planned_serving(order, "cpu")
    assert planned is not None
    assert (planned.page_bytes, planned.batch) == (16 * 131072, 64)
    assert planned.ttft_s is not None
    assert 0.01 < planned.ttft_s < 1
    assert planned_serving(read_order(RunServeQuestion(**GIVEN)), "cpu") is None


def test_one_plan_has_one_room_for_its_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.toml")
    plan = parse_serving_plan("tensor=2")
    save_serving_plan(SavedPlan(plan, "llama3-8b", "h200:2", "dragonscale", 64), path)
    order = read_order(RunServeQuestion(path, random=True))
    planned, simulated = planned_serving(order, "cpu"), read_question(SimulateQuestion(path)).job.fleet.pool
    searched = capacity(deploy("llama3-8b", "h200:2", plan, "dragonscale"))  # as `dscale serve` has it
    assert planned is not None
    assert planned.tokens == 16 * (simulated.kv_tokens // 16) == 16 * (searched.tokens // 16)
    assert uneven_heads(order) == []
    split = read_order(RunServeQuestion(**{**GIVEN, "plan": "tp3"}))
    assert "has 32 heads, which tensor=3 does not divide" in uneven_heads(split)[0]


def test_a_record_is_a_trace_and_a_load_test(tmp_path: Path) -> None:
    path = tmp_path / "served.jsonl"
    facts = {"model": "llama3-8b", "engine": "dragonscale", "plan": "tensor=1", "slice": "h200:1", "block_tokens": 16}
    record = TrafficRecord(str(path), **facts, max_seqs=8, device="NVIDIA H200", kv_tokens=4080)
    flights = []
    for number in range(20):
        request = SimpleNamespace(id=str(number), prompt=[*range(64), *[number] * 100], adapter=0)
        came = 100 + number / 10
        times = {"arrived": came, "first_s": came + 0.05, "last_s": came + 0.65, "tokens": 61, "cached": 0}
        flights.append(SimpleNamespace(request=request, **times))
        record.came(flights[-1])
    record.ended(flights[3], "cancelled")
    for number in (5, 1, *(set(range(20)) - {5, 1, 3})):  # they end in another order than they came
        record.ended(flights[number], "length")
        assert len(record.open) == 19 - record.requests  # nobody's line waits for another
    record.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    assert (len(rows), record.failed, rows[0]["tpot_s"]) == (19, 1, pytest.approx(0.01))
    assert rows[0]["hash_ids"][:4] == rows[1]["hash_ids"][:4]
    assert rows[0]["hash_ids"][4] != rows[1]["hash_ids"][4]
    replayed = ask_simulate(
        SimulateQuestion("llama3-8b", on="h200:1", engine="dragonscale", trace=str(path)), Listener()
    )
    assert (replayed.requests.finished, replayed.fleet[0].kv_tokens) == (
        19,
        4080,
    )  # what the server had, not what the plan has
    scored = ask_serving(ServingScoreQuestion(str(path), plan="tp1"), Listener())
    measured = {row.name: row.measured for row in scored.measures}
    assert measured["median TTFT"] == pytest.approx(0.05)
    assert measured["median TPOT"] == pytest.approx(0.01)
    text = path.read_text()
    for device, told in (("cpu", "on 'cpu' and the plan is of"), ("NVIDIA H100 80GB HBM3", "--on h100:1")):
        path.write_text(text.replace("NVIDIA H200", device))
        with pytest.raises(InputError, match=told):
            ask_serving(ServingScoreQuestion(str(path), plan="tp1"), Listener())


def test_a_record_that_cannot_be_written_ends_and_the_server_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("There is no /dev/full.")
    record = TrafficRecord("/dev/full")
    for number in range(200):
        request = SimpleNamespace(id=str(number), prompt=[1] * 9, adapter=0)
        times = {"arrived": 100.0, "first_s": 100.1, "last_s": 101.0, "tokens": 61, "cached": 0}
        flight: Any = SimpleNamespace(request=request, **times)
        record.came(flight)
        record.ended(flight, "length")
    record.close()
    assert record.requests == 200
    assert capsys.readouterr().err.count("The record ends here") == 1


@pytest.mark.parametrize(
    ("platform", "variable", "memory", "room"),
    [("gpu", "0.5", 0.4, 80e9), ("gpu", "0.5", 0.9, 100e9), ("tpu", "0.5", 0.9, 90e9)],
)
def test_pages_are_counted_in_the_memory_there_is(
    platform: str, variable: str, memory: float, room: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA's pool of a GPU is the part of its memory that the variable says; a TPU's is all of it."""
    from dragonscale.runtime.server.building import RESERVE, _pages_that_fit
    from dragonscale.runtime.server.wire import WorkerOrder

    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", variable)
    stats = {"bytes_limit": 100e9, "bytes_in_use": 0}
    device = SimpleNamespace(platform=platform, device_kind="a chip", memory_stats=lambda: stats)
    pages = _pages_that_fit(device, WorkerOrder(model="llama3-8b", memory=memory), 1 << 20, 0)
    assert pages == int((room - RESERVE) // (1 << 20))


def test_pages_pass_through_files_that_are_bounded_and_freed() -> None:
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("ml_dtypes")
    room = HandoverRoom(limit=100)
    try:
        assert room.take("a", 60)
        assert not room.take("b", 60)
        arrays = [numpy.arange(6, dtype="bfloat16").reshape(2, 3), numpy.ones((1, 4), numpy.int8)]
        write_arrays(room.path("a"), arrays)
        for found, wanted in zip(read_arrays(room.path("a")), arrays, strict=True):
            assert found.dtype == wanted.dtype
            assert (found == wanted).all()
        write_arrays(room.path("late"), arrays)
        room.sweep()
        assert os.listdir(room.folder) == ["a"]
        room.free("a")
        assert room.take("b", 60)
    finally:
        room.close()
    assert not Path(room.folder).exists()


@pytest.mark.parametrize(
    "plan", ["tensor=1", "tensor=4", "tensor=8", "tensor=3", "tensor=2,data=2", "tensor=2,kv=int8"]
)
def test_pages_are_as_large_as_the_planner_counts_them(plan: str, eight: list[Any]) -> None:
    from dragonscale.runtime.numerics import read_numerics
    from dragonscale.runtime.serve.runner import ModelRunner
    from dragonscale.runtime.serve.steps import EngineLimits

    split = parse_serving_plan(plan)
    for name in ("llama", "gemma2", "deepseek-v3", "qwen3-moe"):
        model, numerics = load_config(CONFIGS[name]), read_numerics(CONFIGS[name])
        limits = EngineLimits(8, ranks=split.data)
        runner = ModelRunner(model.program(), numerics, split, eight[: split.chips], None, limits)
        deployment = deploy(model, f"h100:{split.chips}", split, "dragonscale")
        planned = capacity(deployment).per_token * limits.page * split.data
        assert runner.page_bytes == planned, name


class RunningServer:
    """A `dscale run serve` of a tiny model with random weights, on the CPU."""

    def __init__(self, folder: Path, *flags: str, kind: str = "llama") -> None:
        (folder / "tiny").mkdir()
        config = folder / "tiny" / "config.json"
        config.write_text(json.dumps({**CONFIGS[kind], "num_hidden_layers": 2}))
        command = [
            sys.executable,
            "-m",
            "dragonscale",
            "run",
            "serve",
            "tp1",
            "--model",
            str(config),
            "--random",
            "--json",
        ]
        command += [
            "--length",
            "64",
            "--max-seqs",
            "2",
            "--token-budget",
            "32",
            "--pages",
            "64",
            "--lazy",
            "--cpu",
            "1",
            "--port",
            "0",
            *flags,
        ]
        self.log = folder / "log"
        with self.log.open("wb") as log, (folder / "answer").open("wb") as answer:
            self.process = subprocess.Popen(command, stdout=answer, stderr=log)
        self.answer, self.url, end = folder / "answer", "", time.monotonic() + 400
        while not self.url and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.1)
            found = re.search(r"at (http://\S+)/v1", self.log.read_text())
            self.url = found[1] if found else ""
        assert self.url, self.log.read_text()

    def get(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())

    def complete(self, prompt: list[int], count: int = 12, **more: Any) -> str:
        body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, **more}
        return self.get("/v1/completions", body)["choices"][0]["text"]

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
        return json.loads(self.answer.read_text())


SLOW = """
import sys
from dragonscale.faces.cli import main
from dragonscale.runtime.server import front

class Fake(front.ServingFront):
    def __init__(self, *given, **more):
        super().__init__(*given, **more, module="tests.runtime.serve.fake_worker")

front.ServingFront = Fake
sys.exit(main(sys.argv[1:]))
"""


def slow_server(folder: Path, seconds: float, *flags: str, pipe: int = 0) -> tuple[subprocess.Popen[str], str]:
    """A server whose worker takes so long to start, and its address. Its stderr is read so far, and may be a pipe of so
    few bytes."""
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    words = ["run", "serve", "tp1", "--model", str(folder), "--random", "--cpu", "1", "--port", "0", "--length", "64"]
    environ = os.environ | {"SLOW_START": str(seconds)}
    root = Path(__file__).parents[3]
    made = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words, "--max-seqs", "4", *flags],
        **{"env": environ, "cwd": root, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
        pipesize=pipe or -1,
    )
    assert made.stderr is not None
    for line in made.stderr:
        if found := re.search(r"Listening on (http://\S+);", line):
            return made, found[1]
    raise AssertionError("it does not listen")


def asked(url: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_server_says_how_far_it_is_before_it_is_ready(tmp_path: Path) -> None:
    server, url = slow_server(tmp_path, 4)
    try:
        end, said, told = time.monotonic() + 60, [], (0, {})
        while (last := asked(f"{url}/ready"))[0] != 200 and time.monotonic() < end:
            if not said or last != said[-1]:
                said.append(last)
                assert asked(f"{url}/health")[0] == 200
                told = asked(f"{url}/v1/completions", {"prompt": [1], "max_tokens": 2})
            time.sleep(0.05)
        assert said[-1] == (503, {"status": "starting", "reason": "worker 0 is compiling (1 of 4)"})
        assert told[0] == 503
        assert "worker 0 is" in told[1]["error"]["message"]
        assert asked(f"{url}/v1/completions", {"prompt": [1], "max_tokens": 2})[0] == 200
        assert asked(f"{url}/v1/models", host="evil.example")[0] == 400
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
def test_the_endpoints_tell_of_a_worker_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was streamed ends with an error, what is asked meanwhile gets 503; a worker that does not come back is told
    by `/health`, and one that does is asked again."""
    lost, asks = tmp_path / "lost", {"prompt": [1], "max_tokens": 60, "stream": True}
    monkeypatch.setenv("LOST_DEVICE", str(lost))
    server, url = slow_server(tmp_path, 0)

    def told(path: str, status: int) -> str:
        end = time.monotonic() + 100
        while (found := asked(f"{url}{path}"))[0] != status and time.monotonic() < end:
            time.sleep(0.25)  # nobody reads the server's log here, which has a line for each of these
        assert found[0] == status, found
        return found[1].get("reason", "")

    try:
        told("/ready", 200)
        body = urllib.request.Request(f"{url}/v1/completions", json.dumps(asks).encode())
        body.add_header("content-type", "application/json")
        with urllib.request.urlopen(body, timeout=60) as stream:
            assert b'"text"' in stream.readline()
            lost.touch()
            child = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=True)
            os.kill(int(child.stdout.split()[0]), signal.SIGKILL)
            rest = stream.read().decode()
        assert "The worker that had the request died." in rest
        assert rest.endswith("data: [DONE]\n\n")
        assert "worker 0 died and is started again" in told("/ready", 503)
        assert asked(f"{url}/health")[0] == 200
        refused = asked(f"{url}/v1/completions", {"prompt": [1], "max_tokens": 2})
        assert (refused[0], "worker 0" in refused[1]["error"]["message"]) == (503, True)
        assert "times in a row: The device is lost" in told("/health", 503)
        lost.unlink()
        told("/ready", 200)
        assert asked(f"{url}/health")[0] == 200
        assert asked(f"{url}/v1/completions", {"prompt": [1], "max_tokens": 2})[0] == 200
    finally:
        server.kill()
        server.communicate()


def test_a_signal_ends_a_server_that_starts(tmp_path: Path) -> None:
    server, url = slow_server(tmp_path, 60)
    try:
        assert asked(f"{url}/ready")[0] == 503
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=30)
        assert "Traceback" not in said
        assert server.returncode != 0
    finally:
        server.kill()


def served(record: TrafficRecord, *spans: tuple[float, float]) -> None:
    """Requests of 3,000 tokens and 40, from when they came to their last token, told as they happen."""
    flights = []
    for number, (came, last) in enumerate(spans):
        request = SimpleNamespace(id=str(number), prompt=[1] * 3000)
        times = {"arrived": came, "first_s": came + 0.5, "last_s": last, "tokens": 40, "cached": 0}
        flight: Any = SimpleNamespace(request=request, **times)
        flights += [(came, 1, record.came, (flight,)), (last, 0, record.ended, (flight, "length"))]
    for _, _, tell, given in sorted(flights, key=lambda each: each[:2]):
        tell(*given)


def test_the_plan_beside_a_run_is_of_the_load_that_requests_saw() -> None:
    """Not of the mean over a run that begins with one client, rests and ends with one."""
    order = read_order(RunServeQuestion(**GIVEN, on="h200:1"))
    record = TrafficRecord()
    assert record.typical(1) is None
    served(record, (100, 104), *[(110, 118)] * 8, (118, 120))
    load = record.typical(1)
    assert load is not None
    assert load[:3] == (3000, 40, 7)  # 64 of 70 seconds of a request were spent among eight
    assert load.mean == pytest.approx(70 / 20)
    half = record.typical(2)
    assert half is not None
    assert (half.seen, half.mean) == (4, pytest.approx(70 / 40))
    front, facts = SimpleNamespace(record=record), SimpleNamespace(device_kind="cpu")
    expected: Any = planned_serving(order, "cpu")
    found: Any = ServedSoFar(order, front, facts, expected, 0.0).plan_anew()  # pyright: ignore[reportArgumentType]
    steady: Any = planned_serving(order, "cpu", load._replace(mean=7.0))
    assert (found.prompt, found.output, found.batch) == (3000, 40, 7)
    assert found.tpot_s != expected.tpot_s
    assert (found.tpot_s, found.ttft_s) == (steady.tpot_s, steady.ttft_s)
    assert found.tokens_per_s == pytest.approx(steady.tokens_per_s / 2)  # as many tokens as came in all that time
    # Little's law: as long as each of those planned takes, and as many as there were
    assert found.tokens_per_s == pytest.approx(3.5 * 40 / (found.ttft_s + 39 * found.tpot_s))


PROMPTS = [list(range(1, 2 + 5 * at)) for at in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "deepseek-v3"])
def test_two_processes_that_hand_pages_over_say_what_one_says(tmp_path: Path, kind: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    servers = [
        RunningServer(tmp_path / "one", "--record", str(tmp_path / "record.jsonl"), kind=kind),
        RunningServer(tmp_path / "two", "--prefill-replicas", "1", kind=kind),
    ]
    one, two = ([server.complete(prompt) for prompt in PROMPTS] for server in servers)
    assert one == two
    assert not list(Path("/dev/shm").glob(f"dragonscale-{servers[1].process.pid}-pages-*/*"))
    alone = servers[0].stop()
    assert (alone["requests"], alone["failed"]) == (5, 0)
    assert alone["page_bytes"] == alone["planned_page_bytes"]
    servers[1].process.kill()  # without a word: its workers find out, and clean up
    folders, end = f"dragonscale-{servers[1].process.pid}-pages-*", time.monotonic() + 30
    while list(Path("/dev/shm").glob(folders)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not list(Path("/dev/shm").glob(folders))
    servers[1].process.wait()
    lines = (tmp_path / "record.jsonl").read_text().splitlines()
    assert len(lines) == 5
    assert json.loads(lines[0])["device"] == "cpu"


@pytest.mark.slow
def test_a_worker_that_is_killed_comes_back_behind_the_server(tmp_path: Path) -> None:
    server = RunningServer(tmp_path)
    before = server.complete(PROMPTS[2])
    child = subprocess.run(
        ["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(child[0]), signal.SIGKILL)
    end = time.monotonic() + 300
    while time.monotonic() < end:
        try:
            assert server.complete(PROMPTS[2]) == before
            break
        except urllib.error.HTTPError:  # while nobody is there
            time.sleep(0.5)
    assert server.stop()["restarts"] == 1
