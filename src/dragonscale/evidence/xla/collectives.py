"""The collectives of a compiled module: kind, bytes on each device, who takes part, and whether other work can hide it.

Each is counted once, however it is spelled (`collective_sites`); a combined collective over a tuple is as many as it
has operands. What looks like a collective and cannot be read is an error.

>>> text = '''
... HloModule jit_f
...
... ENTRY %main (p: bf16[8,4]) -> bf16[8,16] {
...   %p = bf16[8,4]{1,0} parameter(0)
...   ROOT %g = bf16[8,16]{1,0} all-gather(%p), replica_groups=[2,4]<=[8], dimensions={1}
... }
... '''
>>> (gather,) = read_collectives(text)
>>> gather.kind, gather.volume, gather.size, gather.wire_bytes, gather.how
('all_gather', 256.0, 4, 192.0, 'sync')
"""

from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.evidence.xla import collective_sites
from dragonscale.evidence.xla.call_graph import UNKNOWN, Taken, executions
from dragonscale.evidence.xla.collective_sites import KINDS, Site
from dragonscale.evidence.xla.device_groups import TRANSFERS, Groups, read_transfer, replica_groups, source_target_pairs
from dragonscale.evidence.xla.hlo_text import Module, read_module, source_line
from dragonscale.evidence.xla.layouts import Shape
from dragonscale.physics.collectives import wire_bytes


@dataclass(frozen=True)
class Collective:
    """One collective on one array; `sent` and `received` are what a device passes in and gets back."""

    kind: str
    sent: Shape
    received: Shape
    groups: Groups
    """The devices of each group; for a permute, the pairs of source and target."""
    times: int
    name: str
    op_name: str
    source: str = ""
    how: str = "sync"
    """`sync`, or `async` where other work can be scheduled while it runs."""
    window_flops: float | None = None
    """FLOPs scheduled between its start and its end, each time; None where it blocks or ends elsewhere."""
    decomposed: bool = False
    """Whether it is a step of a collective matmul that the compiler made."""
    algorithm: str = ""
    """What the compiler chose for it, in the compiler's words."""
    padding: bool = False
    """Whether it is a permute that only mends the padding of a reduce-scatter."""
    between_slices: bool = False
    """Whether it goes over the network between slices, by that network's own runtime."""
    at_most: bool = False
    """Whether the bytes are a bound, because how many are sent depends on data."""

    @property
    def size(self) -> int:
        """Devices in one group (two in a permute's pairs)."""
        return len(self.groups[0])

    @property
    def volume(self) -> float:
        """Bytes of the array as one group sees them: the convention of `dragonscale.physics.collectives.cost`."""
        if self.kind == "all_gather":
            return self.received.bytes
        return self.sent.bytes * self.size if self.kind == "all_to_all" else self.sent.bytes

    @property
    def wire_bytes(self) -> float:
        """Bytes that each device sends, each time."""
        return self.sent.bytes if self.at_most else wire_bytes(self.kind, self.volume, self.size)


def read_collectives(text: str, chips: int | None = None) -> list[Collective]:
    """Every collective of a compiled module, in order of its computations.

    `chips` is the number of devices where a collective may be over all of them without naming them.
    """
    return module_collectives(read_module(text), text, chips)


def module_collectives(module: Module, text: str, chips: int | None = None, taken: Taken = ()) -> list[Collective]:
    """The same for a module that was read before, with its text; `taken` as `executions` has it."""
    counts = executions(module, taken=taken)
    found: list[Collective] = []
    copies: list[Site] = []
    sent = received = 0
    for site in collective_sites.collective_sites(module, text):
        times = counts[site.computation.name]
        if site.is_copy:
            copies.append(site)
        elif times and site.opcode == "recv":
            received += sum(each.times for each in _read(site, times, chips))
        elif times:
            read = _read(site, times, chips)
            sent += sum(each.times for each in read) if site.opcode == "send" else 0
            found += [_in_context(module, site, each) for each in read]
    _check_copies(copies, found, chips)
    if sent != received:
        raise InputError(f"In the module {sent} transfers are sent and {received} received; each must be both.")
    return found


def _in_context(module: Module, site: Site, each: Collective) -> Collective:
    """A collective with what stands around it."""
    origin, padding = collective_sites.origin_of(module, site)
    return replace(
        each,
        op_name=origin.op_name,
        source=source_line(origin.text, module.frames),
        how="async" if site.is_async else "sync",
        window_flops=collective_sites.window_of(module, site) if site.is_async else None,
        decomposed=collective_sites.is_decomposed(module, site),
        padding=padding,
        algorithm=collective_sites.algorithm(site),
    )


