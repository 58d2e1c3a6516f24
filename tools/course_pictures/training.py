"""Pictures of the chapter on training: compute against communication as the batch grows, and what a
chip has to hold."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, RuleLine, line_chart
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.course.closed_forms import training_limits as limits
from dragonscale.course.closed_forms.rules_of_thumb import state_bytes
from dragonscale.physics.hardware import load_chip

CHIPS, WIDTH, D_MODEL = 4096, 32768, 8192
TOKENS = tuple(10 * 2**power for power in range(10))
WAYS = tuple(2**power for power in range(13))


def _ratios() -> Chart:
    chip = load_chip("v5p")
    series = [
        LineSeries("FSDP, three axes", tuple((float(t), t / limits.fsdp_tokens(chip)) for t in TOKENS)),
        LineSeries("FSDP and TP, best split", tuple((float(t), _mixed(t)) for t in TOKENS)),
        LineSeries(
            "TP, three axes",
            tuple((float(t), limits.split_ratio(chip, t * CHIPS, WIDTH, 1, CHIPS, tp_axes=3)) for t in TOKENS),
        ),
    ]
    x = log_axis("tokens per chip", "count", TOKENS)
    y = log_axis("compute over communication", "number", [value for one in series for _, value in one.points])
    return line_chart(
        series,
        x,
        y,
        "What each parallelism does with a larger batch",
        f"a layer with F = {WIDTH:,} on {CHIPS:,} TPU v5p; above 1 communication can hide",
        [RuleLine(1.0, "bound by compute above", across=True)],
    )


def _mixed(tokens: float) -> float:
    return limits.mixed_ratio(load_chip("v5p"), tokens * CHIPS, WIDTH, CHIPS)


def _times() -> Chart:
    chip = load_chip("v5p")
    batches = tuple(2**power for power in range(17, 25))

    def line(name: str, seconds: Callable[[int], float], role: str = "") -> LineSeries:
        return LineSeries(name, tuple((float(batch), float(seconds(batch))) for batch in batches), role)

    fsdp, tensor = 512, 8
    series = [
        line("compute", lambda b: limits.layer_seconds(chip, b, D_MODEL, WIDTH, CHIPS), "compute"),
        line("FSDP=4096", lambda _: limits.weight_seconds(chip, D_MODEL, WIDTH, axes=3)),
        line("FSDP=512 beside TP=8", lambda _: limits.weight_seconds(chip, D_MODEL, WIDTH, tensor, axes=2)),
        line("TP=8 beside FSDP=512", lambda b: limits.activation_seconds(chip, b, D_MODEL, fsdp)),
        line("TP=4096", lambda b: limits.activation_seconds(chip, b, D_MODEL, axes=3)),
    ]
    x = log_axis("tokens of the batch", "count", batches)
    y = log_axis("time of a layer, forward", "s", [value for one in series for _, value in one.points])
    rules = [
        RuleLine(limits.split_tokens(chip, WIDTH, CHIPS, fsdp_axes=3), "FSDP alone hides"),
        RuleLine(limits.split_tokens(chip, WIDTH, fsdp, tensor), "512 x 8 hides"),
    ]
    return line_chart(
        series,
        x,
        y,
        "A layer on 4,096 TPU v5p: compute and what it sends",
        f"D = {D_MODEL:,}, F = {WIDTH:,}, bf16, forward pass",
        rules,
    )


def _state() -> Chart:
    chip = load_chip("v5p")
    series = [
        LineSeries(f"{billions}B", tuple((float(ways), state_bytes(billions * 1e9) / ways) for ways in WAYS))
        for billions in (8, 70, 405)
    ]
    x = log_axis("chips that share the state (FSDP)", "count", WAYS)
    y = log_axis("bytes on each chip", "bytes", [value for one in series for _, value in one.points])
    return line_chart(
        series,
        x,
        y,
        "Weights and Adam's moments on each chip",
        "10 bytes a parameter; data parallelism without sharding is the left edge",
        [RuleLine(chip.hbm.capacity, "HBM of a TPU v5p", across=True)],
    )


PICTURES: dict[str, Callable[[], Chart]] = {
    "training-ratios": _ratios,
    "training-times": _times,
    "training-state": _state,
}
