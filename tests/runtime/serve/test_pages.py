"""The pool of pages against a model without any cleverness: a list of what every page holds."""

import numpy
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dragonscale.runtime.serve.pages import PagePool
from tests.runtime.serve.invariants import check_pages

PAGES, PAGE = 9, 2
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=9)


class PoolMachine(RuleBasedStateMachine):
    """Sequences come, compute their tokens page by page, share and go. `texts` is what the tokens up to the end of a
    page were when it was last written, `used` when a cached one was last let go: the model of what can be found and of
    what is evicted."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES, PAGE)
        self.texts: dict[int, tuple[int, ...]] = {}
        self.cached: dict[tuple[int, ...], int] = {}
        self.used: dict[int, int] = {}
        self.sequences: list[tuple[list[int], list[int], int]] = []
        self.time = 0

    def readers(self, page: int) -> int:
        return sum(page in pages for _, pages, _ in self.sequences)

    @rule(tokens=PROMPTS)
    def come(self, tokens: list[int]) -> None:
        array = numpy.array(tokens, numpy.int32)
        wanted = []
        while (size := (len(wanted) + 1) * PAGE) < len(tokens) and tuple(tokens[:size]) in self.cached:
            wanted.append(self.cached[tuple(tokens[:size])])
        assert self.pool.match(array) == wanted
        self.pool.hold(wanted)
        self.sequences.append((tokens, wanted, len(wanted)))
        need = -(-len(tokens) // PAGE) - len(wanted)
        private = sum(len(pages) - shared for _, pages, shared in self.sequences)
        unread = sorted((page for page in self.cached.values() if not self.readers(page)), key=self.used.__getitem__)
        free = PAGES - 1 - private - len(self.cached)
        taken = self.pool.take(need)
        if need > free + len(unread):
            assert taken is None
            self.go(len(self.sequences) - 1)
            return
        assert taken is not None
        assert set(unread[: max(0, need - free)]) <= set(taken), "the longest unused are not those that were evicted"
        for page in unread[: max(0, need - free)]:
            del self.cached[self.texts[page]]
        assert not set(taken) & {page for _, pages, _ in self.sequences for page in pages}
        self.sequences[-1] = (tokens, wanted + taken, len(wanted))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.sequences) - 1))
        tokens, pages, shared = self.sequences[at]
        whole = data.draw(st.integers(shared, len(tokens) // PAGE)) if len(tokens) // PAGE > shared else shared
        before = list(pages)
        assert self.pool.share(numpy.array(tokens, numpy.int32), pages, shared, whole) == whole
        for place in range(shared, whole):
            text = tuple(tokens[: (place + 1) * PAGE])
            assert pages[place] == self.cached.setdefault(text, before[place])
            self.texts[pages[place]] = text
        self.sequences[at] = (tokens, pages, whole)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.go(data.draw(st.integers(0, len(self.sequences) - 1)))

    def go(self, at: int) -> None:
        _, pages, _ = self.sequences.pop(at)
        self.pool.release(pages)
        for page in reversed(pages):
            self.time += 1
            self.used[page] = self.time

    @precondition(lambda self: not self.sequences)
    @rule()
    def clear(self) -> None:
        self.pool.clear()
        self.cached.clear()
        assert self.pool.available == PAGES - 1

    @invariant()
    def sound(self) -> None:
        check_pages(self.pool, (pages for _, pages, _ in self.sequences))
        assert set(self.pool.cached) == set(self.cached.values())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_page_cannot_be_freed_twice():
    pool = PagePool(5, 2)
    pages = pool.take(2)
    assert pages is not None
    pool.release(pages)
    with pytest.raises(KeyError):
        pool.release(pages)


@pytest.mark.parametrize(
    "harm",
    [
        lambda pool: pool.free.append(3),
        lambda pool: pool.free.pop(),
        lambda pool: setattr(pool.cached[next(iter(pool.cached))], "refs", 7),
        lambda pool: pool.unused.clear(),
        lambda pool: pool.root.children.clear(),
    ],
)
def test_the_check_sees_what_is_wrong(harm):
    pool = PagePool(12, 2)
    one, two = pool.take(3), pool.take(2)
    assert one and two  # noqa: PT018
    tokens = numpy.arange(6, dtype=numpy.int32)
    pool.share(tokens, one, 0, 2)
    pool.share(tokens + 1, two, 0, 2)
    pool.release(two)
    check_pages(pool, [one])
    harm(pool)
    with pytest.raises((AssertionError, KeyError)):
        check_pages(pool, [one])


def test_without_prefixes_nothing_is_found():
    pool = PagePool(5, 2, prefixes=False)
    pages, tokens = pool.take(2), numpy.arange(4, dtype=numpy.int32)
    assert pages is not None
    assert pool.share(tokens, pages, 0, 2) == 0
    pool.release(pages)
    assert pool.match(tokens) == []
    assert len(pool.free) == 4
