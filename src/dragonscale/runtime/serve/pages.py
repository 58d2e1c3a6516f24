"""Who has which page of the KV cache, and which prompts' pages can be used again.

A rank's cache is `pages` pages of `page` tokens. A page is free, or private to one sequence that is still writing it,
or complete and in the prefix tree, where any number of sequences read it. The tree is a radix tree whose edges are
whole pages of tokens: the path from the root to a page spells all the tokens up to its end, which is what its keys
depend on. Page 0 is none of these: padding is written there.

A sequence that uses a page of the tree uses all pages above it too. So of a page and one below it, the upper one is let
go last (`release` goes from the end), and the queue of unused pages in the order they were let go in always has a leaf
in front: LRU eviction needs no search. Every operation takes time in proportion to the pages it is about.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy


class CachedPage:
    """A page in the prefix tree: its tokens (as bytes), what is below it, and how many sequences read it."""

    __slots__ = ("children", "page", "parent", "refs", "tokens")

    def __init__(self, tokens: bytes = b"", page: int = 0, parent: "CachedPage | None" = None) -> None:
        self.tokens, self.page, self.parent, self.refs = tokens, page, parent or self, 0
        self.children: dict[bytes, CachedPage] = {}


class PagePool:
    """The pages of a rank. With `prefixes` off nothing is ever found again."""

    def __init__(self, pages: int, page: int, prefixes: bool = True) -> None:
        self.pages, self.page, self.prefixes = pages, page, prefixes
        self.free = list(range(pages - 1, 0, -1))
        self.private: set[int] = set()
        self.root = CachedPage()
        self.cached: dict[int, CachedPage] = {}
        self.unused: OrderedDict[int, CachedPage] = OrderedDict()
        self.evictions = 0

    @property
    def available(self) -> int:
        """Pages that `take` can give: free ones, and those of the tree that nobody reads."""
        return len(self.free) + len(self.unused)

    def keys(self, tokens: numpy.ndarray, first: int, last: int, adapter: int) -> Iterable[bytes]:
        """The tokens of pages `first` to `last`; of the very first page also the adapter that computed it."""
        size = self.page * 4
        data = tokens[: last * self.page].astype(numpy.int32, copy=False).tobytes()
        tag = b"%d:" % adapter if adapter else b""
        return ((b"" if at else tag) + data[at * size : (at + 1) * size] for at in range(first, last))

    def match(self, tokens: numpy.ndarray, adapter: int = 0) -> list[int]:
        """Pages of the tree that begin these tokens, to be held before anything is taken. The last token is never among
        them: somebody has to compute what follows it."""
        if not self.prefixes:
            return []
        node, found = self.root, []
        for key in self.keys(tokens, 0, (len(tokens) - 1) // self.page, adapter):
            if (node := node.children.get(key)) is None:
                break
            found.append(node.page)
        return found

    def hold(self, pages: Sequence[int]) -> None:
        """One more sequence reads these pages of the tree."""
        for page in pages:
            node = self.cached[page]
            node.refs += 1
            if node.refs == 1:
                del self.unused[page]

    def take(self, count: int) -> list[int] | None:
        """New private pages, of those free or longest unused; None (and nothing changes) if there are not so many."""
        if count > self.available:
            return None
        while len(self.free) < count:
            self.evict()
        taken = [self.free.pop() for _ in range(count)]
        self.private.update(taken)
        return taken

    def evict(self) -> None:
        """The page that was let go longest ago leaves the tree."""
        page, node = self.unused.popitem(last=False)
        assert not node.children, f"page {page} is let go before a page below it"
        del node.parent.children[node.tokens], self.cached[page]
        self.free.append(page)
        self.evictions += 1

    def share(self, tokens: numpy.ndarray, pages: list[int], shared: int, whole: int, adapter: int = 0) -> int:
        """Puts a sequence's complete pages up to `whole` into the tree, the first `shared` being there already; it goes
        on reading them. Where another sequence computed the same page first, that one takes its place in `pages`.
        Returns how many are there now."""
        if not self.prefixes or whole <= shared:
            return shared
        node = self.cached[pages[shared - 1]] if shared else self.root
        for at, key in enumerate(self.keys(tokens, shared, whole, adapter), shared):
            page, parent = pages[at], node
            self.private.remove(page)
            if (node := parent.children.get(key)) is not None:
                self.free.append(page)
                pages[at] = node.page
                if not node.refs:
                    del self.unused[node.page]
            else:
                node = parent.children[key] = self.cached[page] = CachedPage(key, page, parent)
            node.refs += 1
        return whole

    def release(self, pages: Sequence[int]) -> None:
        """A sequence lets its pages go: private ones are free, those of the tree may be used again until they are
        evicted."""
        for page in reversed(pages):
            if (node := self.cached.get(page)) is None:
                self.private.remove(page)
                self.free.append(page)
                continue
            node.refs -= 1
            if not node.refs:
                self.unused[page] = node

    def clear(self) -> None:
        """Forgets all prefixes that nobody reads."""
        while self.unused:
            self.evict()
