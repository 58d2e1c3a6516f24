"""Load `dscale run serve` end to end with random weights, and time what clients see.

    python -m tools.measure_engine_serving OUT [--model llama3-8b] [--on h200:1] [--clients 64] [--prompt 1024]
    [--output 256] [--rounds 5]

Starts the server, then this file again as the clients, in a process of their own: so many connections, each of which
sends its next request when the last one has ended, random tokens of a fixed length, streamed. They begin one after the
other over the time of a request, so that requests are in every phase at any time. The first round of each is not
measured, nor is what comes after the first client is done.

OUT/clients.json has tokens per second, medians and 95th percentiles of TTFT and TPOT as clients saw them;
OUT/server.json what the server says of itself beside the plan; OUT/record.jsonl its record, which `dscale simulate
--trace` and `dscale validate serving` read.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PARTS = (0.5, 0.95)


async def _request(
    host: str, port: int, body: bytes, stamps: list[tuple[float, int]]
) -> tuple[float, float, float, int]:
    """Seconds of sending, of the first event and of the last, and how many events came; each read is
    noted in `stamps`."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    try:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: "
            f"application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        sent = time.perf_counter()
        writer.write(head.encode() + body)
        first = last = 0.0
        events, before = 0, b""
        while data := await reader.read(1 << 16):
            now = time.perf_counter()
            # An event may be cut between two reads: the few bytes that it could begin with are looked at again.
            found = (before + data).count(b"data: {")
            before = data[-6:]
            if not events and b" 200 " not in data[:64] and not found:
                raise RuntimeError(data[:300].decode(errors="replace"))
            if found:
                first, last, events = first or now, now, events + found
                stamps.append((now, found))
        return sent, first, last, events
    finally:
        writer.close()


async def _client(number: int, asked: argparse.Namespace, rows: list[Any], stamps: list[Any], ramp: float) -> None:
    draw = random.Random(number)
    await asyncio.sleep(ramp * number / asked.clients)
    for turn in range(asked.rounds):
        prompt = [draw.randrange(asked.vocabulary) for _ in range(asked.prompt)]
        body = {
            "prompt": prompt,
            "max_tokens": asked.output,
            "min_tokens": asked.output,
            "ignore_eos": True,
            "stream": True,
        }
        body |= {"temperature": asked.temperature, "model": asked.name}
        try:
            rows.append((number, turn, *await _request(asked.host, asked.port, json.dumps(body).encode(), stamps)))
        except (OSError, RuntimeError) as error:
            print(f"client {number}: {error}", file=sys.stderr, flush=True)
            rows.append((number, turn, 0.0, 0.0, 0.0, 0))


def _percentiles(values: list[float]) -> dict[str, float]:
    ranked = sorted(values) or [0.0]
    return {f"p{part * 100:g}": ranked[min(int(part * len(ranked)), len(ranked) - 1)] for part in PARTS}


async def _load(asked: argparse.Namespace) -> dict[str, Any]:
    alone: list[Any] = []
    first = argparse.Namespace(**{**vars(asked), "rounds": 6})
    await _client(-1, first, alone, [], 0.0)  # prompts that nobody else has; what is loaded late is the first one's
    ttft, tpot = (
        sorted(each)[2]
        for each in zip(*((row[3] - row[2], (row[4] - row[3]) / (asked.output - 1)) for row in alone[1:]), strict=True)
    )
    single = ttft + tpot * (asked.output - 1)
    ramp = asked.ramp if asked.ramp is not None else 2 * single
    print(
        f"one alone: TTFT {1e3 * ttft:.1f} ms, {single:.2f} s; ramp {ramp:.1f} s",
        file=sys.stderr,
        flush=True,
    )
    rows: list[Any] = []
    stamps: list[tuple[float, int]] = []
    await asyncio.gather(*(_client(number, asked, rows, stamps, ramp) for number in range(asked.clients)))
    good = [row for row in rows if row[5]]
    begin = max((row[4] for row in good if row[1] == 0), default=0.0)
    ends: dict[int, float] = {}
    for row in good:
        ends[row[0]] = max(ends.get(row[0], 0.0), row[4])
    end = min(ends.values(), default=0.0)
    inside = [row for row in good if row[1] > 0 and row[2] >= begin and row[4] <= end]
    # Some tokens share an event: events stand for the tokens that were asked for.
    each = asked.output * len(good) / max(sum(row[5] for row in good), 1)
    tokens = each * sum(count for now, count in stamps if begin <= now <= end)
    return {
        "clients": asked.clients,
        "prompt": asked.prompt,
        "output": asked.output,
        "requests": len(rows),
        "failed": len(rows) - len(good),
        "measured_requests": len(inside),
        "window_s": end - begin,
        "tokens_per_s": tokens / (end - begin) if end > begin else None,
        "ttft_s": _percentiles([row[3] - row[2] for row in inside]),
        "tpot_s": _percentiles([(row[4] - row[3]) / (asked.output - 1) for row in inside]),
        "alone": {"ttft_s": ttft, "tpot_s": tpot},
        "tokens_per_event": each,
    }


def _start(asked: argparse.Namespace, out: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The server and its address, once it is ready."""
    length = asked.prompt + asked.output
    command = [
        sys.executable,
        "-m",
        "dragonscale",
        "run",
        "serve",
        asked.plan,
        "--model",
        asked.model,
        "--random",
        "--port",
        "0",
        "--json",
    ]
    command += [
        "--name",
        asked.name,
        "--length",
        str(length),
        "--max-seqs",
        str(asked.sequences or asked.clients),
        "--record",
        str(out / "record.jsonl"),
    ]
    command += ["--log-every", "5s", *(["--on", asked.on] if asked.on else []), *asked.more.split()]
    log, answer = (out / "server.log").open("wb"), (out / "server.json").open("wb")
    server = subprocess.Popen(command, stdout=answer, stderr=log)
    until = time.monotonic() + asked.start
    while time.monotonic() < until and server.poll() is None:
        if found := re.search(r"at (http://\S+)/v1", (out / "server.log").read_text(errors="replace")):
            return server, found[1]
        time.sleep(0.2)
    server.kill()
    raise SystemExit(f"The server did not start: {(out / 'server.log').read_text(errors='replace')[-3000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    for name, kind, default in (
        ("model", str, "llama3-8b"),
        ("plan", str, "tp1"),
        ("on", str, ""),
        ("clients", int, 64),
        ("prompt", int, 1024),
        ("output", int, 256),
        ("rounds", int, 5),
        ("sequences", int, 0),
        ("temperature", float, 1.0),
        ("ramp", float, None),
        ("start", float, 400.0),
        ("vocabulary", int, 32000),
        ("name", str, "measured"),
        ("more", str, ""),
        ("host", str, ""),
        ("port", int, 0),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default)
    asked = parser.parse_args()
    if asked.port:  # the clients
        result = asyncio.run(_load(asked))
        (asked.out / "clients.json").write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result, indent=1), flush=True)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    server, url = _start(asked, asked.out)
    print(f"ready after {time.monotonic() - begun:.1f} s at {url}", flush=True)
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--host", host, "--port", port], check=True)
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        server.kill()
    print((asked.out / "server.json").read_text(), flush=True)


if __name__ == "__main__":
    main()
