"""How fast fleets are simulated: requests per second against replicas, batch and length of the run, and against SimPy.

The SimPy model drives the same step times with the same scheduler, one process per replica and one event per iteration,
as a careful person would write it in an afternoon; that its latencies agree with ours is checked before its time
counts. `python -m benchmarks.simulation` or `python benchmarks/simulation.py`; with `--day` a day of a million requests
over a hundred replicas.
"""

import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.step_times import StepTimes
from dragonscale.simulation import (
    Diurnal,
    Fixed,
    Fleet,
    LinearTimes,
    Lognormal,
    OpenLoop,
    Poisson,
    Pool,
    Scheduler,
    SimulatedRequest,
    SimulationOptions,
    SimulationResult,
    simulate,
)
from dragonscale.simulation.deployed import pool_for
from dragonscale.simulation.fleet import DAY_S

LINEAR = LinearTimes(0.018, 2e-5, 1.2e-8, 6e-5)
"""About a 70B model on eight chips: 18 ms for the weights, 16k prompt tokens a second."""
PROMPT, OUTPUT = 2048, 256
CACHE = 2_000_000


def traffic(rate: float, requests: int, output: int = OUTPUT) -> OpenLoop:
    """Poisson arrivals of the benchmark's request."""
    return OpenLoop(Poisson(rate), requests, Fixed(PROMPT), Fixed(output))


def fleet(replicas: int, sequences: int = 256, times: StepTimes = LINEAR) -> Fleet:
    """Replicas taking turns."""
    return Fleet(Pool(times, CACHE, Scheduler("chunked", sequences=sequences), replicas=replicas))


PLAIN = SimulationOptions()


def timed(of: Fleet, load: OpenLoop, options: SimulationOptions = PLAIN) -> tuple[SimulationResult, float]:
    """A result and its CPU seconds."""
    start = time.process_time()
    result = simulate(of, load, options)
    return result, time.process_time() - start


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def by_simpy(times: StepTimes, engine: Scheduler, replicas: int, load: OpenLoop) -> tuple[int, float, float]:
    """The same fleet in SimPy: requests finished, mean time to first token, mean time per token."""
    import simpy

    env = simpy.Environment()
    queues: list[deque[SimulatedRequest]] = [deque() for _ in range(replicas)]
    bells = [env.event() for _ in range(replicas)]
    done, first, each = [0], [0.0], [0.0]

    def arrive() -> Iterator[object]:
        for request in load.start(0)[0]:
            yield env.timeout(request.arrival_s - env.now)
            place = request.number % replicas
            queues[place].append(request)
            if not bells[place].triggered:
                bells[place].succeed()

    def serve(place: int) -> Iterator[object]:
        queue = queues[place]
        prefilling: deque[list] = deque()  # request, tokens to do
        decoding: list[list] = []  # request, tokens left, time of the first
        while True:
            if not (queue or prefilling or decoding):
                bells[place] = env.event()
                yield bells[place]
            budget = engine.tokens - len(decoding)
            pieces, parts = [], []
            while budget > 0 and len(decoding) + len(prefilling) < engine.sequences and queue:
                prefilling.append([queue[0], queue[0].input_tokens])
                queue.popleft()
                budget -= prefilling[-1][1]
            budget = engine.tokens - len(decoding)
            for item in prefilling:
                if budget <= 0:
                    break
                tokens = min(item[1], budget)
                parts.append((item, tokens))
                pieces.append((tokens, item[0].input_tokens - item[1]))
                budget -= tokens
            cached = sum(r.input_tokens + r.output_tokens - 1 - left for r, left, _ in decoding)
            yield env.timeout(times.step(len(decoding), cached, pieces))
            for item in decoding:
                item[1] -= 1
                if item[1] == 0:
                    done[0] += 1
                    each[0] += (env.now - item[2]) / (item[0].output_tokens - 1)
            decoding = [item for item in decoding if item[1]]
            for item, tokens in parts:
                item[1] -= tokens
                if item[1] == 0:
                    prefilling.popleft()
                    first[0] += env.now - item[0].arrival_s
                    decoding.append([item[0], item[0].output_tokens - 1, env.now])

    env.process(arrive())
    for place in range(replicas):
        env.process(serve(place))
    env.run()
    return done[0], first[0] / done[0], each[0] / done[0]


