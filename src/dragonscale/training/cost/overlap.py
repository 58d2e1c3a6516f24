"""The forward and the backward pass of one layer in one microbatch: kernels, communication, and how much of the
communication is exposed.

Kernels run one after the other. Moves of activations are waited for, except for the share that the software overlaps
with the matmuls next to them. ZeRO-3's weights are gathered, and their gradients scattered, under the layer as far as
it is long. Where the host issues kernels more slowly than the chip runs them, the rest of the host's time is exposed.

The lines of a section are summed once into buckets (`SectionSums`), and passes are made of these sums, for one plan or
for arrays of plans.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dragonscale.models.recompute_modules import is_modules
from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.plan.reader import Reading
from dragonscale.plan.recompute import recomputed
from dragonscale.training.plan.setting import PassLine
from dragonscale.training.plan.stack import Stack, remat_of

Exposed = tuple[Number, Number]
"""Seconds of a move, and the seconds of it that are exposed."""

# Buckets of moves that are waited for: activations over these axes.
WAITED = ("tensor", "context", "expert")

# Keeps a division by a sum of seconds finite where nothing moves; far below any time that is measured.
TINY_S = 1e-300


def bucket(line: PassLine) -> str:
    """What a line's seconds are summed under: kernels, or moves by what they carry and over which axes."""
    if not line.moves:
        return "kernels"
    if line.carries == "weight":
        return "update" if line.phase == "update" else "weight"
    if line.carries == "gradient":  # ZeRO scatters gradients, replicas sum them
        return "scatter" if line.kind == "reduce_scatter" else "reduce"
    # Experts spread over `tensor` or `context` exchange tokens over several axes: that is the expert all-to-all.
    for axis in ("expert", "context"):
        if axis in line.axes:
            return axis
    return "tensor"


def rerun_share(line: PassLine, reading: Reading, remat: str, stack: Stack) -> Number:
    """The share of a forward line that runs again in the backward pass under a remat policy.

    A framework that recomputes a block runs all of it again, collectives included; a compiler only the ops whose
    results the gradients read.
    """
    if line.phase != "forward" or line.carries == "weight" or "block" not in reading.section.name:
        return 0.0
    remat = remat_of(stack, remat)
    if not stack.recompute.whole or is_modules(remat):
        return _needed_share(line, reading, "block" if remat == "offload" else remat)
    if remat == "none":
        return 0.0
    if remat in ("block", "offload") or line.kind in ("attention", "elementwise"):
        return 1.0
    if remat == "selective" and not line.moves:
        return stack.recompute.selective_matmuls
    return 0.0


def is_kept(line: PassLine, remat: str) -> bool:
    """Whether a line takes no time in the backward pass although a compiler without its kernel would run it again."""
    return line.kept and remat not in ("block", "offload")


def _needed_share(line: PassLine, reading: Reading, remat: str) -> Number:
    """The share of a line that gradients need again, by FLOPs."""
    rerun_ops, rerun_moves = recomputed(reading, remat)
    if line.moves and line.what != "P":
        return float(line.ops[0][0] in rerun_moves)
    if line.kind == "attention" and reading.rules.ring and not is_modules(remat):
        return 1.0  # a ring runs again for the softmax sums that its gradient needs
    rerun = [flops for op, flops in line.ops if op in rerun_ops]
    if not rerun:
        return 0.0
    if len(rerun) == len(line.ops):
        return 1.0
    return sum(rerun) / sum(flops for _, flops in line.ops)


@dataclass
class SectionSums:
    """A section's sums over its lines in one microbatch.

    `seconds` are by (bucket, phase); `cover`, by phase, are the seconds under which keys and values may travel;
    `rerun`, by (bucket or "cover", remat policy), are seconds that run again; `issued` and `experts`, by phase, count
    kernels to issue and experts of grouped matmuls; `offload` are the seconds to send what the section saves to the
    host."""

    seconds: dict[tuple[str, str], Number] = field(default_factory=dict)
    cover: dict[str, Number] = field(default_factory=dict)
    rerun: dict[tuple[str, str], Number] = field(default_factory=dict)
    issued: dict[str, float] = field(default_factory=dict)
    experts: dict[str, Number] = field(default_factory=dict)
    offload: Number = 0.0

    def total(self, name: str, *phases: str) -> Number:
        """Seconds of a bucket in some phases."""
        return sum((self.seconds.get((name, phase), 0.0) for phase in phases), 0.0)

    def merged(self, other: "SectionSums") -> "SectionSums":
        """The sums of two sets of lines that have no bucket in common."""
        return SectionSums(
            seconds=self.seconds | other.seconds,
            cover=self.cover | other.cover,
            rerun=self.rerun | other.rerun,
            issued=self.issued | other.issued,
            experts=self.experts | other.experts,
            offload=self.offload + other.offload,
        )


