"""The limits of a configuration, solved from the ledger of its own iterations."""

from dragonscale.app.serve.config import deployed
from dragonscale.app.serve.question import ServeAsked
from dragonscale.app.serve.records import LimitRow
from dragonscale.serving.crossovers import ServingLimit, find_limits
from dragonscale.serving.frontier import Config


def solved_limits(asked: ServeAsked, config: Config) -> list[ServingLimit]:
    """Critical batch, degrees, contexts and the largest batch of a configuration, as formulas and numbers."""
    ask = asked.ask
    tokens = min(ask.new, asked.engine_on(config.piece.chip, config.engine).scheduling.max_tokens)
    return find_limits(deployed(asked, config), config.batch, ask.prompt + ask.output // 2, tokens)


def limit_rows(asked: ServeAsked, config: Config) -> list[LimitRow]:
    """The same as rows."""
    return [LimitRow(one.name, one.counts, one.text, one.value) for one in solved_limits(asked, config)]