def against_simpy(rate: float, output: int, requests: int = 2000) -> None:
    """Ratio of times for the same fleet and traffic."""
    load = traffic(rate, requests, output)
    ours, seconds = timed(fleet(8), load)
    slow, naive = timed(fleet(8), load, SimulationOptions(leap=False))
    start = time.process_time()
    count, ttft, tpot = by_simpy(LINEAR, Scheduler("chunked"), 8, load)
    theirs = time.process_time() - start
    assert count == ours.outcome.finished == slow.outcome.finished
    assert abs(ttft / ours.latency["ttft_s"].mean.value - 1) < 1e-6
    assert abs(tpot / ours.latency["tpot_s"].mean.value - 1) < 1e-6
    print(
        f"  {output:>5} output tokens, batch {ours.mean_batch:3.0f}: SimPy {requests / theirs:6,.0f} requests per "
        "second, "
        f"ours {requests / seconds:6,.0f}: {theirs / seconds:5.1f}x; with an event for every step "
        f"{theirs / naive:4.1f}x"
    )


def day(requests: int = 1_000_000, replicas: int = 100) -> None:
    """A day's traffic, with its swing, over a large fleet, by every router that looks at replicas."""
    pool = pool_for(deploy("llama3-8b", "h100:1", "tensor=1", "vllm"), 16_384, replicas)
    rate = Diurnal(requests / DAY_S, 0.5, DAY_S)
    load = OpenLoop(rate, requests, Lognormal(1500, 1.0, 30_000), Lognormal(200, 1.0, 4000))
    print(f"a day of {requests:,} requests over {replicas} replicas; one core", flush=True)
    for router in ("round_robin", "least_loaded", "session_sticky"):
        start = time.process_time()
        result = simulate(Fleet(replace(pool, router=router)), load, PLAIN, _progress(requests))
        seconds = time.process_time() - start
        done = result.outcome.finished
        print(f"  {router:<14} {seconds:5.0f} CPU-s, {done:,} finished, peak memory {megabytes():.0f} MB", flush=True)


def _progress(requests: int) -> Callable[[int], None]:
    """A bar on the terminal."""

    def told(done: int) -> None:
        print(f"\r  {done / requests:4.0%}\r", end="", file=sys.stderr, flush=True)

    return told


def main() -> None:
    if "--day" in sys.argv:
        day()
        return
    timed(fleet(1), traffic(2.0, 500))
    print(f"requests of {PROMPT} + {OUTPUT} tokens; linear step times unless said; one core")
    pool = pool_for(
        deploy("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8,kv=fp8", "vllm"), PROMPT + OUTPUT, 8
    )
    result, seconds = timed(Fleet(pool), traffic(60.0, 100_000))
    rate = result.outcome.finished / seconds
    print(
        f"llama3-70b on 8 x h100:8, 100,000 requests with the planner's step times: {seconds:.1f} CPU-s, "
        f"{rate:,.0f} requests "
        f"and {rate * OUTPUT / 1e6:.2f} million output tokens per second, peak memory {megabytes():.0f} MB"
    )
    print("against the length of the run, 8 replicas (linear, memory flat)")
    for requests in (12_500, 25_000, 50_000, 100_000, 200_000):
        _, seconds = timed(fleet(8), traffic(24.0, requests))
        print(f"  {requests:>7,}: {seconds / requests * 1e6:5.1f} us a request, peak memory {megabytes():.0f} MB")
    print("against the number of replicas, the load of each equal")
    for replicas in (1, 4, 16, 64, 256):
        result, seconds = timed(fleet(replicas), traffic(3.0 * replicas, 20_000))
        print(f"  {replicas:>4}: {20_000 / seconds:7,.0f} requests per second, mean batch {result.mean_batch:.0f}")
    print("against the batch, 8 saturated replicas")
    for sequences in (1, 8, 64, 256, 1024):
        result, seconds = timed(fleet(8, sequences), traffic(1000.0, 20_000))
        print(f"  {sequences:>4}: {20_000 / seconds:7,.0f} requests per second, mean batch {result.mean_batch:.0f}")
    try:
        import simpy  # noqa: F401

        print(
            "against SimPy with the same step times on 8 replicas (equal latencies; it keeps no pages, metrics "
            "or series)"
        )
        for rate, output in ((24.0, 256), (24.0, 1024), (12.0, 2048), (4.0, 8192)):
            against_simpy(rate, output)
    except ImportError:
        print("SimPy is not installed; `pip install simpy` to compare.")


if __name__ == "__main__":
    main()
