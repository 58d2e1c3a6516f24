"""Slices: how many chips, in what shape, joined how. `v5p:8x16x16`, `v5p:16x20x28*4`, `h100:4096`.

A TPU slice is a box of chips cut from a pod. Whether its axes close into rings depends on the
generation: on 2D pods only an axis of the pod's full length wraps; on 3D pods, whole 4x4x4 cubes
are joined by optical switches and then every axis wraps. `*4` joins four slices over the
data-centre network. A GPU slice is a number of GPUs, in whole nodes once it is larger than one, or in
trays of racks that are one NVLink domain.

>>> parse_slice("v5e:8x16").wrap
(False, True)
>>> parse_slice("v5e:32x32")
Traceback (most recent call last):
    ...
dragonscale.errors.InputError: v5e:32x32 is not available: a TPU v5e pod ends at 16x16 (256 chips). Possible:
v5e:16x16*4, v5e:16x16.
"""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.catalogue import chip_path, is_chip, load_chip
from dragonscale.physics.hardware.changes import split_changes
from dragonscale.physics.hardware.chip import Chip, Torus, Tree
from dragonscale.physics.hardware.parts import cores
from dragonscale.physics.hardware.spoken import spelled
from dragonscale.physics.numbers import Number, ceil

_SLICE = re.compile(r"(?P<chip>[^*]+?)(?::(?P<shape>[0-9]+(?:[xX×][0-9]+)*))?(?:\*(?P<pods>[0-9]+))?")
_SPOKEN = re.compile(
    r"(?P<count>[0-9]+) ?[xX×] ?(?P<after>(?:[A-Za-z]|[0-9]{4})[\w. "
    r"-]*)|(?:(?P<before>(?:[A-Za-z]|[0-9]{4})[\w-]*?)[xX×]|(?P<dashed>[A-Za-z][\w ]*)-)(?P<number>[0-9]+)"
)
_BY_CORES = ("v2", "v3", "v4", "v5p", "tpu7x")
"""TPUs whose Cloud names count TensorCores, of which a chip has two (Cloud TPU documentation, configurations of v4 and
v5p: v5p-8 is 2x2x1; xpk's list of tpu7x types); names of v5e and v6e count chips."""
MOST_CHIPS = 2_000_000
"""Chips of a slice, at most: several times the largest clusters that have been announced."""
AXIS_NAMES = "XYZ"


@dataclass(frozen=True)
class Slice:
    """`pods` groups of chips of one shape. A GPU slice has a shape of one number."""

    chip: Chip
    shape: tuple[int, ...]
    pods: int = 1

    def __repr__(self) -> str:
        return f"<Slice {self}>"

    def __str__(self) -> str:
        return f"{self.chip.name}:{_x(self.shape)}" + (f"*{self.pods}" if self.pods > 1 else "")

    @property
    def chips(self) -> int:
        """Chips in all."""
        return math.prod(self.shape) * self.pods

    @property
    def hosts(self) -> int:
        """Machines that hold them."""
        return math.ceil(math.prod(self.shape) / self.chip.host_chips) * self.pods

    @property
    def vms(self) -> int:
        """Virtual machines, and so processes: a host each, or the smaller ones that slices of several hosts are made
        of.

        >>> parse_slice("v6e:2x4").vms, parse_slice("v6e:16x16").vms, parse_slice("v6e:16x16").hosts
        (1, 64, 32)
        """
        chips, host = math.prod(self.shape), self.chip.host_chips
        return math.ceil(chips / (self.chip.vm_chips or host)) * self.pods if chips > host else self.hosts

    @property
    def wrap(self) -> tuple[bool, ...]:
        """Which axes of the torus close into a ring."""
        return wraparound(self.chip, self.shape)

    @property
    def cores(self) -> int:
        """Cores of all chips."""
        return self.chips * cores(self.chip)

    @property
    def flops(self) -> float:
        """bf16 FLOP/s of all chips."""
        return self.chips * self.chip.peak("bf16")

    @property
    def hbm(self) -> float:
        """Bytes of main memory of all chips."""
        return self.chips * self.chip.hbm.capacity


def chips_to_hold(chip: Chip, size: Number, whole: int = 1) -> Number:
    """Chips whose main memory, as datasheets state it, holds `size` bytes, rounded up to a multiple of `whole` (a node,
    say).

    >>> chips_to_hold(load_chip("h100"), 700e9), chips_to_hold(load_chip("h100"), 700e9, whole=8)
    (9, 16)
    """
    return ceil(size / chip.hbm.capacity / whole) * whole


