"""What a given plan or format is to be held against, in words."""

from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import degrees_text
from dragonscale.physics.units import render
from dragonscale.serving.advice.beside import Beside, beside
from dragonscale.serving.space.frontier import Config


def beside_texts(job: ServeAsked, config: Config) -> list[str]:
    """One chip alone and the checkpoint's own formats at the same batch, each with how the asked one compares."""
    return [_text(job, config, row) for row in beside(job, config)]


def _text(job: ServeAsked, config: Config, row: Beside) -> str:
    state = row.config.state
    output = job.ask.output
    rate = float(state.requests) * output
    times = f"TPOT {render(float(state.tpot), 's')}, {render(float(state.latency), 's')} a request, {rate:,.0f} tok/s"
    asked = degrees_text(config.plan)
    if row.config.chips == config.chips:
        asked = config.plan.compute
        if row.config.plan.weights == config.plan.weights:
            asked = f"a cache in {config.plan.kv}"
    if row.is_same:
        return f"{row.what} gives {times}: {asked} changes nothing for a user"
    if row.speed > 1:
        return f"{row.what} gives {times}: {asked} is {row.speed:.2f}x as fast for a user"
    return f"{row.what} gives {times}: {asked} is slower for a user, {row.speed:.2f}x"
