"""The paged KV cache of one replica, with shared prefixes and tiers behind it (host, SSD, a store of all replicas).

A page is private to a sequence, part of a block that sequences share, part of an idle block (kept in case it is needed
again), or free. Blocks are named by themselves and everything before them, so the radix tree of prefixes is a plain
dictionary: a prompt's hits are the leading run of its blocks that are present. Whoever holds a block holds those before
it, and releases the deepest first; so the least recently used idle block is always a leaf, and eviction never cuts a
path in the middle.

Only whole pages are shared: a block of 500 tokens shares 31 pages of 16.

Invariants: `room` counts free pages and those of idle blocks; `idle_pages` never exceeds `room`; a block is in `refs`
while it is present, with the number of sequences that use it, and in `idle` if that number is 0.
"""

from collections import OrderedDict
from collections.abc import Hashable
from itertools import pairwise, repeat

from dragonscale.simulation.request import Sequence, SimulatedRequest


class Tier:
    """Blocks behind a cache, least recently used first; what falls out goes to the tier `below`."""

    def __init__(self, capacity: int, below: "Tier | None" = None, seconds: float = 0.0) -> None:
        self.capacity, self.below = capacity, below
        self.seconds = seconds  # to load a page
        self.blocks: OrderedDict[Hashable, int] = OrderedDict()
        self.pages = 0

    def keep(self, name: Hashable, size: int) -> None:
        """Take a block from above."""
        if name in self.blocks:
            self.blocks.move_to_end(name)
            return
        if size > self.capacity:
            return
        self.blocks[name] = size
        self.pages += size
        while self.pages > self.capacity:
            out, pages = self.blocks.popitem(last=False)
            self.pages -= pages
            if self.below is not None:
                self.below.keep(out, pages)


