"""What is counted while a run goes on: latencies of requests, gaps between tokens, and what became of everyone.

Requests outside the measured part of the run (a warm-up at the beginning, a drain at the end) are served and accounted
for but leave no latency behind.
"""

from typing import NamedTuple

from dragonscale.simulation.histogram import Histogram
from dragonscale.simulation.request import Sequence, SimulatedRequest

LATENCIES = ("queue_s", "ttft_s", "tpot_s", "itl_s", "e2e_s")


class ServedRequest(NamedTuple):
    """One request's story, kept only if asked for."""

    number: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    queue_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    preemptions: int
    retries: int
    replica: int


class Tally:
    """Counters of a run. `first` and `last` bound the numbers of the requests that are measured."""

    def __init__(self, ttft_s: float, tpot_s: float, first: int, last: float, keep: bool) -> None:
        self.slo_ttft_s, self.slo_tpot_s = ttft_s, tpot_s
        self.first, self.last = first, last
        self.open = first == 0
        self.times = {name: Histogram() for name in LATENCIES}
        self.gaps = self.times["itl_s"]
        self.served: list[ServedRequest] | None = [] if keep else None
        self.arrived = self.finished = self.measured = self.good = 0
        self.met = {"ttft_s": 0, "tpot_s": 0}
        self.refused: dict[str, int] = {}
        self.preempted = self.retried = 0
        self.input_tokens = self.output_tokens = 0
        self.prompt_tokens = self.cached_tokens = self.host_tokens = 0
        self.last_arrival_s = self.last_end_s = -1.0
        self.verify_steps = self.verify_tokens = 0
        self.all_e2e_s = 0.0

    def gap(self, seconds: float, weight: float) -> None:
        """So many times, this long from one token to the next."""
        if self.open and weight > 0:
            self.gaps.add(seconds, weight)

    def token(self, sequence: Sequence, now: float) -> None:
        """A sequence's token that no decode step made: the one that comes out of a prefill."""
        if sequence.first_s < 0:
            sequence.first_s = now
        else:
            self.gap(now - sequence.last_s, 1)
        sequence.last_s = now

    def arrive(self, request: SimulatedRequest) -> None:
        """A request has come."""
        self.arrived += 1
        self.last_arrival_s = request.arrival_s
        if request.number == self.first:
            self.open = True
        elif request.number == self.last:
            self.open = False

    def refuse(self, reason: str) -> None:
        """A request cannot be served."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def finish(self, sequence: Sequence, now: float, replica: int) -> None:
        """A request has its last token."""
        request = sequence.request
        arrival, output = request.arrival_s, request.output_tokens
        self.finished += 1
        self.last_end_s = now
        self.input_tokens += request.input_tokens
        self.output_tokens += output
        self.all_e2e_s += now - arrival
        if not self.first <= request.number < self.last:
            return
        self.measured += 1
        ttft = sequence.first_s - arrival
        tpot = (now - sequence.first_s) / (output - 1) if output > 1 else 0.0
        times = self.times
        times["queue_s"].add(sequence.start_s - arrival)
        times["ttft_s"].add(ttft)
        times["e2e_s"].add(now - arrival)
        if output > 1:
            times["tpot_s"].add(tpot)
        soon, steady = ttft <= self.slo_ttft_s, tpot <= self.slo_tpot_s
        self.met["ttft_s"] += soon
        self.met["tpot_s"] += steady
        self.good += soon and steady
        if self.served is not None:
            times_s = (sequence.start_s - arrival, ttft, tpot, now - arrival)
            tries = (sequence.preemptions, sequence.retries)
            self.served.append(ServedRequest(*request[:4], sequence.cached, *times_s, *tries, replica))
