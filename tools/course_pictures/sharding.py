"""Pictures of the chapter on sharding: a mesh with its collectives, two ways of one matmul, a collective against its
size."""

from collections.abc import Callable

import numpy

import dragonscale as ds
from dragonscale.blocks.charts import Bar, Chart, LineSeries, RuleLine, bars, line_chart
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.physics.collectives import BOOK, EXACT, Ring, Rings, collective_time
from dragonscale.physics.hardware import Torus, load_chip, parse_slice
from dragonscale.physics.sharding.mesh import natural_mesh

MATMUL = "In[B, D] @ W[D_X, F] -> Out[B, F]"
SIZES = tuple(10.0**power for power in range(3, 10))


def _mesh() -> Chart:
    sizes = {"B": 8192, "D": 8192, "F": 28672}
    return ds.shard("In[B_X, D] @ W[D_X, F_Y] -> Out[B_X, F_Y]", mesh={"X": 4, "Y": 4}, on="v5p", sizes=sizes).plot(
        "mesh"
    )


def _ways() -> Chart:
    """Both ways of question 4 for few and for many tokens: what each asks of each resource."""
    rows = []
    for tokens in (512, 16384):
        found = ds.shard(MATMUL, mesh={"X": 8}, on="v5p", sizes={"B": tokens, "D": 8192, "F": 32768}, backward=False)
        for way in sorted(found.forward[0].strategies, key=lambda way: way.collectives[0].collective):
            [move] = way.collectives
            name = "gather W" if move.collective == "all_gather" else "add up Out"
            for what, seconds, role in (("compute", way.math_s, "compute"), ("network", way.comms_s, "tensor")):
                assert isinstance(seconds, float)
                rows.append(Bar(f"B = {tokens:,}, {name}: {what}", seconds, role))
    return bars(rows, MATMUL, "eight TPU v5p, D = 8,192, F = 32,768: the longer bar of each pair counts", "s")


def _knee() -> Chart:
    network = load_chip("v5e").network
    assert isinstance(network, Torus)
    ring = Rings((Ring(16),), network.link, network.hop_latency)
    volumes = numpy.geomspace(1e3, 1e9, 61)
    time = collective_time("all_gather", volumes, ring, EXACT)
    series = [
        LineSeries("at best", _points(volumes, time.lower), "compute"),
        LineSeries("bytes over links", _points(volumes, time.bandwidth), "hbm", dashed=True),
        LineSeries("hops", _points(volumes, numpy.full_like(volumes, time.latency)), "overhead", dashed=True),
    ]
    one = collective_time("all_gather", 1.0, ring, EXACT)
    knee = float(one.latency / one.bandwidth)
    x = log_axis("bytes of the array", "bytes", SIZES)
    y = log_axis("time of the AllGather", "s", [value for line in series for _, value in line.points])
    return line_chart(
        series,
        x,
        y,
        "An AllGather over a ring of 16 TPU v5e",
        "1 us a hop, 45 GB/s one way of a link",
        [RuleLine(knee, "bound by bandwidth from here")],
    )


def _points(volumes: numpy.ndarray, seconds: numpy.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((float(volume), float(second)) for volume, second in zip(volumes, seconds, strict=True))


def _lines() -> Chart:
    """The four collectives on a ring and on a line of eight."""
    ring, line = natural_mesh(parse_slice("v5e:16x16")), natural_mesh(parse_slice("v5e:8x8"))
    rows = []
    for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
        for name, mesh, role in (("a ring of 16", ring, "compute"), ("a line of 8", line, "tensor")):
            seconds = float(collective_time(kind, 100e6, mesh.group(("X",)), BOOK).bandwidth)
            rows.append(Bar(f"{kind.replace('_', '-')}, {name}", seconds, role))
    return bars(rows, "100 MB along an axis of TPU v5e", "time of the bytes, to first order", "s")


PICTURES: dict[str, Callable[[], Chart]] = {
    "sharding-mesh": _mesh,
    "sharding-ways": _ways,
    "sharding-knee": _knee,
    "sharding-lines": _lines,
}
