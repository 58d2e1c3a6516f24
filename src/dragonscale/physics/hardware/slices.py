"""Slices: how many chips, in what shape, joined by what network. `v5p:8x16x16`, `v5p:16x20x28*4`, `h100:4096`.

A TPU slice is a box of chips cut from a pod. Whether its axes close into rings depends on the generation: on 2D pods
only an axis of the pod's full length wraps; on 3D pods, whole 4x4x4 cubes are joined by optical switches and then every
axis wraps. `*4` joins four slices over the data-centre network. A GPU slice is a number of GPUs: whole nodes once it is
larger than one, or trays of racks that are one NVLink domain.

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
from dragonscale.physics.hardware.machine_names import as_slice
from dragonscale.physics.hardware.parts import cores
from dragonscale.physics.numbers import Number, ceil
from dragonscale.physics.units import whole_match

_SLICE = re.compile(r"(?P<chip>[^*]+?)(?::(?P<shape>[0-9]+(?:[xX×][0-9]+)*))?(?:\*(?P<pods>[0-9]+))?")
# 8xh100, 8x4090 (count, after); h100x8 (before, number); v6e-256 (dashed, number)
_COUNTED = re.compile(
    r"(?P<count>[0-9]+) ?[xX×] ?(?P<after>(?:[A-Za-z]|[0-9]{4})[\w. "
    r"-]*)|(?:(?P<before>(?:[A-Za-z]|[0-9]{4})[\w-]*?)[xX×]|(?P<dashed>[A-Za-z][\w ]*)-)(?P<number>[0-9]+)"
)
# TPUs whose Cloud names count TensorCores, of which a chip has two (Cloud TPU documentation, configurations of v4 and
# v5p: v5p-8 is 2x2x1; xpk's list of tpu7x types); names of v5e and v6e count chips.
_NAMED_BY_CORES = ("v2", "v3", "v4", "v5p", "tpu7x")
MAX_CHIPS = 2_000_000
"""Chips of a slice, at most: several times the largest clusters that have been announced."""
# Sides of the cubes of chips that 3D pods are made of.
_CUBE = 4
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
        name = f"{self.chip.name}:{_shape_text(self.shape)}"
        if self.pods > 1:
            name += f"*{self.pods}"
        return name

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
        """Virtual machines, and so processes: one per host, or several where slices of more than one host are made of
        smaller machines.

        >>> parse_slice("v6e:2x4").vms, parse_slice("v6e:16x16").vms, parse_slice("v6e:16x16").hosts
        (1, 64, 32)
        """
        chips = math.prod(self.shape)
        if chips <= self.chip.host_chips or not self.chip.vm_chips:
            return self.hosts
        return math.ceil(chips / self.chip.vm_chips) * self.pods

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
    """Chips whose main memory, as datasheets state it, holds `size` bytes, rounded up to a multiple of `whole`, such as
    the chips of a node.

    >>> chips_to_hold(load_chip("h100"), 700e9), chips_to_hold(load_chip("h100"), 700e9, whole=8)
    (9, 16)
    """
    return ceil(size / chip.hbm.capacity / whole) * whole


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def wraparound(chip: Chip, shape: tuple[int, ...]) -> tuple[bool, ...]:
    """Which axes of a shape close into rings, by the generation's rule; no axis of a switched network does."""
    network = chip.network
    if not isinstance(network, Torus) or network.wrap == "never":
        return (False,) * len(shape)
    if network.wrap == "always":
        return tuple(size > 2 for size in shape)
    if network.wrap == "cubes":
        return (_is_whole_cubes(shape),) * len(shape)
    return tuple(size == max(network.pod) for size in shape)


def _is_whole_cubes(shape: tuple[int, ...]) -> bool:
    return all(size % _CUBE == 0 for size in shape)


