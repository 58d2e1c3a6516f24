"""A worker process whose engine runs on a device that computes no model (`fake_device`), slowly enough to be killed at
work."""

import os
import sys
import time
from typing import Any

from dragonscale.errors import InputError
from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, shapes_for
from dragonscale.runtime.server.wire import Tell, WorkerOrder
from dragonscale.runtime.server.worker import main
from tests.runtime.serve.fake_device import FakeRunner, FakeSampler

STEP = 0.01


class SlowRunner(FakeRunner):
    def run(self, batch: StepBatch, last: Any) -> Any:
        time.sleep(STEP)
        return super().run(batch, last)


def build(order: WorkerOrder, tell: Tell) -> tuple[ServingEngine, dict[str, Any]]:
    if order.model == "wrong":
        raise InputError("There is no such model.")
    if os.path.exists(os.environ.get("LOST_DEVICE", "")):
        raise RuntimeError("The device is lost.")
    tell("compiling", 1, 4)
    time.sleep(float(os.environ.get("SLOW_START", "0")))
    limits = EngineLimits(order.pages, order.page, order.sequences, order.tokens, order.length)
    engine = ServingEngine(SlowRunner(limits), FakeSampler(limits), limits, shapes_for(limits), role=order.role)
    facts: dict[str, Any] = {
        "pages": limits.pages,
        "page_bytes": limits.page * 8,
        "page": limits.page,
        "ranks": 1,
        "devices": 1,
    }
    facts |= {"device_kind": "none", "parameters": 0, "load_s": 0.0, "compile_s": 0.0, "programs": 0}
    return engine, facts


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), build))
