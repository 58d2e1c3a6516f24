"""What holds of an engine after each step: no page, slot or request is lost or held twice."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy

from dragonscale.runtime.serve.engine import ServingEngine
from dragonscale.runtime.serve.pages import PagePool
from dragonscale.runtime.serve.scheduler import BatchScheduler


def check_engine(engine: ServingEngine) -> None:
    """Asserts that nothing is lost or held twice."""
    ranks = range(engine.limits.ranks)
    check_scheduler(engine.scheduler)
    there = [s for rank in ranks for s in (*engine.scheduler.running[rank].values(), *engine.scheduler.waiting[rank])]
    assert sorted(s.request.id for s in there) == sorted(engine.live), "a request is nowhere or in two places"


def check_scheduler(scheduler: BatchScheduler) -> None:
    """Asserts the invariants of all ranks."""
    for rank, running in enumerate(scheduler.running):
        check_pages(scheduler.pools[rank], (s.pages for s in running.values()))
        assert sorted([*scheduler.slots[rank], *running]) == list(range(scheduler.limits.sequences)), (
            "a slot is lost or given twice"
        )
        tables = numpy.zeros_like(scheduler.packer.tables[rank])
        for slot, s in running.items():
            tables[slot, : len(s.pages)] = s.pages
            assert (s.slot, s.rank, s.ended) == (slot, rank, False), f"slot {slot} is not its sequence's"
            assert s.computed <= len(s.pages) * scheduler.limits.page, f"slot {slot} writes beyond its pages"
            assert s.computed < s.target or s.computed == s.known + s.flying - 1, f"slot {slot} lost a token"
        assert (tables == scheduler.packer.tables[rank]).all(), "tables of slots are not the pages of their sequences"
        positions = [running[slot].computed if slot in running else 0 for slot in range(scheduler.limits.sequences + 1)]
        assert scheduler.packer.positions[rank].tolist() == positions, (
            "positions of slots are not those of their sequences"
        )
        orders = [s.order for s in (*running.values(), *scheduler.waiting[rank])]
        assert orders == sorted(orders), "a younger sequence went before an older one"
        assert not any(s.slot >= 0 or s.pages or s.ended for s in scheduler.waiting[rank]), (
            "a waiting sequence holds something"
        )


def check_pages(pool: PagePool, holders: Iterable[Sequence[int]]) -> None:
    """Asserts that every page is in one place and that what sequences hold is what the pool thinks they hold."""
    held = Counter(page for pages in holders for page in pages)
    counts = dict.fromkeys(pool.private, 1) | {page: node.refs for page, node in pool.cached.items() if node.refs}
    nodes = [pool.root, *pool.cached.values()]
    below = {id(child): (node, key) for node in nodes for key, child in node.children.items()}
    unread = {page for page, node in pool.cached.items() if not node.refs}
    assert sorted([*pool.free, *pool.private, *pool.cached]) == list(range(1, pool.pages)), (
        "a page is in no place or in two"
    )
    assert held == counts, f"pages are held {dict(held)} times and counted {counts}"
    assert set(pool.unused) == unread, "the queue of unused pages is not those that nobody reads"
    assert len(below) == sum(len(node.children) for node in nodes) == len(pool.cached), (
        "a page hangs nowhere or in two places"
    )
    for page, node in pool.cached.items():
        assert below[id(node)] == (node.parent, node.tokens), f"page {page} is not below its parent"
        assert node.page == page, f"page {page} says that it is page {node.page}"
        assert node.parent is pool.root or node.parent.refs >= node.refs, (
            f"page {page} is read by more than the one above it"
        )
