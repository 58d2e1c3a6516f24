"""One layer's forward and backward pass in one microbatch: what runs, what travels, and what of it shows.

Kernels run one after the other. Moves of activations are waited for, but for the part that the stack hides inside the
matmuls next to them. Weights of ZeRO-3 are gathered, and their gradients scattered, under the layer as far as it is
long. Where the host issues kernels more slowly than the chip runs them, the rest of the host's time shows.

A section's lines are summed once into buckets (`SectionSums`); passes are made of these sums, for one plan or a
million.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from dragonscale.models.recompute_modules import is_modules
from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.plan.reader import Reading
from dragonscale.plan.recompute import again_places
from dragonscale.training.plan.setting import PassLine
from dragonscale.training.plan.stack import Stack, remat_of

Exposed = tuple[Number, Number]
"""Seconds, and the part of them that shows."""

WAITED = ("tensor", "context", "expert")
"""Buckets of moves that are waited for: activations over these axes."""


def bucket(line: PassLine) -> str:
    """What a line's seconds are summed under: kernels, or moves by what they carry and over which axes."""
    if not line.moves:
        return "kernels"
    if line.carries == "weight":
        return "update" if line.phase == "update" else "weight"
    if line.carries == "gradient":
        return "scatter" if line.kind == "reduce_scatter" else "reduce"
    return next((name for name in ("expert", "context", "tensor") if name in line.axes), "tensor")


def rerun_share(line: PassLine, reading: Reading, remat: str, stack: Stack) -> Number:
    """The part of a forward line that runs again in the backward pass under a remat policy.

    A framework that recomputes a block runs all of it again, collectives too; otherwise just the ops whose results the
    gradients read.
    """
    if line.phase != "forward" or line.carries == "weight" or "block" not in reading.section.name:
        return 0.0
    remat = remat_of(stack, remat)
    if not stack.recompute.whole or is_modules(remat):
        return _needed_share(line, reading, "block" if remat == "offload" else remat)
    if remat in ("none", "block", "offload"):
        return 0.0 if remat == "none" else 1.0
    if line.kind in ("attention", "elementwise"):
        return 1.0
    return stack.recompute.selective_matmuls if remat == "selective" and not line.moves else 0.0


def is_kept(line: PassLine, remat: str) -> bool:
    """Whether a line takes no time in the backward pass although a compiler without its kernel would run it again."""
    return line.kept and remat not in ("block", "offload")


def _needed_share(line: PassLine, reading: Reading, remat: str) -> Number:
    again, moved = again_places(reading, remat)
    if line.moves and line.what != "P":
        return 1.0 if line.ops[0][0] in moved else 0.0
    if line.kind == "attention" and reading.rules.ring and not is_modules(remat):
        return 1.0  # a ring runs again for the sums that its gradient needs
    rerun = [done for place, done in line.ops if place in again]
    if len(rerun) in (0, len(line.ops)):
        return 1.0 if rerun else 0.0
    return sum(rerun) / sum(done for _, done in line.ops)


@dataclass
class SectionSums:
    """A section's seconds in one microbatch by (bucket, phase); `cover` what keys and values may travel under, by
    phase; `again` what remat policies run again, by (bucket or cover, policy); kernels to issue, and experts in grouped
    matmuls, by phase."""

    seconds: dict[tuple[str, str], Number] = field(default_factory=dict)
    cover: dict[str, Number] = field(default_factory=dict)
    again: dict[tuple[str, str], Number] = field(default_factory=dict)
    issued: dict[str, float] = field(default_factory=dict)
    experts: dict[str, Number] = field(default_factory=dict)
    offload: Number = 0.0

    def of(self, name: str, *phases: str) -> Number:
        """Seconds of a bucket in some phases."""
        return sum((self.seconds.get((name, phase), 0.0) for phase in phases), 0.0)

    def beside(self, other: "SectionSums") -> "SectionSums":
        """Sums of two sets of lines that share no bucket."""
        tables = ("seconds", "cover", "again", "issued", "experts")
        joined = {name: getattr(self, name) | getattr(other, name) for name in tables}
        return SectionSums(**joined, offload=self.offload + other.offload)


