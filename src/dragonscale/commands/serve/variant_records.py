"""Records of what stands beside a configuration: limits, drafts, cached prefixes, frontiers, errors."""

import msgspec

from dragonscale.physics.units import render

# Part by which a gain differs from 1 that nobody would notice.
HARDLY = 0.05


class LimitRow(msgspec.Struct):
    """A limit of serving this model on this chip, solved: its formula at datasheet rates, and the number."""

    name: str
    counts: str
    formula: str
    value: float


class DraftRow(msgspec.Struct):
    """A loop that drafts so many tokens: seconds of both halves, tokens it yields, seconds per token."""

    drafts: int
    drafting_s: float
    verifying_s: float
    tokens: float
    per_token_s: float
    speedup: float


class DrafterRow(msgspec.Struct):
    """Another way to draft as many tokens a step: tokens/s of the replica over those without drafts at the same
    batch."""

    drafter: str
    acceptance: list[float]
    gain: float
    source: str


class Speculation(msgspec.Struct):
    """Drafting in the best configuration. `hurts_from_batch` is the batch from which no draft pays, if there is one up
    to `most_batch`, the largest that fits."""

    acceptance: list[float]
    drafter: str
    batch: int
    rows: list[DraftRow]
    best_drafts: int
    drafts: int
    """Those of the configuration."""
    most_batch: int
    hurts_from_batch: int | None
    source: str = ""
    """Who says the acceptance, where nobody who asked does."""
    server_gain: float | None = None
    """Tokens/s of the replica over those without drafts at this batch, prompts included."""
    asked: bool = False
    """Whether drafts were asked for."""
    limit: int | None = None
    """Sequences that the engine runs at once at most where it drafts and nobody says how many, if they are fewer than
    the batch."""
    limited_gain: float | None = None
    """Tokens/s under that limit over those of the whole batch without drafts."""
    others: list[DrafterRow] = []
    alone: str = ""
    """What a draft model on one chip would take where it is split over several and is quicker by itself."""

    @property
    def verdict(self) -> str:
        """Whether drafts pay at this batch, and from how many tokens a step on."""
        row = next((row for row in self.rows if row.drafts == self.drafts), self.rows[-1])
        gain = self.server_gain or row.speedup
        needed = (row.drafting_s + row.verifying_s) / self.rows[0].verifying_s
        text = f"{_worth(gain)}: {gain:.2f}x the tokens/s of none at a batch of {self.batch:,}"
        if self.limit is not None and self.limited_gain is not None:
            text = (
                f"{_worth(self.limited_gain)} by default: where it drafts the engine runs at most {self.limit:,} at "
                f"once, which makes {self.limited_gain:.2f}x the tokens/s of {self.batch:,} without drafts; "
                f"with --max-seqs {self.batch} {gain:.2f}x"
            )
        return f"{text}; it pays from {needed:.2f} tokens a step on, and {row.tokens:.2f} are expected"

    def loss(self, drafts: int) -> str:
        """That drafts do not pay, and by how much, where the configuration has none or too many."""
        none, *others = self.rows
        row = next((one for one in others if one.drafts == drafts), min(others, key=lambda one: one.per_token_s))
        if row.per_token_s <= none.per_token_s:
            return ""
        each = f"{row.drafts} draft{'s' * (row.drafts > 1)} a step make a token {1 / row.speedup - 1:.0%} slower"
        return f"Drafting does not pay at a batch of {self.batch:,}: {each} than none."


class CountedRun(msgspec.Struct):
    """Prompts that come together, or at a `rate`, timed from the first to the last token, with the prompts before any
    token and the tail in which few requests are left. `lengths` is `fixed` or `lognormal`; rates are of all
    replicas."""

    requests: int
    lengths: str
    seconds: float
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    e2e_p90_s: float
    rate: float | None = None

    @property
    def text(self) -> str:
        """What was run, in a few words."""
        if self.requests == 1:
            return "for one request from start to end"
        if self.lengths == "fixed":
            return f"for {self.requests:,} equal requests that start together, to the last token"
        return f"for {self.requests:,} requests of mixed lengths sent at once"


class EngineRow(msgspec.Struct):
    """One of several engines that were asked for: rates of the whole slice in the steady state of its best batch, with
    the band of the tokens, and of a benchmark's prompts that come at once. `problem` says why it does not run."""

    engine: str
    batch: int = 0
    tpot_s: float = 0.0
    ttft_s: float = 0.0
    requests_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    tokens_low: float | None = None
    tokens_high: float | None = None
    at_once_requests: int = 0
    at_once_requests_per_s: float = 0.0
    at_once_total_tokens_per_s: float = 0.0
    release: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """The row in a few words."""
        if self.problem:
            return self.problem
        rates = f"{self.output_tokens_per_s:,.0f} output tok/s, {self.requests_per_s:.3g} requests/s"
        text = f"{rates} with {self.batch:,} in flight a replica"
        if self.at_once_requests:
            text += (
                f"; {self.at_once_requests:,} prompts at once: {self.at_once_requests_per_s:.3g} requests/s, "
                f"{self.at_once_total_tokens_per_s:,.0f} tok/s in and out"
            )
        return text