def parse_slice(text: str) -> Slice:
    """Read `CHIP:TOPOLOGY[*PODS]`, where CHIP is a name or the path of a TOML file, and check that it can exist."""
    parsed = _parse(text)
    chip, shape, pods = parsed.chip, parsed.shape, parsed.pods
    if shape is not None:
        return check_slice(Slice(_joined(chip, shape), shape, pods))
    if not chip.default_slice:
        example = _shape_text(chip.network.pod) if isinstance(chip.network, Torus) else str(chip.host_chips)
        raise InputError(f"{shorten(text)} names no topology; write e.g. {chip.name}:{example}.")
    name = text.strip().rpartition("*")[0] or text.strip()
    whole = f"{name}:{chip.default_slice}"
    return parse_slice(f"{whole}*{pods}" if pods > 1 else whole)


def domain_of(chip: Chip, chips: int) -> int:
    """The size of the NVLink domains that so many chips are rented in; 0 if so many are not available.

    A rack of trays (72 GPUs, 4 to a tray) is rented whole or in part. A job of several racks takes equally many trays
    of each: as many as come out even, and at least half of them.

    >>> [domain_of(load_chip("gb200"), chips) for chips in (8, 72, 128, 144, 256, 76)]
    [72, 72, 64, 72, 64, 0]
    >>> domain_of(load_chip("h100"), 12)
    0
    """
    assert isinstance(chip.network, Tree)
    node, tray = chip.network.levels[0].degree, chip.host_chips
    if chips <= node:
        fits = tray >= node or chips <= tray or chips % tray == 0
        return node if fits else 0
    if tray >= node:  # a node is one host
        return node if chips % node == 0 else 0
    # from the whole rack down to half of it, tray by tray
    all_trays = node - node % tray
    for size in range(all_trays, node // 2 - 1, -tray):
        if chips % size == 0:
            return size
    return 0


def with_domain(chip: Chip, size: int) -> Chip:
    """The chip in NVLink domains of `size`, each with its share of the network above."""
    assert isinstance(chip.network, Tree)
    node, *above = chip.network.levels
    share, facts = size / node.degree, dict(chip.facts)
    levels = [replace(node, degree=size)]
    for level in above:
        # a child of these tiers is a domain, which has the NICs of its own GPUs only
        levels.append(replace(level, bandwidth=level.bandwidth * share))
        path = f"levels.{level.name}.bandwidth"
        facts[path] = replace(facts[path], value=facts[path].value * share, note=f"{size} of {node.degree} GPUs a rack")
    return replace(chip, network=Tree(tuple(levels)), facts=facts)


def _joined(chip: Chip, shape: tuple[int, ...]) -> Chip:
    """The chip with the NVLink domains of a slice of this shape: the usual ones, or smaller ones that come out even."""
    if not isinstance(chip.network, Tree) or len(shape) != 1:
        return chip
    size = domain_of(chip, shape[0])
    if size in (0, chip.network.levels[0].degree):
        return chip
    return with_domain(chip, size)


def parse_target(text: str) -> tuple[Chip, Slice | None]:
    """A chip alone (`v5e`) or a slice (`v5e:4x4`), for questions that make sense of both."""
    parsed = _parse(text)
    if parsed.shape is None and "*" not in text:
        return parsed.chip, None
    slice_ = parse_slice(text)
    return slice_.chip, slice_


def _canonical(text: str) -> str:
    """`8xh100`, `h100x8`, `v6e-256` and `p5.48xlarge` as `h100:8` and `v6e:16x16`; other text unchanged.

    Cloud names of v2 to v4, v5p and TPU7x count TensorCores, of which a chip has two: `v5p-8` is 4 chips.

    >>> [_canonical(text) for text in ("8xH100", "h100x8", "v6e-256", "v5p-8", "v5litepod-16", "v5e:4x4", "a100-40gb")]
    ['H100:8', 'h100:8', 'v6e:16x16', 'v5p:2x2x1', 'v5litepod:4x4', 'v5e:4x4', 'a100-40gb']
    >>> _canonical("2x4090"), _canonical("4090x2")
    ('4090:2', '4090:2')
    """
    written, changes = split_changes(text.strip())
    machines = as_slice(written)
    if machines != written:
        chip_name, _, shape = machines.partition(":")
        return f"{'+'.join([chip_name, *changes])}:{shape}"
    match = whole_match(_COUNTED, written)
    if match is None or is_chip(written):
        return text
    name = (match["after"] or match["before"] or match["dashed"]).strip()
    if not is_chip(name):
        return text
    count, chip = _count(match["count"] or match["number"], text), load_chip(name)
    changed = "+".join([name, *changes])
    if not isinstance(chip.network, Torus):
        return f"{changed}:{count}"
    if match["dashed"] and chip.name in _NAMED_BY_CORES:
        if count % 2:
            raise InputError(f"{shorten(text)} counts TensorCores, two a chip, so its number is even.")
        count //= 2
    shapes = _shapes_of(chip, count)
    if not shapes:
        sizes = {math.prod(shape) for shape in possible_shapes(chip)}
        nearest = sorted(sizes, key=lambda size: (abs(size - count), size))[:3]
        options = ", ".join(map(str, sorted(nearest)))
        raise InputError(f"{shorten(text)} is {count} chips, of which no slice is made; nearest: {options}.")
    most_compact = min(shapes, key=sum)
    return f"{changed}:{_shape_text(most_compact)}"


def slice_note(text: str) -> str:
    """How a slice was read, where that is not obvious from its name; empty otherwise.

    >>> slice_note("v5p-8"), slice_note("8xh100")
    ('v5p-8 is read as v5p:2x2x1, 4 chips (Cloud names of v5p count TensorCores, two a chip).', '')
    >>> slice_note("v6e:8"), slice_note("h100:8")
    ('v6e:8 is read as v6e:2x4, 8 chips.', '')
    >>> slice_note("M2 Pro")
    'M2 Pro is read as the one with 32GB; others are m2pro-16gb.'
    """
    match = whole_match(_COUNTED, split_changes(text.strip())[0])
    canonical = _canonical(text)
    is_renamed = match is not None and canonical != text and ":" in canonical
    is_count = re.search(r":\d+$", text.strip()) is not None  # v6e:8 leaves the shape open
    if not is_renamed and not is_count:
        return _memory_note(text.strip())
    slice_ = parse_slice(canonical)
    if not isinstance(slice_.chip.network, Torus) or slice_.chip.network.axes == 1:
        return ""
    why = ""
    if match is not None and match["dashed"] and slice_.chip.name in _NAMED_BY_CORES:
        why = f" (Cloud names of {slice_.chip.name} count TensorCores, two a chip)"
    return f"{text.strip()} is read as {slice_}, {slice_.chips:,} chips{why}."


def _memory_note(text: str) -> str:
    """Which memory was taken for a chip that is sold with several, where none was named; empty otherwise."""
    chip = parse_target(text)[0]
    if len(chip.capacities) < 2 or chip.like or re.search(r"\d ?gi?b", text.lower()):
        return ""
    *others, usual = chip.capacities
    names = ", ".join(f"{chip.name}-{capacity.lower()}" for capacity in others)
    return f"{text} is read as the one with {usual}; others are {names}."


def _count(digits: str, text: str) -> int:
    """A number of chips; no cluster has millions of them."""
    # Python refuses to read thousands of digits
    number = int(digits) if len(digits) <= 30 else MAX_CHIPS + 1
    if number > MAX_CHIPS:
        raise InputError(f"{shorten(text)} has more than {MAX_CHIPS:,} chips, which nobody builds; take fewer.")
    if not number:
        raise InputError(f"{shorten(text)} has a size of 0; a slice has at least one chip.")
    return number


@dataclass(frozen=True)
class _ParsedSlice:
    """A slice as written: its chip, its shape where one is given, its pods."""

    chip: Chip
    shape: tuple[int, ...] | None
    pods: int


def _parse(text: str) -> _ParsedSlice:
    text = _canonical(text)
    match = whole_match(_SLICE, text.strip(), 500)
    if match is None or ("*" in text and match["pods"] is None):
        raise InputError(f"{shorten(text)} is not a slice; write CHIP:TOPOLOGY such as 'v5p:8x16x16' or 'h100:4096'.")
    if ":" in match["chip"] and not chip_path(match["chip"]):
        name, _, shape = match["chip"].partition(":")
        load_chip(name)
        problem = f"{shorten(text)} has the topology {shorten(shape)}"
        raise InputError(f"{problem}; write sizes joined by x, such as 'v5e:4x4'.")
    shape = None
    if match["shape"]:
        shape = tuple(_count(size, text) for size in re.split("[xX×]", match["shape"]))
    pods = _count(match["pods"] or "1", text)
    _count(str(math.prod(shape or ()) * pods), text)  # sizes that are possible alone may not be together
    chip = load_chip(match["chip"].strip())
    return _ParsedSlice(chip, _only_shape(chip, shape), pods)


def _only_shape(chip: Chip, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """`8` of a chip that is wired as a torus as `2x4`, where no other slice has as many chips."""
    if shape is None or len(shape) != 1 or not isinstance(chip.network, Torus) or chip.network.axes == 1:
        return shape
    candidates = _shapes_of(chip, shape[0])
    if len(candidates) == 1:
        return candidates[0]
    return shape


def check_slice(slice_: Slice) -> Slice:
    """The slice itself if it can exist; otherwise an error with the reason and the nearest slices that can."""
    network = slice_.chip.network
    problem = _tree_problem(slice_, network) if isinstance(network, Tree) else _torus_problem(slice_, network)
    if problem:
        options = ", ".join(map(str, nearest_slices(slice_)))
        raise InputError(f"{slice_} is not available: {problem}. Possible: {options}.")
    return slice_


def _tree_problem(slice_: Slice, network: Tree) -> str:
    """Why so many chips under switches cannot be rented; empty where they can."""
    chip, node, tray = slice_.chip, network.levels[0].degree, slice_.chip.host_chips
    if len(slice_.shape) != 1:
        return f"{chip.title}s are counted, not arranged in a torus"
    if slice_.pods > 1:
        alone = f"all {chip.title}s hang on one switched network; write {chip.name}:{slice_.chips}"
        return f"{alone}, or {slice_}@100Gb/s for {slice_.pods} sites with such a WAN between them"
    if domain_of(chip, slice_.shape[0]):
        return ""
    if tray >= node:
        return f"beyond one node, {chip.title}s come in whole nodes of {node}"
    if slice_.shape[0] <= node:
        return f"beyond one tray, they come in whole trays of {tray}"
    return f"beyond one rack, they come in equal parts of racks, {node // 2} to {node} GPUs in whole trays of {tray}"


def _torus_problem(slice_: Slice, network: Torus) -> str:
    """Why a box of chips cannot be cut from a pod; empty where it can."""
    chip, shape = slice_.chip, slice_.shape
    if slice_.pods > 1 and chip.dcn is None:
        return f"{chip.title} has no data-centre network to join {slice_.pods} slices"
    if len(shape) != network.axes:
        return f"{chip.title} is wired as a {network.axes}D torus, so its slices have {network.axes} sizes"
    if math.prod(shape) > math.prod(network.pod):
        return f"a {chip.title} pod ends at {_shape_text(network.pod)} ({math.prod(network.pod):,} chips)"
    # a box may be turned: 4x8 is 8x4
    if sorted(shape) in map(sorted, network.slices):
        return ""
    if network.wrap == "cubes":
        return "" if _is_whole_cubes(shape) else "larger slices are made of whole 4x4x4 cubes"
    if network.slices:
        return "slices of this shape are not cut from a pod"
    if _fits(shape, network.pod):
        return ""
    return f"it does not fit into a pod of {_shape_text(network.pod)}"


def _fits(shape: tuple[int, ...], pod: tuple[int, ...]) -> bool:
    """Whether a box can be turned so that it lies inside a pod."""
    return all(size <= limit for size, limit in zip(sorted(shape), sorted(pod), strict=True))


def _shapes_of(chip: Chip, count: int) -> list[tuple[int, ...]]:
    """The slice shapes of so many chips in one pod of a torus."""
    return [shape for shape in possible_shapes(chip) if math.prod(shape) == count]


def possible_shapes(chip: Chip) -> list[tuple[int, ...]]:
    """Every slice shape of one pod of a torus, smallest first."""
    network = chip.network
    assert isinstance(network, Torus)
    shapes = set(map(tuple, network.slices))
    if network.wrap == "cubes":
        shapes.update(_boxes_of_cubes(max(network.pod), network.axes, math.prod(network.pod)))
        shapes.add(tuple(network.pod))
    elif not network.slices:
        # without a list of slices, every box whose sides are powers of two
        powers = [2**power for power in range(16)]
        boxes = itertools.combinations_with_replacement(powers, network.axes)
        shapes.update(box for box in boxes if _fits(box, network.pod))
    return sorted(shapes, key=lambda shape: (math.prod(shape), shape))


def _boxes_of_cubes(longest: int, axes: int, max_chips: int, shortest: int = _CUBE) -> Iterator[tuple[int, ...]]:
    """Boxes of whole 4x4x4 cubes with at most so many chips, sides in rising order."""
    if not axes:
        yield ()
        return
    for size in range(shortest, longest + 1, _CUBE):
        if size**axes > max_chips:  # the other sides are no shorter
            break
        for others in _boxes_of_cubes(longest, axes - 1, max_chips // size, size):
            yield size, *others


def nearest_slices(slice_: Slice, count: int = 3) -> list[Slice]:
    """Slices that exist, closest in number of chips and then in shape."""
    chip, network = slice_.chip, slice_.chip.network
    if isinstance(network, Tree):
        return [Slice(chip, (size,)) for size in _nearest_counts(chip, network, slice_.chips)][:count]
    options = [Slice(chip, shape, slice_.pods) for shape in possible_shapes(chip)]
    pod = math.prod(network.pod)
    if slice_.chips > pod:
        count = 2
        if chip.dcn is not None:
            options.append(Slice(chip, network.pod, math.ceil(slice_.chips / pod)))
    wanted = sorted(slice_.shape)

    def distance(option: Slice) -> tuple[float, float]:
        """How far a slice is in number of chips, then in the lengths of its sides, both as ratios."""
        sides = zip(sorted(option.shape), wanted, strict=False)
        return abs(math.log(option.chips / slice_.chips)), sum(abs(math.log(side / other)) for side, other in sides)

    return sorted(options, key=distance)[:count]


def _nearest_counts(chip: Chip, network: Tree, wanted: int) -> list[int]:
    """Numbers of chips under switches that are available: the one wanted, or those just below and above it."""
    if domain_of(chip, wanted):
        return [wanted]
    whole = min(network.levels[0].degree, chip.host_chips)  # a node or a tray
    below = wanted // whole * whole
    above = below + whole
    while below > 0 and not domain_of(chip, below):
        below -= whole
    while not domain_of(chip, above):
        above += whole
    if below <= 0:
        return [above]
    return [below, above]


def hops(slice_: Slice, source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """Links between two chips of a torus along the shortest path.

    >>> hops(parse_slice("v5e:4x4"), (0, 0), (3, 3)), hops(parse_slice("v5e:16x16"), (0, 0), (15, 15))
    (6, 2)
    """
    total = 0
    for size, wraps, start, end in zip(slice_.shape, slice_.wrap, source, target, strict=True):
        distance = abs(start - end)
        total += min(distance, size - distance) if wraps else distance
    return total


def links_of(slice_: Slice, position: tuple[int, ...]) -> int:
    """Links of the chip at this position of a torus: fewer at the edge of an axis that does not wrap."""
    links = 0
    for size, wraps, index in zip(slice_.shape, slice_.wrap, position, strict=True):
        links += 2 if wraps else (index > 0) + (index < size - 1)
    return links
