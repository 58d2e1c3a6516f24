"""Fleets are sized and confirmed from Python alone: deployments, traffic and targets, without a command's flags."""

from dataclasses import replace

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import search
from dragonscale.serving.engine.launch import LaunchLimits
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.space.fleet_cost import fleet_cost
from dragonscale.serving.space.frontier import Ask
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.backlog import load_of
from dragonscale.simulation.fleet import Autoscale
from dragonscale.simulation.fleet_sizing.capacity import find_capacity
from dragonscale.simulation.fleet_sizing.confirmation import run_short
from dragonscale.simulation.fleet_sizing.fleet_job import FleetChange, FleetJob, FleetPool, FleetReplica
from dragonscale.simulation.fleet_sizing.fleet_run import cost_of_replicas, mean_replicas, run_fleet
from dragonscale.simulation.fleet_sizing.fleet_traffic import steady_traffic
from dragonscale.simulation.fleet_sizing.short_run import SizingJob
from dragonscale.simulation.fleet_sizing.verdict import FleetState, verdict_of

TRAFFIC = steady_traffic(512, 32, 1500, rate=120.0)


def job_on(chips: str = "h100:1", replicas: int = 1) -> FleetJob:
    replica = FleetReplica(deploy("llama3-8b", chips, "", "vllm"), TRAFFIC.longest)
    return FleetJob(FleetPool(replica, replicas), TRAFFIC, {"ttft_s": LatencyTarget(0.5, "p95")})


def test_a_fleet_that_is_too_small_is_sized_until_it_holds() -> None:
    job = job_on()
    result = run_fleet(job)
    load = load_of(result)
    assert load is not None
    assert load.grows
    capacity = find_capacity(job, result, load)
    assert verdict_of(job, result, load, {}, capacity).state is FleetState.OVERLOADED
    assert capacity.rate is not None
    assert capacity.rate < 120
    assert capacity.remedy is not None
    changed = job.changed(capacity.change)
    again = load_of(run_fleet(changed))
    assert again is not None
    assert not again.grows


def test_a_change_leaves_the_rest_of_a_job_alone() -> None:
    job = job_on()
    larger = job.changed(FleetChange(replicas=3))
    assert larger.fleet.pool.replicas == 3
    assert larger.main.replica is job.main.replica  # whose step times are tabulated once
    assert larger.changed(FleetChange(replicas=1)).fleet == job.fleet
    scaled = job.changed(FleetChange(autoscale=Autoscale(2, 4, 24.0)))
    assert scaled.fleet.pool.replicas == 2
    places = job.changed(FleetChange(max_seqs=8))
    assert places.fleet.pool.scheduler.sequences == 8
    assert places.fleet.pool.scheduler.tokens == job.fleet.pool.scheduler.tokens


def test_limits_that_a_pool_has_of_its_own_stay() -> None:
    job = job_on()
    own = replace(job.main, limits=LaunchLimits(max_seqs=16), upto=1024)
    fleet = replace(job, others=(own.relaunched(LaunchLimits()),)).changed(FleetChange(max_seqs=8)).fleet
    assert fleet.pool.scheduler.sequences == 8
    assert fleet.others[0].scheduler.sequences == job.fleet.pool.scheduler.sequences


def test_chips_and_dollars_are_those_of_replicas_times_slices() -> None:
    job = job_on("h100:2", replicas=3)
    cost = cost_of_replicas(job, mean_replicas(job, run_fleet(job)))
    price = job.deployment.chip.price
    assert price is not None
    assert (cost.chips, cost.usd_per_h) == (6, pytest.approx(6 * price))
    assert cost.usd_per_mtok(1000.0) == pytest.approx(6 * price / 3600 / 1000 * 1e6)
    assert cost.usd_per_mtok(0.0) is None
    free = replace(job.deployment.piece.chip, price=None)
    assert fleet_cost([(3, replace(job.deployment.piece, chip=free))]).usd_per_h is None


def test_a_configuration_is_confirmed_without_a_command() -> None:
    piece = parse_slice("h100:1")
    serving = ServingJob(
        model=load_model("llama3-8b"),
        targets=((piece.chip, piece),),
        ask=Ask(512, 64, tpot=0.03),
        goals={"tpot": LatencyTarget(0.03)},
        engine="vllm",
        limits=LaunchLimits(),
    )
    config = min(search(serving), key=lambda config: config.batch)
    run = run_short(SizingJob(serving), config)
    assert run.holds
    assert run.run.clients == config.batch
    assert run.run.latency["tpot_s"].mean < 0.03
    strict = SizingJob(replace(serving, goals={"tpot": LatencyTarget(1e-4)}))
    assert not run_short(strict, config).config.meets
