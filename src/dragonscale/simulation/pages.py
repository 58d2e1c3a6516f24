"""The paged cache of one replica, with shared prefixes and a host tier behind it.

A page is private to a sequence, part of a block that sequences share, part of a block that nobody uses any more (kept
in the hope that somebody will), or free. Blocks are named by themselves and all before them, so the radix tree of
prefixes is a plain dictionary: a prompt's hits are the leading run of its blocks that are present. Whoever holds a
block holds those before it, and releases the deepest first; so the least recently used unheld block is always a leaf,
and eviction never cuts a path in the middle.

Only whole pages are shared: a block of 500 tokens shares 31 pages of 16.
"""

from collections import OrderedDict
from collections.abc import Hashable

from dragonscale.simulation.request import Sequence, SimulatedRequest


class Pages:
    """Counts of pages, and the blocks that are kept."""

    def __init__(self, capacity: int, page: int, sharing: bool = False, host_capacity: int = 0) -> None:
        self.capacity = capacity
        self.page = page
        self.sharing = sharing
        self.room = capacity  # pages available: free ones and those of unused blocks
        self.shared = 0  # pages of blocks in use
        self.idle_pages = 0  # pages of blocks kept for later
        self.refs: dict[Hashable, int] = {}
        self.idle: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first
        self.host: OrderedDict[Hashable, int] = OrderedDict()
        self.host_capacity = host_capacity
        self.host_pages = 0

    @property
    def private(self) -> int:
        """Pages of single sequences."""
        return self.capacity - self.room - self.shared

    def until(self, request: SimulatedRequest, blocks: int) -> int:
        """Whole pages in so many leading blocks of a prompt."""
        return min(blocks * request.block_tokens, request.input_tokens) // self.page

    def name(self, request: SimulatedRequest, block: int) -> Hashable:
        """A block's key; a prompt's last block, if cut short, is another block than the whole one of that name."""
        whole = (block + 1) * request.block_tokens <= request.input_tokens
        return request.blocks[block] if whole else (request.blocks[block], request.input_tokens)

    def hits(self, request: SimulatedRequest) -> tuple[int, int]:
        """Leading blocks present in the cache, and with those that continue them in the host's memory."""
        if not self.sharing or not request.blocks:
            return 0, 0
        near, count = 0, min(len(request.blocks), -(-request.input_tokens // request.block_tokens))
        while near < count and self.name(request, near) in self.refs:
            near += 1
        far = near
        while self.host and far < count and self.name(request, far) in self.host:
            far += 1
        return near, far

    def price(self, sequence: Sequence, tokens: int, near: int) -> int:
        """Pages of room an admission takes: own ones for the rest of `tokens`, host blocks, unused blocks taken up."""
        price = -(-tokens // self.page)
        if near:
            request = sequence.request
            price -= self.until(request, near)
            for block in range(near):
                price += self.idle.get(self.name(request, block), 0)
        return price

    def admit(self, sequence: Sequence, tokens: int, near: int, far: int) -> None:
        """Take pages for `tokens` tokens, sharing the leading `far` blocks, of which `near` are in the cache."""
        request = sequence.request
        for block in range(far):
            name = self.name(request, block)
            if block < near:
                self._hold(name)
            else:
                self.host.move_to_end(name)
                self.refs[name] = 1
                self._share(self.host[name])
        sequence.held = far
        sequence.private = -(-tokens // self.page) - (self.until(request, far) if far else 0)
        self.take(sequence.private)

    def take(self, pages: int) -> None:
        """Give pages to a sequence, from unused blocks if need be."""
        self.room -= pages
        while self.idle_pages > self.room:
            name, size = self.idle.popitem(last=False)
            del self.refs[name]
            self.idle_pages -= size
            if self.host_capacity:
                self._keep(name, size)

    def publish(self, sequence: Sequence, tokens: int) -> None:
        """The first `tokens` tokens of a prompt are computed: its whole blocks can be shared from now on. Where another
        sequence was faster, its block is used and the pages of the copy are given back."""
        request = sequence.request
        if not self.sharing:
            return
        while sequence.held < len(request.blocks):
            block = sequence.held
            if block * request.block_tokens >= request.input_tokens:
                return
            if min((block + 1) * request.block_tokens, request.input_tokens) > tokens:
                return
            name = self.name(request, block)
            size = self.until(request, block + 1) - self.until(request, block)
            if name in self.refs:
                self._hold(name)
            else:
                self.refs[name] = 1
                self._share(size)
            sequence.private -= size
            self.room += size
            sequence.held += 1

    def release(self, sequence: Sequence, grown: int) -> None:
        """A sequence leaves: its own pages, `grown` of them taken since it was admitted, are free, its
        blocks unused."""
        request = sequence.request
        self.room += sequence.private + grown
        for block in range(sequence.held - 1, -1, -1):
            name = self.name(request, block)
            self.refs[name] -= 1
            if self.refs[name] == 0:
                size = self.until(request, block + 1) - self.until(request, block)
                self._share(-size)
                self.idle[name] = size
                self.idle_pages += size
        sequence.private = sequence.held = 0

    def _share(self, pages: int) -> None:
        self.shared += pages
        self.room -= pages

    def _hold(self, name: Hashable) -> None:
        if self.refs[name] == 0:
            size = self.idle.pop(name)
            self.idle_pages -= size
            self._share(size)
        self.refs[name] += 1

    def _keep(self, name: Hashable, size: int) -> None:
        """What falls out of the cache goes to the host, whose own least recently used blocks fall out for good."""
        if name in self.host:
            self.host.move_to_end(name)
            return
        if size > self.host_capacity:
            return
        self.host[name] = size
        self.host_pages += size
        while self.host_pages > self.host_capacity:
            self.host_pages -= self.host.popitem(last=False)[1]
