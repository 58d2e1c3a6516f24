"""Draws the pictures of the README and the docs into `docs/pictures`, from the same answers that the commands give.

`make docs` runs it; `python -m tools.draw_docs train-mesh` draws only those whose names begin so. A picture is small (a
test holds it under 200 kB) and the same on every run, so that a change in one is a change in an answer.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dragonscale.blocks.charts import Chart, line_chart
from dragonscale.blocks.charts.axes import log_axis, zero_axis
from dragonscale.blocks.charts.line_charts import LineSeries
from dragonscale.blocks.charts.theme import SERIES
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.training.advice.inverse import quick
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space
from tools.course_pictures import course_pictures

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
MODEL, SLICE, BATCH, SEQUENCE = "llama3-70b", "h100:512", "4Mi", "8192"


@cache
def _training() -> Any:
    from dragonscale.commands.train.ask_train import TrainQuestion, ask

    return ask(TrainQuestion(MODEL, SLICE, BATCH, SEQUENCE), Listener())


def _train(kind: str) -> Chart:
    return _training().plot(kind)


SCALED = {"llama3-8b": 1, "llama3-70b": 2, "llama3.1-405b": 4}
"""Models, and the chips that share a sequence of `SEQUENCE` tokens under weak scaling."""
STRONG_BATCH = 2048


def scaling_points(model: str, sizes: Sequence[int], share: int = 0) -> list[tuple[float, float]]:
    """Chips and MFU of the recommended plan on H100s under Megatron-Core: with as many chips for each sequence
    (`share`), or with the same batch. Sizes on which nothing fits are left out."""
    found: list[tuple[float, float]] = []
    for chips in sizes:
        batch = chips // share if share else STRONG_BATCH
        job = make_job(load_model(model), parse_slice(f"h100:{chips}"), batch, int(SEQUENCE), "megatron-core")
        best = search(job, quick(Space()), 1).best
        found += [(float(chips), job.model_flops / (one.seconds * job.slice.flops)) for one in best]
    return found


def _scaling() -> Chart:
    sizes = [2**power for power in range(6, 16)]
    series: list[LineSeries] = []
    for number, (model, share) in enumerate(SCALED.items()):
        weak, strong = (tuple(scaling_points(model, sizes, one)) for one in (share, 0))
        series.append(LineSeries(f"{model}, weak", weak, SERIES[number], dots=True))
        series.append(LineSeries(f"{model}, strong", strong, SERIES[number], dashed=True, dots=True))
    x = log_axis("chips", "degree", map(float, sizes))
    y = zero_axis("MFU", "share", [share for one in series for _, share in one.points])
    each = f"weak: 1, 1/2 and 1/4 sequences of {int(SEQUENCE):,} tokens a chip; strong: {STRONG_BATCH:,} sequences"
    return line_chart(series, x, y, "Recommended plans on 64 to 32,768 H100s, Megatron-Core", each)


def _compare() -> Chart:
    from dragonscale.faces.library.compare import compare

    plans = ("tp8 dp8", "fsdp64", "best")
    return compare(*plans, model="llama3-8b", on="h100:64", batch=BATCH, seq=SEQUENCE).plot("time")


@cache
def _serving(model: str, on: str, tpot: str = "") -> tuple[Any, Any]:
    from dragonscale.commands.serve.answer import answer
    from dragonscale.commands.serve.serve_question import ServeQuestion, read_question

    asked = read_question(ServeQuestion(model=model, on=on, prompt="2048", output="512", tpot=tpot))
    return asked, answer(asked)


def _serve(kind: str, model: str, on: str, tpot: str = "") -> Chart:
    from dragonscale.commands.serve.serve_charts import draw

    return draw(_serving(model, on, tpot)[1], kind)


@cache
def _simulation() -> tuple[Any, Any]:
    from dragonscale.commands.questions.simulate import SimulateQuestion
    from dragonscale.commands.simulate.ask_simulate import run_simulation
    from dragonscale.commands.simulate.simulate_question import read_question

    question = SimulateQuestion(
        "llama3-70b",
        on="h100:4",
        replicas=4,
        rate="8/s",
        prompt="2048",
        output="256",
        requests="2000",
        ttft="500ms",
        tpot="40ms",
    )
    return run_simulation(read_question(question), lambda _: None, lambda *_: None)


def _simulate(kind: str) -> Chart:
    from dragonscale.commands.simulate.simulate_charts import draw

    return draw(_simulation()[0], kind)


def _roofline() -> Chart:
    from dragonscale.commands.charts.pictures import draw_roofline
    from dragonscale.commands.roofline_report import roofline_report

    return draw_roofline(roofline_report("bf16[B,8192] @ bf16[8192,28672]", load_chip("v5e")), "roofline")


def _collective() -> Chart:
    from dragonscale.commands.collective import CollectiveQuestion, ask

    return ask(CollectiveQuestion("all_gather", on="v5e:8x16", size="34MB", axis="X"), Listener()).plot()


def _shard(kind: str) -> Chart:
    from dragonscale.commands.charts.pictures import draw_shard
    from dragonscale.commands.shard_report import shard_report
    from dragonscale.physics.sharding.mesh import make_mesh

    mesh = make_mesh({"X": 4, "Y": 8}, load_chip("v5p"), None)
    sizes = {"I": 8192, "J": 8192, "K": 28672}
    return draw_shard(shard_report("A[I_X, J] @ B[J_X, K_Y] -> C[I_X, K_Y]", mesh, "v5p", sizes), kind)


def _chips() -> Chart:
    from dragonscale.commands.chips_charts import draw_chips
    from dragonscale.commands.chips_report import chips_report

    return draw_chips(chips_report(), "roofs")


def _model() -> Chart:
    from dragonscale.commands.models import draw_models, model_report

    return draw_models(model_report(load_model("llama3-70b"), 8192), "parameters")


PICTURES: dict[str, Callable[[], Chart]] = {
    "answer": lambda: _train("answer"),
    "train-time": lambda: _train("time"),
    "train-memory": lambda: _train("memory"),
    "train-mesh": lambda: _train("mesh"),
    "train-roofline": lambda: _train("roofline"),
    "train-scaling": lambda: _train("scaling"),
    "train-weak-strong": _scaling,
    "compare-time": _compare,
    "serve-frontier": lambda: _serve("frontier", "llama3-70b", "h100:8,h200:4,v5e:4x4", "40ms"),
    "serve-decode": lambda: _serve("decode", "deepseek-v3", "h200:16"),
    "serve-memory": lambda: _serve("memory", "deepseek-v3", "h200:16"),
    "simulate-latency": lambda: _simulate("latency"),
    "simulate-occupancy": lambda: _simulate("occupancy"),
    "roofline": _roofline,
    "collective": _collective,
    "shard-bars": lambda: _shard("bars"),
    "shard-mesh": lambda: _shard("mesh"),
    "chips": _chips,
    "model": _model,
    **course_pictures(),
}
DARK = ("answer",)
"""Those that have a dark twin, for pages that show either."""


def drawn(begins: str = "") -> Iterator[Path]:
    """Draw the pictures whose names begin so, and say which files they are."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        if name.startswith(begins):
            chart = make()
            for theme in ("light", "dark") if name in DARK else ("light",):
                path = FOLDER / f"{name}{'-dark' if theme == 'dark' else ''}.svg"
                chart.save(path, theme)
                yield path


if __name__ == "__main__":
    for path in drawn(*sys.argv[1:2]):
        print(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size / 1e3:.0f} kB")
