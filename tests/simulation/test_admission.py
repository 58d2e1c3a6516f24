"""Who is admitted when, held against an engine written down plainly: iteration by iteration, token by token, page by
page.

The plain engine keeps no clock of steps, no heaps and no sums: it counts every sequence's pages anew. Its times of
steps are the simulator's own, which are not what is tested here.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.simulation import Fleet, LinearTimes, Pool, Scheduler, SimulatedRequest, SimulationOptions, simulate
from tests.simulation.fleets import EXACT, replay


@dataclass(eq=False)
class Story:
    """A request in the plain engine: tokens in its cache, of which `reserved` pages are its own."""

    request: SimulatedRequest
    produced: int = 0
    cached: int = 0
    todo: int = 0
    reserved: int = 0
    preemptions: int = 0
    start_s: float = -1.0
    first_s: float = -1.0
    end_s: float = -1.0

    @property
    def context(self) -> int:
        return self.request.input_tokens + self.produced


@dataclass
class PlainEngine:
    """One replica of a scheduler: a queue, prompts under way, and those that decode, oldest first."""

    scheduler: Scheduler
    pages: int
    now: float = 0.0
    queue: list[Story] = field(default_factory=list)
    prompts: list[Story] = field(default_factory=list)
    decoding: list[Story] = field(default_factory=list)

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.scheduler.page_tokens)

    def free(self) -> int:
        return self.pages - sum(one.reserved for one in (*self.prompts, *self.decoding))

    def wanted(self) -> int:
        """Pages for the next token of everyone who decodes."""
        if self.scheduler.reserve == "whole":
            return 0
        return sum(max(self.pages_for(one.cached + 1) - one.reserved, 0) for one in self.decoding)

    def preempt(self) -> None:
        victim = (self.prompts or self.decoding).pop()
        victim.cached = victim.reserved = victim.todo = 0
        victim.preemptions += 1
        self.queue.insert(0, victim)

    def chunks(self, preempted: bool) -> list[tuple[Story, int]]:
        scheduler = self.scheduler
        cut = scheduler.kind == "chunked"
        budget = scheduler.tokens - (len(self.decoding) if scheduler.beside else 0)
        largest = max(budget // scheduler.ranks, 1)
        found: list[tuple[Story, int]] = []
        for story in self.prompts:
            if budget > 0:
                tokens = min(story.todo, budget, largest) if cut else story.todo
                found.append((story, tokens))
                budget -= tokens
        while self.queue and not preempted and budget > 0:
            story = self.queue[0]
            busy = bool(self.decoding or self.prompts)
            whole = story.request.input_tokens + story.request.output_tokens - 1
            price = self.pages_for(whole if scheduler.reserve == "whole" else story.context)
            spare = int(scheduler.watermark * self.pages) if busy else 0
            if len(self.decoding) + len(self.prompts) >= scheduler.sequences:
                break
            if price > self.free() - self.wanted() - spare or (not cut and story.context > budget and found):
                break
            self.queue.pop(0)
            story.reserved, story.todo = price, story.context
            story.start_s = self.now if story.start_s < 0 else story.start_s
            self.prompts.append(story)
            tokens = min(story.todo, budget, largest) if cut else story.todo
            found.append((story, tokens))
            budget -= tokens
        return found

    def iterate(self, times: LinearTimes) -> bool:
        """One iteration; whether there was anything to do."""
        preempted = False
        while self.wanted() > self.free():
            self.preempt()
            preempted = True
        chunks = self.chunks(preempted)
        decodes = self.decoding if self.scheduler.beside or not chunks else []
        if not chunks and not decodes:
            return False
        parts = [(tokens, story.context - story.todo) for story, tokens in chunks]
        self.now += times.step(len(decodes), float(sum(one.cached for one in decodes)), parts)
        for story in list(decodes):
            story.cached += 1
            story.produced += 1
            if self.scheduler.reserve != "whole":
                story.reserved = max(story.reserved, self.pages_for(story.cached))
            self.leave_if_ended(story)
        for story, tokens in chunks:
            story.todo -= tokens
            if story.todo == 0:
                self.prompts.remove(story)
                story.cached = story.context
                story.produced += 1
                story.first_s = self.now if story.first_s < 0 else story.first_s
                self.decoding.append(story)
                self.leave_if_ended(story)
        return True

    def leave_if_ended(self, story: Story) -> None:
        if story.produced == story.request.output_tokens:
            self.decoding.remove(story)
            story.end_s = self.now


def played(
    scheduler: Scheduler, pages: int, requests: list[SimulatedRequest], times: LinearTimes = EXACT
) -> list[Story]:
    """Every request's story in the plain engine."""
    engine = PlainEngine(scheduler, pages)
    stories = [Story(request) for request in requests]
    coming = list(stories)
    while any(story.end_s < 0 for story in stories):
        while coming and coming[0].request.arrival_s <= engine.now:
            engine.queue.append(coming.pop(0))
        if not engine.iterate(times):
            engine.now = coming[0].request.arrival_s
    return stories