def sum_lines(
    lines: Iterable[PassLine], reading: Reading, stack: Stack, remats: Iterable[str], quantity: str = "expected_s"
) -> SectionSums:
    """Sums of a section's lines, for some remat policies."""
    sums, policies = SectionSums(), tuple(remats)
    for line in lines:
        name, seconds = bucket(line), line.total(quantity)
        key = (name, line.phase)
        sums.seconds[key] = sums.seconds.get(key, 0.0) + seconds
        if not line.moves:
            sums.cover[line.phase] = sums.cover.get(line.phase, 0.0) + line.covers
            sums.issued[line.phase] = sums.issued.get(line.phase, 0.0) + line.launches
            sums.experts[line.phase] = sums.experts.get(line.phase, 0.0) + line.experts
        for remat in policies:
            free = is_kept(line, remat) and quantity == "expected_s"
            share = 0.0 if free else rerun_share(line, reading, remat, stack)
            if not isinstance(share, float) or share:
                sums.again[name, remat] = sums.again.get((name, remat), 0.0) + share * seconds
                if not line.moves:
                    sums.again["cover", remat] = sums.again.get(("cover", remat), 0.0) + share * line.covers
    return sums


@dataclass(frozen=True)
class LayerPass:
    """A layer's forward or backward pass: kernels, recomputed ones, what the pass takes longer for the weights'
    gradients (which zero-bubble schedules can put off), the host's excess, copies of weights and gradients, and what
    moves by bucket."""

    kernels: Number
    recomputed: Number
    weight_part: Number
    host: Number
    copies: Number
    moves: dict[str, Exposed]

    @property
    def seconds(self) -> Number:
        """What the pass takes."""
        shown = sum((exposed for _, exposed in self.moves.values()), 0.0)
        return self.kernels + self.recomputed + self.host + self.copies + shown

    def repeated(self, times: float) -> "LayerPass":
        """The same run so often: of a model that is trained, and of references to it."""
        names = [item.name for item in fields(self) if item.name != "moves"]
        moves = {name: (times * seconds, times * shown) for name, (seconds, shown) in self.moves.items()}
        return LayerPass(**{name: times * getattr(self, name) for name in names}, moves=moves)

    def beside(self, other: "LayerPass", share: Number) -> "LayerPass":
        """The mean of layers of which a share runs as another does."""

        def mean(mine: Number, others: Number) -> Number:
            return mine + share * (others - mine)

        names = [item.name for item in fields(self) if item.name != "moves"]
        plain = {name: mean(getattr(self, name), getattr(other, name)) for name in names}
        both = zip(self.moves.items(), other.moves.values(), strict=True)
        moves = {name: (mean(all_of, more), mean(shown, shows)) for (name, (all_of, shown)), (more, shows) in both}
        return LayerPass(**plain, moves=moves)


Often = tuple[Number, Number]
"""How often weights are gathered and gradients scattered, over once a microbatch."""