class BesideRow(msgspec.Struct):
    """What a plan or a format (`asked`) is held against at the same batch; `speed` is tokens/s of a user with it over
    those without."""

    what: str
    asked: str
    tpot_s: float
    e2e_s: float
    output_tokens_per_s: float
    speed: float
    is_same: bool

    @property
    def verdict(self) -> str:
        """How the asked one compares."""
        if self.is_same:
            return f"{self.asked} changes nothing for a user"
        if self.speed > 1:
            return f"{self.asked} is {self.speed:.2f}x as fast for a user"
        return f"{self.asked} is slower for a user, {self.speed:.2f}x"

    @property
    def text(self) -> str:
        """The row in a few words."""
        times = f"TPOT {render(self.tpot_s, 's')}, {render(self.e2e_s, 's')} a request"
        return f"{self.what} gives {times}, {self.output_tokens_per_s:,.0f} tok/s: {self.verdict}"


class ServingSuspect(msgspec.Struct):
    """What could explain a slow figure: what to look at, and what the figure would then be."""

    cause: str
    look: str
    value: float


class MeasuredServing(msgspec.Struct):
    """A measured figure (`quantity` is requests, output, total, user, chip, tpot, ttft, e2e or run; `value` per second
    or in seconds) beside the nearest way to count it: `verdict` is normal, slow or fast."""

    quantity: str
    value: float
    expected: float
    verdict: str
    slowdown: float
    text: str
    suspects: list[ServingSuspect]
    likely: str


def _worth(gain: float) -> str:
    """A gain in words."""
    if gain < 1 - HARDLY:
        return "Not worth it"
    return "Worth it" if gain > 1 + HARDLY else "Hardly worth it"


class PrefixCache(msgspec.Struct):
    """What a cached prefix saves in the best configuration, and where it could live: `prefixes_hbm` fit beside the
    batch in HBM, `prefixes_host` in each 100 GB of a chip's share of host memory."""

    shared_tokens: int
    prefill_computed_s: float
    prefill_from_hbm_s: float
    prefill_from_host_s: float
    saved: float
    prefix_bytes: float
    prefixes_hbm: float
    prefixes_host: float
    host_pays: bool
    advice: str


class FrontierPoint(msgspec.Struct):
    """A configuration that no other on the same chip beats both in speed and in throughput."""

    slice: str
    plan: str
    batch: int
    tpot_s: float
    ttft_s: float
    tokens_per_s_per_user: float
    output_tokens_per_s_per_chip: float
    cost_usd_per_mtok: float | None


class ExpectedError(msgspec.Struct):
    """How far expectations of such servers (chip, engine, dense or MoE) have been from measurements, as medians of the
    relative error: latencies of static batches and single steps, throughputs of servers, and mean TPOT and TTFT of
    servers under load; null where nothing was measured. `source` says which runs the bands of the configurations rest
    on."""

    latency: float | None
    throughput: float | None
    tpot: float | None
    ttft: float | None
    source: str
    brief: str = ""
    """The same in a few words."""


class MaxRate(msgspec.Struct):
    """The largest rate that one replica of a configuration holds under the targets, found by running it
    (`requests_per_s`, null where none does; of pools that of a decode replica, and apart from it that of a prefill
    replica), with what stops larger ones; what it makes there (`good` tokens are those of requests that meet every
    target), and what that costs. `on_frontier`: no other of those that were run gives more good tokens per chip at a
    lower TPOT. With a rate that was asked for, the replicas that hold it, confirmed by running them, the part of
    what they could hold that is left over (`headroom`), and their dollars."""

    slice: str
    plan: str
    requests_per_s: float | None
    limited_by: str
    prefill_requests_per_s: float | None = None
    good_share: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    output_tokens_per_s_per_chip: float = 0.0
    good_tokens_per_s_per_chip: float = 0.0
    usd_per_mtok: float | None = None
    on_frontier: bool = False
    replicas: int | None = None
    prefill_replicas: int = 0
    headroom: float | None = None
    chips: int | None = None
    usd_per_h: float | None = None
    fleet_usd_per_mtok: float | None = None
    runs: int = 0


class RungRow(msgspec.Struct):
    """Something that could be added to the plain launch: its name, the flags that ask for it, and what the answer with
    these flags gives over the one without, as a fraction of the tokens per chip (null where it does not run). `plan` is
    that answer's plan; `text` says all of it."""

    name: str
    flags: dict[str, str]
    gain: float | None
    plan: str
    text: str