def _x(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def wraparound(chip: Chip, shape: tuple[int, ...]) -> tuple[bool, ...]:
    """The generation's rule applied to a shape; no axis of a switched network is a ring."""
    network = chip.network
    if not isinstance(network, Torus) or network.wrap == "never":
        return tuple(False for _ in shape)
    if network.wrap == "always":
        return tuple(size > 2 for size in shape)
    if network.wrap == "cubes":
        return tuple(all(size % 4 == 0 for size in shape) for _ in shape)
    return tuple(size == max(network.pod) for size in shape)


def parse_slice(text: str) -> Slice:
    """Read `CHIP:TOPOLOGY[*PODS]`, where CHIP is a name or the path of a TOML file, and check that it can exist."""
    chip, shape, pods = _split(text)
    if shape is None:
        if not chip.default_slice:
            example = _x(chip.network.pod) if isinstance(chip.network, Torus) else str(chip.host_chips)
            raise InputError(f"{shorten(text)} names no topology; write e.g. {chip.name}:{example}.")
        return parse_slice(
            f"{text.strip().rpartition('*')[0] or text.strip()}:{chip.default_slice}" + (f"*{pods}" if pods > 1 else "")
        )
    return check_slice(Slice(_joined(chip, shape), shape, pods))


def domain_of(chip: Chip, chips: int) -> int:
    """Chips of each NVLink domain that so many are rented in, 0 if they are not available.

    A rack of trays (72 GPUs, 4 to a tray) is rented whole or in part: a job of several racks takes as many trays of
    each, the most that come out even and at least half of them.

    >>> [domain_of(load_chip("gb200"), chips) for chips in (8, 72, 128, 144, 256, 76)]
    [72, 72, 64, 72, 64, 0]
    >>> domain_of(load_chip("h100"), 12)
    0
    """
    assert isinstance(chip.network, Tree)
    node, tray = chip.network.levels[0].degree, chip.host_chips
    if chips <= node:
        return node if tray >= node or chips <= tray or chips % tray == 0 else 0
    if tray >= node:
        return node if chips % node == 0 else 0
    return next((size for size in range(node - node % tray, node // 2 - 1, -tray) if chips % size == 0), 0)


def with_domain(chip: Chip, size: int) -> Chip:
    """The chip in NVLink domains of `size`, each with its share of the network above."""
    assert isinstance(chip.network, Tree)
    node, *above = chip.network.levels
    share, facts = size / node.degree, dict(chip.facts)
    for level in above:
        path = f"levels.{level.name}.bandwidth"
        facts[path] = replace(facts[path], value=facts[path].value * share, note=f"{size} of {node.degree} GPUs a rack")
    levels = replace(node, degree=size), *(replace(level, bandwidth=level.bandwidth * share) for level in above)
    return replace(chip, network=Tree(levels), facts=facts)


def _joined(chip: Chip, shape: tuple[int, ...]) -> Chip:
    """The chip as so many are joined: in its own domains, or in smaller ones that come out even."""
    if not isinstance(chip.network, Tree) or len(shape) != 1:
        return chip
    size = domain_of(chip, shape[0])
    return with_domain(chip, size) if size and size != chip.network.levels[0].degree else chip


def parse_target(text: str) -> tuple[Chip, Slice | None]:
    """A chip alone (`v5e`) or a slice (`v5e:4x4`), for questions that make sense of both."""
    chip, shape, _ = _split(text)
    if shape is None and "*" not in text:
        return chip, None
    piece = parse_slice(text)
    return piece.chip, piece


def _canonical(text: str) -> str:
    """`8xh100`, `h100x8`, `v6e-256` and `p5.48xlarge` as `h100:8` and `v6e:16x16`; what is none of these as it is.

    Cloud names of v2 to v4, v5p and TPU7x count TensorCores, of which a chip has two: `v5p-8` is 4 chips.

    >>> [_canonical(text) for text in ("8xH100", "h100x8", "v6e-256", "v5p-8", "v5litepod-16", "v5e:4x4", "a100-40gb")]
    ['H100:8', 'h100:8', 'v6e:16x16', 'v5p:2x2x1', 'v5litepod:4x4', 'v5e:4x4', 'a100-40gb']
    >>> _canonical("2x4090"), _canonical("4090x2")
    ('4090:2', '4090:2')
    """
    written, changes = split_changes(text.strip())
    if (named := spelled(written)) != written:
        chip, _, shape = named.partition(":")
        return f"{chip}{''.join(f'+{change}' for change in changes)}:{shape}"
    match = _SPOKEN.fullmatch(written) if len(text) < 100 else None
    if match is None or is_chip(written):
        return text
    name = (match["after"] or match["before"] or match["dashed"]).strip()
    if not is_chip(name):
        return text
    count, chip = _count(match["count"] or match["number"], text), load_chip(name)
    changed = name + "".join(f"+{change}" for change in changes)
    if not isinstance(chip.network, Torus):
        return f"{changed}:{count}"
    if match["dashed"] and chip.name in _BY_CORES:
        if count % 2:
            raise InputError(f"{shorten(text)} counts TensorCores, two a chip, so its number is even.")
        count //= 2
    shapes = [shape for shape in possible_shapes(chip) if math.prod(shape) == count]
    if not shapes:
        sizes = {math.prod(shape) for shape in possible_shapes(chip)}
        close = ", ".join(map(str, sorted(sorted(sizes, key=lambda size: (abs(size - count), size))[:3])))
        raise InputError(f"{shorten(text)} is {count} chips, of which no slice is made; nearest: {close}.")
    return f"{changed}:{_x(min(shapes, key=sum))}"


def slice_note(text: str) -> str:
    """How a slice that was written by another name is read, where that is not plain to see.

    >>> slice_note("v5p-8"), slice_note("8xh100")
    ('v5p-8 is read as v5p:2x2x1, 4 chips (Cloud names of v5p count TensorCores, two a chip).', '')
    >>> slice_note("v6e:8"), slice_note("h100:8")
    ('v6e:8 is read as v6e:2x4, 8 chips.', '')
    """
    match = _SPOKEN.fullmatch(split_changes(text.strip())[0]) if len(text) < 100 else None
    read = _canonical(text)
    counted = re.search(r":\d+$", text.strip()) is not None
    if (match is None or read == text or ":" not in read) and not counted:
        return ""
    piece = parse_slice(read)
    if not isinstance(piece.chip.network, Torus) or piece.chip.network.axes == 1:
        return ""
    cores = match is not None and match["dashed"] and piece.chip.name in _BY_CORES
    why = f" (Cloud names of {piece.chip.name} count TensorCores, two a chip)" if cores else ""
    return f"{text.strip()} is read as {piece}, {piece.chips:,} chips{why}."


def _count(digits: str, text: str) -> int:
    """A number of chips; no cluster has millions of them."""
    number = int(digits) if len(digits) <= 30 else MOST_CHIPS + 1
    if number > MOST_CHIPS:
        raise InputError(f"{shorten(text)} has more than {MOST_CHIPS:,} chips, which nobody builds; take fewer.")
    if not number:
        raise InputError(f"{shorten(text)} has a size of 0; a slice has at least one chip.")
    return number


def _split(text: str) -> tuple[Chip, tuple[int, ...] | None, int]:
    text = _canonical(text)
    match = _SLICE.fullmatch(text.strip()) if len(text) < 500 else None
    if match is None or ("*" in text and match["pods"] is None):
        raise InputError(f"{shorten(text)} is not a slice; write CHIP:TOPOLOGY such as 'v5p:8x16x16' or 'h100:4096'.")
    if ":" in match["chip"] and not chip_path(match["chip"]):
        name, _, shape = match["chip"].partition(":")
        load_chip(name)
        wrong = f"{shorten(text)} has the topology {shorten(shape)}"
        raise InputError(f"{wrong}; write sizes joined by x, such as 'v5e:4x4'.")
    shape = tuple(_count(size, text) for size in re.split("[xX×]", match["shape"])) if match["shape"] else None
    pods = _count(match["pods"], text) if match["pods"] else 1
    if math.prod(shape or ()) * pods > MOST_CHIPS:
        raise InputError(f"{shorten(text)} has more than {MOST_CHIPS:,} chips, which nobody builds; take fewer.")
    chip = load_chip(match["chip"].strip())
    return chip, _only_shape(chip, shape), pods


def _only_shape(chip: Chip, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """`8` of a chip that is wired as a torus as `2x4`, where no other slice has as many chips."""
    if shape is None or len(shape) != 1 or not isinstance(chip.network, Torus) or chip.network.axes == 1:
        return shape
    alike = [found for found in possible_shapes(chip) if math.prod(found) == shape[0]]
    return alike[0] if len(alike) == 1 else shape


def check_slice(piece: Slice) -> Slice:
    """The slice itself if it can exist; otherwise the reason and the nearest that can."""
    if reason := _impossible(piece):
        options = ", ".join(map(str, nearest_slices(piece)))
        raise InputError(f"{piece} is not available: {reason}. Possible: {options}.")
    return piece


def _impossible(piece: Slice) -> str:
    chip, shape, network = piece.chip, piece.shape, piece.chip.network
    if piece.pods > 1 and chip.dcn is None and isinstance(network, Torus):
        return f"{chip.title} has no data-centre network to join {piece.pods} slices"
    if isinstance(network, Tree):
        node = network.levels[0].degree
        if len(shape) != 1:
            return f"{chip.title}s are counted, not arranged in a torus"
        if piece.pods > 1:
            alone = f"all {chip.title}s hang on one switched network; write {chip.name}:{piece.chips}"
            return f"{alone}, or {piece}@100Gb/s for {piece.pods} sites with such a WAN between them"
        if domain_of(chip, shape[0]):
            return ""
        tray = chip.host_chips
        if tray >= node:
            return f"beyond one node, {chip.title}s come in whole nodes of {node}"
        if shape[0] <= node:
            return f"beyond one tray, they come in whole trays of {tray}"
        return (
            f"beyond one rack, they come in equal parts of racks, {node // 2} to {node} GPUs in whole trays of {tray}"
        )
    if len(shape) != network.axes:
        return f"{chip.title} is wired as a {network.axes}D torus, so its slices have {network.axes} sizes"
    if math.prod(shape) > math.prod(network.pod):
        return f"a {chip.title} pod ends at {_x(network.pod)} ({math.prod(network.pod):,} chips)"
    if tuple(sorted(shape)) in {tuple(sorted(allowed)) for allowed in network.slices}:
        return ""
    if network.wrap == "cubes":
        return "" if all(size % 4 == 0 for size in shape) else "larger slices are made of whole 4x4x4 cubes"
    if not network.slices:
        fits = all(size <= limit for size, limit in zip(sorted(shape), sorted(network.pod), strict=True))
        return "" if fits else f"it does not fit into a pod of {_x(network.pod)}"
    return "slices of this shape are not cut from a pod"


def possible_shapes(chip: Chip) -> list[tuple[int, ...]]:
    """Every slice shape of one pod of a torus, smallest first."""
    network = chip.network
    assert isinstance(network, Torus)
    shapes = {tuple(shape) for shape in network.slices}
    total = math.prod(network.pod)
    if network.wrap == "cubes":
        shapes |= set(_cubes(max(network.pod), network.axes, total))
        shapes.add(tuple(network.pod))
    elif not network.slices:
        powers = [2**power for power in range(16)]
        boxes = itertools.combinations_with_replacement(powers, network.axes)
        shapes |= {box for box in boxes if all(a <= b for a, b in zip(box, sorted(network.pod), strict=True))}
    return sorted(shapes, key=lambda shape: (math.prod(shape), shape))


def _cubes(longest: int, axes: int, total: int, least: int = 4) -> Iterator[tuple[int, ...]]:
    """Boxes of whole 4x4x4 cubes with at most so many chips, sides in rising order."""
    if not axes:
        yield ()
        return
    for size in range(least, longest + 1, 4):
        if size**axes > total:
            break
        yield from ((size, *rest) for rest in _cubes(longest, axes - 1, total // size, size))


def nearest_slices(piece: Slice, count: int = 3) -> list[Slice]:
    """Slices that exist, closest in number of chips and then in shape."""
    chip, network = piece.chip, piece.chip.network
    if isinstance(network, Tree):
        wanted, whole = piece.chips, min(network.levels[0].degree, chip.host_chips)
        lower = next((size for size in range(wanted // whole * whole, 0, -whole) if domain_of(chip, size)), 0)
        upper = next(size for size in itertools.count((wanted // whole + 1) * whole, whole) if domain_of(chip, size))
        near = [wanted] if domain_of(chip, wanted) else [size for size in (lower, upper) if size]
        return [Slice(chip, (number,)) for number in near][:count]
    options = [Slice(chip, shape, piece.pods) for shape in possible_shapes(chip)]
    pod = math.prod(network.pod)
    if piece.chips > pod and chip.dcn is not None:
        options.append(Slice(chip, network.pod, math.ceil(piece.chips / pod)))
    wanted = tuple(sorted(piece.shape))

    def distance(option: Slice) -> tuple[float, float]:
        shape = tuple(sorted(option.shape))
        apart = sum(abs(math.log(a / b)) for a, b in zip(shape, wanted, strict=False))
        return abs(math.log(option.chips / piece.chips)), apart

    return sorted(options, key=distance)[: 2 if piece.chips > pod else count]


def hops(piece: Slice, source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """Links between two chips of a torus along the shortest way.

    >>> hops(parse_slice("v5e:4x4"), (0, 0), (3, 3)), hops(parse_slice("v5e:16x16"), (0, 0), (15, 15))
    (6, 2)
    """
    axes = zip(piece.shape, piece.wrap, source, target, strict=True)
    apart = [(abs(start - end), size, wraps) for size, wraps, start, end in axes]
    return sum(min(way, size - way) if wraps else way for way, size, wraps in apart)


def links_of(piece: Slice, position: tuple[int, ...]) -> int:
    """Links that a chip at this position of a torus really has: fewer at the edge of an axis that does not wrap."""
    axes = zip(piece.shape, piece.wrap, position, strict=True)
    return sum(2 if wraps else (place > 0) + (place < size - 1) for size, wraps, place in axes)
