"""How far expectations have been from measurements, by engine and kind of chip: a table with its sources (`errors.toml`).

>>> expected_error("trtllm-0", "gpu").throughput
0.079
>>> expected_error("torch", "tpu").source
'no run of torch on a TPU was measured'
"""

import functools
import tomllib
from importlib import resources
from typing import Any

from dragonscale.reports.serve.records import ExpectedError


@functools.cache
def _tables() -> dict[str, dict[str, Any]]:
    text = (resources.files("dragonscale.reports.serve") / "errors.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def expected_error(engine: str, chip: str) -> ExpectedError:
    """The median errors of an engine on a kind of chip (`gpu`, `tpu`); None where nothing was measured."""
    found = _tables().get(engine, {}).get(chip, {})
    source = found.get("source", f"no run of {engine} on a {chip.upper()} was measured")
    measures = {name: found.get(name) for name in ("latency", "throughput", "tpot", "ttft")}
    return ExpectedError(**measures, source=source)