class AdapterSlots:
    """LoRA adapters in memory: those in use, and the others, least recently used first."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.users: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()

    def fits(self, adapter: int) -> bool:
        """Whether an adapter is loaded, or an unused one can make place for it."""
        return adapter < 0 or not self.slots or adapter in self.users or len(self.users) < self.slots

    def hold(self, adapter: int) -> bool:
        """A request starts to use an adapter; returns whether it has to be loaded."""
        if adapter < 0 or not self.slots:
            return False
        if adapter in self.users:
            self.users[adapter] += 1
            return False
        self.users[adapter] = 1
        if adapter in self.idle:
            del self.idle[adapter]
            return False
        if len(self.users) + len(self.idle) > self.slots:
            self.idle.popitem(last=False)
        return True

    def free(self, adapter: int) -> None:
        """A request stops using an adapter."""
        if adapter < 0 or not self.slots:
            return
        self.users[adapter] -= 1
        if not self.users[adapter]:
            del self.users[adapter]
            self.idle[adapter] = None


class Pages:
    """Counts of pages, and the blocks that are present.

    New blocks are written at once to the `store`, if there is one; evicted ones go to the first of the `tiers`.
    """

    def __init__(
        self,
        capacity: int,
        page: int,
        sharing: bool = False,
        tiers: tuple[Tier, ...] = (),
        store: Tier | None = None,
        slots: int = 0,
    ) -> None:
        self.capacity = capacity
        self.page = page
        self.sharing = sharing
        self.room = capacity  # pages available: free ones and those of unused blocks
        self.shared = 0  # pages of blocks in use
        self.idle_pages = 0  # pages of blocks kept for later
        self.refs: dict[Hashable, int] = {}
        self.idle: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first
        self.tiers = tiers if store is None else (*tiers, store)
        self.adapters = AdapterSlots(slots)
        self.first, self.store = tiers[0] if tiers else None, store

    @property
    def private(self) -> int:
        """Pages of single sequences."""
        return self.capacity - self.room - self.shared

    def until(self, request: SimulatedRequest, blocks: int) -> int:
        """Whole pages in so many leading blocks of a prompt."""
        return min(blocks * request.block_tokens, request.input_tokens) // self.page

    def names(self, request: SimulatedRequest, first: int, end: int) -> tuple[Hashable, ...]:
        """Keys of a prompt's blocks `first` to before `end`.

        The last block, if it is cut short, is another block than the whole one of that name, and a block computed with
        an adapter another than those of other adapters.
        """
        names, tokens = request.blocks[first:end], request.input_tokens
        whole = tokens // request.block_tokens  # leading blocks that are not cut short
        if request.adapter >= 0:
            cuts = (0 if block < whole else tokens for block in range(first, end))
            return tuple((name, request.adapter, cut) for name, cut in zip(names, cuts, strict=True))
        if names and end > whole:
            return (*names[:-1], (names[-1], tokens))
        return names

    def sizes(self, request: SimulatedRequest, first: int, end: int) -> list[int]:
        """Whole pages in each of these blocks."""
        tokens = request.block_tokens
        if tokens % self.page:
            edges = [self.until(request, block) for block in range(first, end + 1)]
            return [after - before for before, after in pairwise(edges)]
        whole = min(end, request.input_tokens // tokens)
        sizes = [tokens // self.page] * (whole - first)
        if end > whole:  # the prompt's last block, cut short
            sizes.append(request.input_tokens % tokens // self.page)
        return sizes

    def hits(self, request: SimulatedRequest) -> tuple[int, int]:
        """Leading blocks present in the cache, and with those that continue them in the tiers behind it."""
        if not self.sharing or not request.blocks:
            return 0, 0
        count = min(len(request.blocks), -(-request.input_tokens // request.block_tokens))
        names, cached = self.names(request, 0, count), 0
        for name in names:
            if name not in self.refs:
                break
            cached += 1
        reusable = cached
        while self.tiers and reusable < count and self._behind(names[reusable]) is not None:
            reusable += 1
        return cached, reusable

    def _behind(self, name: Hashable) -> Tier | None:
        """The first tier that has a block."""
        return next((tier for tier in self.tiers if name in tier.blocks), None)

    def price(self, sequence: Sequence, tokens: int, cached: int) -> int:
        """Pages of room that an admission takes: private ones for the rest of `tokens`, and idle blocks taken up."""
        price = -(-tokens // self.page)
        if cached:
            request = sequence.request
            price -= self.until(request, cached)
            price += sum(map(self.idle.get, self.names(request, 0, cached), repeat(0)))
        return price

    def admit(self, sequence: Sequence, tokens: int, cached: int, reusable: int) -> float:
        """Take pages for `tokens` tokens, sharing the leading `reusable` blocks, of which `cached` are in the cache;
        returns the seconds to load the others."""
        if not reusable:
            sequence.held, sequence.private = 0, (pages := -(-tokens // self.page))
            self.room -= pages
            if self.idle_pages > self.room:
                self.take(0)
            return 0.0
        request, seconds = sequence.request, 0.0
        names = self.names(request, 0, reusable)
        self._hold(names[:cached], self.sizes(request, 0, cached))
        for name in names[cached:]:
            tier = self._behind(name)
            assert tier is not None
            size = tier.blocks[name]
            tier.blocks.move_to_end(name)
            self._hold((name,), [size])
            seconds += size * tier.seconds
        sequence.held = reusable
        sequence.private = -(-tokens // self.page) - self.until(request, reusable)
        self.take(sequence.private)
        return seconds

    def remember(self, request: SimulatedRequest) -> None:
        """The blocks that a prompt has from before the run become idle blocks; the deepest are evicted first."""
        if not self.sharing:
            return
        names, sizes = self.names(request, 0, request.warm), self.sizes(request, 0, request.warm)
        for name, size in zip(reversed(names), reversed(sizes), strict=True):
            if name not in self.refs:
                self.refs[name] = 0
                self.idle[name] = size
                self.idle_pages += size
            elif name in self.idle:
                self.idle.move_to_end(name)
        self.take(0)

    def take(self, pages: int) -> None:
        """Give pages to a sequence, evicting idle blocks if need be."""
        self.room -= pages
        while self.idle_pages > self.room:
            name, size = self.idle.popitem(last=False)
            del self.refs[name]
            self.idle_pages -= size
            if self.first is not None:
                self.first.keep(name, size)

    def publish(self, sequence: Sequence, tokens: int) -> None:
        """The first `tokens` tokens of a prompt are computed: its whole blocks can be shared from now on.

        If another sequence computed a block sooner, that block is used and the pages of the copy are freed.
        """
        request, first = sequence.request, sequence.held
        if not self.sharing or first >= len(request.blocks):
            return
        computed = tokens // request.block_tokens
        if tokens >= request.input_tokens:  # the last block too, whole or cut short
            computed = -(-request.input_tokens // request.block_tokens)
        end = min(len(request.blocks), computed)
        if end <= first:
            return
        names, sizes = self.names(request, first, end), self.sizes(request, first, end)
        if self.store is not None:
            for name, size in zip(names, sizes, strict=True):
                if name not in self.refs:
                    self.store.keep(name, size)
        self._hold(names, sizes)
        pages = sum(sizes)
        sequence.private -= pages
        self.room += pages
        sequence.held = end

    def release(self, sequence: Sequence, grown: int) -> None:
        """A sequence leaves: its private pages are free, `grown` of them taken since it was admitted, and its blocks
        have one user less."""
        request = sequence.request
        self.room += sequence.private + grown
        if self.adapters.slots:
            self.adapters.free(request.adapter)
        if sequence.held:
            self._free(self.names(request, 0, sequence.held), self.sizes(request, 0, sequence.held))
        sequence.private = sequence.held = 0

    def _free(self, names: tuple[Hashable, ...], sizes: list[int]) -> None:
        """A sequence stops using these blocks; the deepest become the least recently used."""
        refs, idle, freed = self.refs, self.idle, 0
        for name, size in zip(reversed(names), reversed(sizes), strict=True):
            refs[name] = users = refs[name] - 1
            if not users:
                idle[name] = size
                freed += size
        self.shared -= freed
        self.room += freed
        self.idle_pages += freed

    def _hold(self, names: tuple[Hashable, ...], sizes: list[int]) -> None:
        """A sequence starts to use these blocks, some of which may be new and some idle until now."""
        refs, idle, pages = self.refs, self.idle, 0
        for name, size in zip(names, sizes, strict=True):
            users = refs.get(name)
            if users is None:
                pages += size
            elif not users:
                del idle[name]
                self.idle_pages -= size
                pages += size
            refs[name] = (users or 0) + 1
        self.shared += pages
        self.room -= pages
