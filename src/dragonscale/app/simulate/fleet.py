"""The replicas of `dscale simulate`: drafts, prefixes on the host, and what comes, goes and dies."""

import math
import re
from dataclasses import replace

from dragonscale import simulation as sim
from dragonscale.app.questions.simulate import SimulateQuestion
from dragonscale.app.simulate.traffic import read_parts
from dragonscale.errors import InputError, shorten
from dragonscale.models import load_model
from dragonscale.physics.units import parse, parse_count
from dragonscale.serving.deployment import Deployment, deploy
from dragonscale.serving.speculation import head_part, read_acceptance
from dragonscale.simulation.deployed import pool_for


def _drafts(question: SimulateQuestion) -> tuple[int, tuple[float, ...]]:
    """Tokens to draft, and how often each is right; as many as chances are given, where the number is not said."""
    if not question.accept:
        if question.drafts or question.draft:
            raise InputError("--drafts and --draft need --accept, the probability that a draft is right (0.7, say).")
        return 0, (0.0,)
    chances = read_acceptance(question.accept)
    if not question.drafts and len(chances) == 1:
        raise InputError("--accept with one probability needs --drafts, the tokens to draft at a time (3, say).")
    return question.drafts or len(chances), chances


def read_pool(question: SimulateQuestion, deployment: Deployment, longest: int) -> sim.Pool:
    drafter = None
    if question.draft:
        drafter = deploy(load_model(question.draft), deployment.piece, deployment.plan, deployment.engine)
    drafts, chances = _drafts(question)
    rule = read_autoscale(question.autoscale) if question.autoscale else None
    replicas = 1 if question.replicas is None else question.replicas
    pool = pool_for(
        deployment,
        longest,
        replicas if rule is None else min(max(replicas, rule.least), rule.most),
        draft=drafts,
        acceptance=chances,
        draft_part=0.0 if drafter is not None or not drafts else head_part(deployment.model),
        drafter=drafter,
        router=question.router,
        share_prefixes=bool(question.prefixes or question.trace),
        autoscale=rule,
    )
    host = parse(question.host_cache, "bytes", "--host-cache") if question.host_cache else 0.0
    if not host:
        return pool
    each = pool.times.per_token  # pyright: ignore[reportAttributeAccessIssue]
    chips = deployment.plan.tensor * deployment.plan.pipe
    # Each chip loads its own share of a token over its own link.
    return replace(pool, host_tokens=int(host / (each * chips)), host_tokens_per_s=deployment.chip.host_link / each)


_FAILURE = re.compile(r"(?P<replica>\d{1,6})@(?P<at>[^+@]+)(?:\+(?P<down>[^+@]+))?")


def read_failure(text: str) -> sim.Failure:
    """`3@100s+60s`: replica 3 dies at 100 s and is back a minute later.

    >>> read_failure("3@100s+1min")
    Failure(replica=3, at_s=100.0, for_s=60.0, pool='serve')
    """
    match = _FAILURE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--fail is {shorten(text)}; write REPLICA@TIME or REPLICA@TIME+DURATION, such as 3@100s+60s.")
    down = parse(match["down"], "s", "the time a replica is away") if match["down"] else math.inf
    return sim.Failure(int(match["replica"]), parse(match["at"], "s", "the time of a failure"), down)


def read_autoscale(text: str) -> sim.Autoscale:
    """`2..16,target=24,startup=90s`: replicas from 2 to 16, as many as keep 24 requests on each.

    >>> read_autoscale("2..16,target=24").most
    16
    """
    kinds = {
        "target": lambda value: float(parse_count(value, "the target")),
        "startup": lambda value: parse(value, "s", "startup"),
        "every": lambda value: parse(value, "s", "every"),
    }
    wanted = "LEAST..MOST,target=REQUESTS, such as 2..16,target=24"
    (least, most), values = read_parts("--autoscale", text, r"(\d{1,6})\.\.(\d{1,6})", wanted, kinds)
    if "target" not in values:
        raise InputError(f"--autoscale is {shorten(text)}, without the requests per replica to aim at; add target=24.")
    return sim.Autoscale(least, most, values["target"], values.get("startup", 60.0), values.get("every", 10.0))
