"""Pictures of the chapter on profiling: the groups of a recorded step under the roofline, and where its time went."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dragonscale as ds
from dragonscale.blocks.charts import Bar, Chart, Roof, RoofPoint, bars, roofline_chart
from dragonscale.physics.hardware import load_chip

PROFILE = Path(__file__).parents[2] / "examples" / "profiles" / "h200_train.xplane.pb.gz"
SHOWN = 12


@cache
def _found() -> Any:
    return ds.profile(str(PROFILE))


def _roof() -> Chart:
    chip = load_chip("h200")
    computes = ("matmul", "attention", "elementwise", "reduction")  # a copy has bytes and no FLOPs of its own
    known = [one for one in _found().groups if one.kind in computes and one.flops and one.hbm_bytes]
    points = [
        RoofPoint(f"{one.section} {one.phase} {one.kind}", one.flops / one.hbm_bytes, one.flops_per_s)
        for one in known[:SHOWN]
    ]
    roof = Roof("HBM", chip.peak("bf16"), chip.bandwidth("hbm"))
    return roofline_chart(
        [roof], points, "A training step on an H200 under its roof", "the largest groups of a recorded profile"
    )


def _time() -> Chart:
    roles = {"matmul": "compute", "attention": "tensor"}
    rows = [
        Bar(f"{one.section} {one.phase} {one.kind}", one.seconds, roles.get(one.kind, "hbm"))
        for one in _found().groups[:10]
    ]
    step = _found().step_s * 1e3
    return bars(rows, "Where the step went", f"the ten largest groups of {step:.1f} ms on an H200", "s")


PICTURES: dict[str, Callable[[], Chart]] = {"profiling-roof": _roof, "profiling-time": _time}