def _read(site: Site, times: int, chips: int | None) -> list[Collective]:
    instruction = site.instruction
    transfer = read_transfer(instruction) if site.opcode in TRANSFERS else None
    if site.opcode in TRANSFERS and transfer is None:  # to the host
        return []
    if times == UNKNOWN:
        where = "in a loop or branch whose number of executions XLA does not say"
        raise InputError(f"The collective {instruction.name} lies {where}.")
    sent, received = _arrays(site)
    groups = transfer.groups if transfer else _groups(site, chips)
    if not groups or len(set(map(len, groups))) != 1:
        raise InputError(f"The collective {instruction.name} has groups of different sizes, or none.")
    kind = transfer.kind if transfer else KINDS[site.opcode]
    pairs = zip(sent, received, strict=True)
    found = [Collective(kind, *pair, groups, times, instruction.name, "") for pair in pairs]
    if transfer:
        return [replace(_transferred(each), between_slices=transfer.between_slices) for each in found]
    if site.opcode == "ragged-all-to-all":
        return [replace(each, at_most=True) for each in found]
    if site.opcode == "all-to-all" and not instruction.attribute("dimensions"):
        # written with one operand per peer, it is one exchange of them all
        whole = Shape(sent[0].dtype, (len(sent), *sent[0].dims))
        found = [replace(found[0], sent=whole, received=whole)]
    return [_checked(_scattered(site, each)) for each in found]


def _transferred(each: Collective) -> Collective:
    """What comes back from a transfer, of which the send shows only what goes in."""
    whole = Shape(each.sent.dtype, (each.size, *each.sent.dims))
    part = Shape(each.sent.dtype, (each.sent.elements // each.size,))
    return replace(each, received={"all_gather": whole, "reduce_scatter": part}.get(each.kind, each.sent))


def _groups(site: Site, chips: int | None) -> Groups:
    if site.opcode == "collective-permute":
        return source_target_pairs(site.instruction.attribute("source_target_pairs"))
    text = site.instruction.attribute("replica_groups")
    return (tuple(range(chips)),) if text == "{}" and chips else replica_groups(text)


def _arrays(site: Site) -> tuple[list[Shape], list[Shape]]:
    """What goes in and what comes back: an asynchronous start returns its operands, its results and sometimes scratch
    words."""
    instruction, named = site.instruction, site.computation.named
    sent = [shape for name in instruction.operands for shape in named[name].shapes]
    if site.opcode in TRANSFERS:  # with a token; the result is a buffer and a context
        array = sent[:1] if site.opcode == "send" else list(instruction.shapes[:1])
        return array, array
    if site.opcode == "ragged-all-to-all":  # with the array to write into, offsets and sizes
        if len(sent) != 6:
            raise InputError(f"The collective {instruction.name} has {len(sent)} operands; a ragged all-to-all has 6.")
        return sent[:1], sent[1:2]
    received = list(instruction.shapes)
    if instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start":
        received = received[len(sent) : 2 * len(sent)]
    if len(received) != len(sent):
        raise InputError(f"The collective {instruction.name} has {len(sent)} operands and {len(received)} results.")
    return sent, received


def _scattered(site: Site, each: Collective) -> Collective:
    """An all-reduce in a fusion that keeps one device's slice of it is a reduce-scatter."""
    if each.kind != "all_reduce" or site.fusion is None:
        return each
    waiting, slices = [site.instruction], []
    while waiting:
        for user in site.computation.users[waiting.pop().name]:
            if user.opcode in ("bitcast", "reshape", "get-tuple-element"):
                waiting.append(user)
            elif user.opcode == "dynamic-slice":
                slices += [shape for shape in user.shapes if shape.bytes * each.size == each.sent.bytes]
    if slices:
        return replace(each, kind="reduce_scatter", received=slices[0])
    if "all-reduce-scatter" in site.computation.name:
        raise InputError(f"The fusion {site.fusion.name} around {each.name} does not take a slice of it.")
    return each


def _checked(each: Collective) -> Collective:
    """The sizes before and after must be what the kind says; anything else was misread."""
    grows = {"all_gather": each.size, "reduce_scatter": 1 / each.size}.get(each.kind, 1)
    if each.received.bytes != each.sent.bytes * grows:
        turns = f"turns {each.sent} into {each.received} over groups of {each.size}"
        raise InputError(f"The collective {each.name} {turns}; a {each.kind} does not.")
    return each


def _check_copies(copies: list[Site], found: list[Collective], chips: int | None) -> None:
    """Each copy in a fusion must be a copy of something that was counted."""
    counted = {(each.kind, each.sent, each.groups) for each in found}
    for site in copies:
        name = site.instruction.name
        if not any((each.kind, each.sent, each.groups) in counted for each in _read(site, 1, chips)):
            raise InputError(f"The collective {name} looks like a copy of one that is not in the module.")