def sum_lines(
    lines: Iterable[PassLine], reading: Reading, stack: Stack, remats: Iterable[str], quantity: str = "expected_s"
) -> SectionSums:
    """The sums of a section's lines, with what runs again under each of some remat policies."""
    sums, policies = SectionSums(), tuple(remats)
    for line in lines:
        name, phase, seconds = bucket(line), line.phase, line.total(quantity)
        sums.seconds[name, phase] = sums.seconds.get((name, phase), 0.0) + seconds
        if not line.moves:
            sums.cover[phase] = sums.cover.get(phase, 0.0) + line.covers
            sums.issued[phase] = sums.issued.get(phase, 0.0) + line.launches
            sums.experts[phase] = sums.experts.get(phase, 0.0) + line.experts
        for remat in policies:
            if is_kept(line, remat) and quantity == "expected_s":
                continue
            share = rerun_share(line, reading, remat, stack)
            if isinstance(share, float) and not share:  # an array or a formula may be zero for some plans alone
                continue
            sums.rerun[name, remat] = sums.rerun.get((name, remat), 0.0) + share * seconds
            if not line.moves:
                sums.rerun["cover", remat] = sums.rerun.get(("cover", remat), 0.0) + share * line.covers
    return sums


@dataclass(frozen=True)
class LayerPass:
    """Seconds of a layer's forward or backward pass: kernels, recomputed ones, what the pass takes longer for the
    gradients of weights (which zero-bubble schedules can put off), the host's excess, copies of weights and gradients,
    and moves by bucket."""

    kernels: Number
    recomputed: Number
    weight_part: Number
    host: Number
    copies: Number
    moves: dict[str, Exposed]

    @property
    def seconds(self) -> Number:
        """How long the pass takes."""
        exposed = sum((exposed for _, exposed in self.moves.values()), 0.0)
        return self.kernels + self.recomputed + self.host + self.copies + exposed

    def repeated(self, times: float) -> "LayerPass":
        """The pass run several times: of a model that is trained, and of references to it."""
        return LayerPass(
            kernels=times * self.kernels,
            recomputed=times * self.recomputed,
            weight_part=times * self.weight_part,
            host=times * self.host,
            copies=times * self.copies,
            moves={name: (times * seconds, times * exposed) for name, (seconds, exposed) in self.moves.items()},
        )

    def mixed(self, other: "LayerPass", share: Number) -> "LayerPass":
        """The mean over layers of which a share runs as `other`."""

        def mean(mine: Number, theirs: Number) -> Number:
            return mine + share * (theirs - mine)

        moves: dict[str, Exposed] = {}
        both = zip(self.moves.items(), other.moves.values(), strict=True)
        for (name, (seconds, exposed)), (other_seconds, other_exposed) in both:
            moves[name] = (mean(seconds, other_seconds), mean(exposed, other_exposed))
        return LayerPass(
            kernels=mean(self.kernels, other.kernels),
            recomputed=mean(self.recomputed, other.recomputed),
            weight_part=mean(self.weight_part, other.weight_part),
            host=mean(self.host, other.host),
            copies=mean(self.copies, other.copies),
            moves=moves,
        )


@dataclass(frozen=True)
class StateMoves:
    """How often weights are gathered and gradients scattered, over once a microbatch."""

    gathers: Number = 1.0
    scatters: Number = 1.0