TIMES = LinearTimes(1.0, prompt_s=0.01)


@pytest.mark.parametrize(("watermark", "waits"), [(0.0, 0.5), (0.25, 0.5), (0.5, 8.5)])
def test_pages_under_the_watermark_are_for_those_who_are_in(watermark: float, waits: float) -> None:
    """Ten pages of 16, of which the first request has four from 0 to 10.5 s. Beside it another of four comes in while
    a quarter must stay free, not while half must. Alone anyone comes in whatever the watermark."""
    calls = [SimulatedRequest(0, 0.0, 50, 10), SimulatedRequest(1, 2.0, 60, 2)]
    pool = Pool(TIMES, 160, Scheduler(watermark=watermark))
    stories = simulate(Fleet(pool), replay(calls), SimulationOptions(keep=True)).served
    assert {one.number: one.queue_s for one in stories} == pytest.approx({0: 0.0, 1: waits})


def test_who_decodes_has_its_next_page_first() -> None:
    """Six pages are free when the second comes, which asks for six; but the first takes its fifth in that step."""
    calls = [SimulatedRequest(0, 0.0, 64, 10), SimulatedRequest(1, 1.0, 96, 2)]
    pool = Pool(TIMES, 160, Scheduler(watermark=0.0))
    first, second = sorted(
        simulate(Fleet(pool), replay(calls), SimulationOptions(keep=True)).served, key=lambda one: one.number
    )
    assert (first.preemptions, second.preemptions) == (0, 0)
    assert 1.0 + second.queue_s == pytest.approx(first.e2e_s)


def test_who_was_thrown_out_comes_before_those_who_wait() -> None:
    """The second gives way for the first, and is back before the third, which came meanwhile."""
    calls = [SimulatedRequest(0, 0.0, 40, 40), SimulatedRequest(1, 0.0, 40, 40), SimulatedRequest(2, 5.0, 40, 2)]
    pool = Pool(TIMES, 128, Scheduler("continuous", page_tokens=16, watermark=0.0, sequences=2))
    stories = {one.number: one for one in simulate(Fleet(pool), replay(calls), SimulationOptions(keep=True)).served}
    assert stories[1].preemptions == 1
    assert stories[2].arrival_s + stories[2].queue_s >= stories[0].e2e_s
    plain = played(pool.scheduler, 8, calls, TIMES)
    assert [stories[number].e2e_s for number in range(3)] == pytest.approx(
        [one.end_s - one.request.arrival_s for one in plain]
    )


def test_alone_anyone_comes_in_whatever_the_watermark() -> None:
    """Seven of ten pages for one request, though half of them are to stay free for those who are in: nobody is."""
    pool = Pool(TIMES, 160, Scheduler(watermark=0.5))
    (story,) = simulate(Fleet(pool), replay([SimulatedRequest(0, 0.0, 110, 5)]), SimulationOptions(keep=True)).served
    assert story.queue_s == 0


@st.composite
def loads(draw: st.DrawFn) -> tuple[Scheduler, int, list[SimulatedRequest]]:
    scheduler = Scheduler(
        kind=draw(st.sampled_from(["chunked", "continuous"])),
        sequences=draw(st.integers(1, 6)),
        tokens=draw(st.integers(8, 120)),
        ranks=draw(st.sampled_from([1, 1, 3])),
        mixed=draw(st.sampled_from([None, True, False])),
        reserve=draw(st.sampled_from(["prompt", "prompt", "whole"])),
        watermark=draw(st.sampled_from([0.0, 0.2, 0.4])),
        page_tokens=draw(st.sampled_from([1, 4, 16])),
    )
    tokens = draw(st.integers(80, 240))
    requests = [
        SimulatedRequest(number, time / 1024, draw(st.integers(1, 60)), draw(st.integers(1, 20)))
        for number, time in enumerate(sorted(draw(st.lists(st.integers(0, 400), min_size=1, max_size=14))))
    ]
    return scheduler, tokens, requests


@given(load=loads())
def test_everybody_is_admitted_when_the_plain_engine_admits_them(load) -> None:
    scheduler, tokens, requests = load
    pool = Pool(EXACT, tokens, scheduler)
    ours = sorted(
        simulate(Fleet(pool), replay(requests), SimulationOptions(keep=True)).served, key=lambda one: one.number
    )
    theirs = played(scheduler, pool.pages, requests)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        arrival = other.request.arrival_s
        assert one.queue_s == pytest.approx(other.start_s - arrival)
        assert one.ttft_s == pytest.approx(other.first_s - arrival)
        assert one.e2e_s == pytest.approx(other.end_s - arrival)
        assert one.preemptions == other.preemptions
