"""Where a configuration of a job changes its nature, solved from the ledger of its own iterations."""

from collections.abc import Iterator

from dragonscale.serving.advice.bills import deployed
from dragonscale.serving.advice.crossovers import ServingLimit, find_limits
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.space.frontier import Config


def solved_limits(job: ServingJob, config: Config) -> Iterator[ServingLimit]:
    """The critical batch, degrees, contexts and the largest batch, as formulas and numbers, each solved when it is
    taken."""
    deployment = deployed(job, config)
    tokens = min(job.ask.new, deployment.engine.scheduling.max_tokens)
    return find_limits(deployment, config.batch, job.ask.prompt + job.ask.output // 2, tokens)
