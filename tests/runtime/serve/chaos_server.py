"""A server for the chaos test, in a process of its own: the real front over two workers, whose engines check that no
page and no slot is lost after each step.

    python -m tests.runtime.serve.chaos_server MODEL ROLES SEQUENCES QUEUE UNREAD_BYTES PORT RECORD (prints its port)
    python -m tests.runtime.serve.chaos_server FD                              (a worker, started by the front)

MODEL is `tiny`, or `hash` for a device that computes no model but where a wrong page, position or slot gives another
token: the engine around it is the same, and starts in a second.
"""

import asyncio
import json
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragonscale.runtime.server.wire import Tell, WorkerOrder
from dragonscale.runtime.server.worker import main
from tests.runtime.serve.invariants import check_engine

VOCABULARY = 128
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}
LENGTH = 192


def checked(order: WorkerOrder, tell: Tell) -> tuple[Any, dict[str, Any]]:
    """An engine that asserts its invariants after each step: a broken one ends the worker, which the test would see."""
    if order.model == "hash":
        from tests.runtime.serve import fake_device, fake_worker

        fake_worker.STEP, fake_device.salt = 0.002, len_of_prompt
        engine, facts = fake_worker.build(order, tell)
        engine.sampler.kinds = VOCABULARY
    else:
        from dragonscale.runtime.server.building import build_engine

        engine, facts = build_engine(order, tell)
    plain = engine.step

    def step() -> Any:
        emitted = plain()
        check_engine(engine)
        return emitted

    engine.step = step
    return engine, facts


def len_of_prompt(request: Any) -> int:
    """What the hash adds of a request: nothing that the server makes up."""
    return len(request.prompt)


async def serve(model: str, roles: str, sequences: int, queue: int, unread: int, port: int, record: str) -> None:
    from dragonscale.runtime.server.front import ServingFront
    from dragonscale.runtime.server.http import build_app, serve_http
    from dragonscale.runtime.server.routes import HttpSettings
    from dragonscale.runtime.server.text import plain_text
    from dragonscale.runtime.server.traffic_record import TrafficRecord

    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # who does not read is soon noticed
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        order = WorkerOrder(
            model=folder if model == "tiny" else model,
            plan="tensor=1,weights=fp32,kv=fp32,compute=fp32",
            length=LENGTH,
            sequences=sequences,
            tokens=64,
            page=8,
            pages=12 * sequences,
            lazy=True,
            cpu=1,
        )
        orders = [replace(order, role=role) for role in roles.split(",")]
        seen = TrafficRecord(record) if record else None
        front = ServingFront(orders, queue=queue, record=seen, module="tests.runtime.serve.chaos_server")
        await front.start()
        print(listener.getsockname()[1], flush=True)
        said = HttpSettings("tiny", LENGTH, VOCABULARY, unread_bytes=unread, grace_s=5, log=lambda _: None)
        await serve_http(build_app(front, plain_text(VOCABULARY), said), listener)
        await front.close()


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    sys.exit(
        asyncio.run(serve(first, others[0], *map(int, others[1:5]), others[5])) if others else main(int(first), checked)
    )