@dataclass(frozen=True)
class LayerRun:
    """A layer's sums, and what decides how its communication overlaps: the stack, the remat policy, whether keys go
    round a `ring`. `two_way`: another microbatch runs backward at the same time (DualPipe). `offloads`: what the layer
    saves goes to the host and back."""

    sums: SectionSums
    stack: Stack
    remat: str
    ring: bool = False
    two_way: Number = False
    state_moves: StateMoves = StateMoves()
    offloads: bool = False

    def rerun(self, name: str) -> Number:
        """Seconds of a bucket that run again."""
        return self.sums.rerun.get((name, self.remat), 0.0)

    def moved(self, name: str, phase: str) -> Number:
        """Seconds of a bucket of moves in the forward or the backward pass."""
        seconds = self.sums.total(name, phase)
        if phase == "backward":
            seconds = seconds + self.rerun(name)
        return seconds

    def kernels(self, phase: str) -> Number:
        """Seconds of kernels in the forward or the backward pass."""
        if phase == "forward":
            return self.sums.total("kernels", "forward")
        return self.sums.total("kernels", "dgrad", "wgrad") + self.rerun("kernels")

    def overlappable(self, phase: str) -> Number:
        """Seconds of kernels that moves of a phase can overlap with: the phase's own; where one microbatch runs forward
        while another runs backward, the kernels of both, shared out by the moves of both."""
        kernels = self.kernels(phase)
        if isinstance(self.two_way, bool) and not self.two_way:
            return kernels
        moves = {way: sum((self.moved(name, way) for name in WAITED), 0.0) for way in ("forward", "backward")}
        both_kernels = self.kernels("forward") + self.kernels("backward")
        shared = both_kernels * moves[phase] / maximum(moves["forward"] + moves["backward"], TINY_S)
        return where(self.two_way, shared, kernels)

    def hidden_keys(self, phase: str) -> Number:
        """Seconds of keys and values travelling over `context` that are hidden: at most as long as the kernels that
        they travel under (their own pass's, and recomputed ones apart), less what the transfer takes from these."""
        sums = self.sums
        # A ring sends the next keys while attention runs on those that are there; a gather overlaps as the stack does.
        share = 1.0 if self.ring else self.stack.overlap.context
        phases = ("forward",) if phase == "forward" else ("dgrad", "wgrad")
        hidden = minimum(share * sums.total("context", phase), sum(sums.cover.get(name, 0.0) for name in phases))
        if phase == "backward":
            hidden = hidden + minimum(share * self.rerun("context"), self.rerun("cover"))
        return (1 - self.stack.overlap.contention) * hidden

    def waited(self, phase: str) -> dict[str, Exposed]:
        """Moves of activations in a phase, recomputed ones included, by bucket. They are hidden as far as the stack
        overlaps them and there are kernels to overlap with; what is hidden still takes a little of the memory bandwidth
        and of the cores from these kernels (contention)."""
        overlap = self.stack.overlap
        expert = where(self.two_way, maximum(overlap.expert, overlap.expert_two_way), overlap.expert)
        shares = {"tensor": overlap.tensor, "expert": expert}
        seconds = {name: self.moved(name, phase) for name in WAITED}
        hidden_keys = self.hidden_keys(phase)
        wanted = sum((share * seconds[name] for name, share in shares.items()), 0.0)
        # Keys come first: what they travel under hides nothing else.
        available = maximum(self.overlappable(phase) - hidden_keys, 0.0)
        granted = minimum(1.0, available / maximum(wanted, TINY_S))
        hidden = {"context": hidden_keys}
        for name, share in shares.items():
            hidden[name] = (1 - overlap.contention) * share * granted * seconds[name]
        return {name: (seconds[name], seconds[name] - hidden[name]) for name in WAITED}

    def weights(self, phase: str, span: Number, reduced: tuple[str, ...] = ()) -> Exposed:
        """Weights that are gathered (ZeRO-3), and gradients that are reduced with every microbatch. They are hidden
        under the `span` seconds of the layer, but for the contention."""
        overlap = self.stack.overlap
        seconds = self.state_moves.gathers * self.sums.total("weight", phase)
        scattered = sum((self.sums.total(name, "gradient") for name in reduced), 0.0)
        seconds = seconds + self.state_moves.scatters * scattered
        exposed = maximum(seconds - overlap.weight * span, 0.0)
        return seconds, exposed + overlap.contention * minimum(seconds, overlap.weight * span)

    def host(self, way: str, *phases: str) -> Number:
        """The host's seconds to issue the kernels of some phases, and the moves of a pass."""
        sums, stack = self.sums, self.stack
        moves = sum((name, way) in sums.seconds for name in WAITED)  # one collective to issue for each bucket
        kernels = sum(sums.issued.get(phase, 0.0) for phase in phases) + moves
        experts = sum(sums.experts.get(phase, 0.0) for phase in phases)
        return stack.host.kernel_s * (kernels + stack.experts.launches * experts)


def forward_pass(run: LayerRun, copies: Number = 0.0) -> LayerPass:
    """A layer's forward pass, with the gathering of its weights and the seconds of other copies."""
    kernels, moves = run.kernels("forward"), run.waited("forward")
    busy = kernels + sum(exposed for _, exposed in moves.values())
    host = maximum(run.host("forward", "forward") - busy - copies, 0.0)
    moves["weight"] = run.weights("forward", span=busy + copies + host)
    return LayerPass(kernels, recomputed=0.0, weight_part=0.0, host=host, copies=copies, moves=moves)


def backward_pass(run: LayerRun, reduced: tuple[str, ...], copies: Number = 0.0) -> LayerPass:
    """A layer's backward pass, with recomputation, the gathering of its weights, and the gradients that are reduced
    with every microbatch (`reduced` are their buckets)."""
    sums = run.sums
    kernels, wgrad = sums.total("kernels", "dgrad", "wgrad"), sums.total("kernels", "wgrad")
    recomputed, moves = run.rerun("kernels"), run.waited("backward")
    busy = kernels + recomputed + sum(exposed for _, exposed in moves.values())
    phases = ("dgrad", "wgrad")
    if run.remat in ("block", "offload"):  # the whole forward pass is issued again
        phases = (*phases, "forward")
    host = maximum(run.host("backward", *phases) - busy - copies, 0.0)
    span = busy + copies + host
    # Where the host is slower than the chip, putting off the gradients of weights saves the time to issue their
    # kernels, not the time to run them.
    issued_without_wgrad = run.host("backward", *(phase for phase in phases if phase != "wgrad"))
    without_wgrad = maximum(issued_without_wgrad, busy + copies - wgrad)
    moves["weight"] = run.weights("backward", span, reduced)
    if run.offloads:
        # To the host's memory under the forward pass, and back under this one.
        one_way = sums.offload
        exposed = maximum(one_way - sums.total("kernels", "forward"), 0.0) + maximum(one_way - busy, 0.0)
        moves["offload"] = (2 * one_way, exposed)
    return LayerPass(kernels, recomputed, weight_part=span - without_wgrad, host=host, copies=copies, moves=moves)