@dataclass(frozen=True)
class LayerRun:
    """A layer's sums, and what decides how its moves hide: the stack, the remat policy, whether keys go round a `ring`.
    `two_way`: another microbatch runs backward beside it (DualPipe). `offloads`: what it saves goes to the host and
    back."""

    sums: SectionSums
    stack: Stack
    remat: str
    ring: bool = False
    two_way: Number = False
    often: Often = (1.0, 1.0)
    offloads: bool = False

    def again(self, name: str) -> Number:
        """Seconds of a bucket that run again."""
        return self.sums.again.get((name, self.remat), 0.0)

    def moved(self, name: str, phase: str) -> Number:
        """Seconds of a bucket of moves in the forward or the backward pass."""
        return self.sums.of(name, phase) + (self.again(name) if phase == "backward" else 0.0)

    def kernels(self, phase: str) -> Number:
        """Seconds of kernels in the forward or the backward pass."""
        if phase == "forward":
            return self.sums.of("kernels", "forward")
        return self.sums.of("kernels", "dgrad", "wgrad") + self.again("kernels")

    def room(self, phase: str) -> Number:
        """Seconds of kernels that moves of a phase can hide under: the phase's own; where one microbatch runs forward
        beside another backward, the kernels of both, for the moves of both."""
        own = self.kernels(phase)
        if isinstance(self.two_way, bool) and not self.two_way:
            return own
        moves = {way: sum((self.moved(name, way) for name in WAITED), 0.0) for way in ("forward", "backward")}
        both = self.kernels("forward") + self.kernels("backward")
        shared = both * moves[phase] / maximum(moves["forward"] + moves["backward"], 1e-300)
        return where(self.two_way, shared, own)

    def hidden_keys(self, phase: str) -> Number:
        """Seconds that keys and values on their way over `context` do not show: no more than the kernels last that they
        travel under (their own pass's, apart from those that run again), less what the transfer takes from these
        kernels."""
        sums, share = self.sums, 1.0 if self.ring else self.stack.overlap.context
        phases = ("forward",) if phase == "forward" else ("dgrad", "wgrad")
        under = minimum(share * sums.of("context", phase), sum(sums.cover.get(name, 0.0) for name in phases))
        if phase == "backward":
            under = under + minimum(share * self.again("context"), self.again("cover"))
        return (1 - self.stack.overlap.contention) * under

    def waited(self, phase: str) -> dict[str, Exposed]:
        """Activation moves of a phase, with those that recomputation repeats, as far as the stack hides them and there
        are kernels to hide them under. What hides still takes a little of the memory's bandwidth and of the cores from
        these kernels (contention)."""
        overlap = self.stack.overlap
        expert = where(self.two_way, maximum(overlap.expert, overlap.expert_two_way), overlap.expert)
        part = {"tensor": overlap.tensor, "expert": expert}
        seconds = {name: self.moved(name, phase) for name in WAITED}
        keys = self.hidden_keys(phase)
        wanted = sum((part[name] * seconds[name] for name in part), 0.0)
        room = maximum(self.room(phase) - keys, 0.0)
        share = minimum(1.0, room / maximum(wanted, 1e-300))
        free = 1 - overlap.contention
        hidden = {"context": keys} | {name: free * part[name] * share * seconds[name] for name in part}
        return {name: (seconds[name], seconds[name] - hidden[name]) for name in WAITED}

    def weights(self, phase: str, span: Number, reduced: tuple[str, ...] = ()) -> Exposed:
        """Weights that are gathered (ZeRO-3), and gradients that are reduced with every microbatch: they hide under the
        layer as far as it is long, and what hides still takes a little of the memory's bandwidth and of the cores."""
        gathered, scattered = self.often
        overlap = self.stack.overlap
        seconds = gathered * self.sums.of("weight", phase)
        seconds = seconds + scattered * sum((self.sums.of(name, "gradient") for name in reduced), 0.0)
        exposed = maximum(seconds - overlap.weight * span, 0.0)
        return seconds, exposed + overlap.contention * minimum(seconds, overlap.weight * span)

    def host(self, way: str, *phases: str) -> Number:
        """The host's seconds to issue some phases, and the moves of a pass."""
        sums, stack = self.sums, self.stack
        moves = sum((name, way) in sums.seconds for name in WAITED)
        kernels = sum(sums.issued.get(phase, 0.0) for phase in phases) + moves
        experts = sum(sums.experts.get(phase, 0.0) for phase in phases)
        return stack.host.kernel_s * (kernels + stack.experts.launches * experts)


def forward_pass(run: LayerRun, copies: Number = 0.0) -> LayerPass:
    """A layer's forward pass, with the gathering of its weights and seconds of other copies."""
    kernels, moves = run.kernels("forward"), run.waited("forward")
    busy = kernels + sum(exposed for _, exposed in moves.values())
    host = maximum(run.host("forward", "forward") - busy - copies, 0.0)
    span = busy + copies + host
    return LayerPass(kernels, 0.0, 0.0, host, copies, moves | {"weight": run.weights("forward", span)})


def backward_pass(run: LayerRun, reduced: tuple[str, ...], copies: Number = 0.0) -> LayerPass:
    """A layer's backward pass, with recomputation, the gathering of weights and what is reduced with
    every microbatch."""
    sums = run.sums
    kernels, weights = sums.of("kernels", "dgrad", "wgrad"), sums.of("kernels", "wgrad")
    again, moves = run.again("kernels"), run.waited("backward")
    busy = kernels + again + sum(exposed for _, exposed in moves.values())
    phases = ("dgrad", "wgrad", "forward") if run.remat in ("block", "offload") else ("dgrad", "wgrad")
    host = maximum(run.host("backward", *phases) - busy - copies, 0.0)
    span = busy + copies + host
    # Where the host is slower, putting off weight matmuls saves the time to issue them, not the time they run.
    issuing = run.host("backward", *(phase for phase in phases if phase != "wgrad"))
    alone = maximum(issuing, busy + copies - weights)
    moves["weight"] = run.weights("backward", span, reduced)
    if run.offloads:
        # To the host's memory under the forward pass, and back under this one.
        way = sums.offload
        moves["offload"] = (2 * way, maximum(way - sums.of("kernels", "forward"), 0.0) + maximum(way - busy, 0.0))
    return LayerPass(kernels, again, span - alone, host, copies, moves)
