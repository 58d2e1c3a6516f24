"""What is exported: a plan with its model, its chips, its workload, and what is expected of it; and the comment that an
exported file begins with: what it is for, what to expect, what differs, what made it.

The expectation is worked out by whoever asks for an export (`app.export`); a target only writes it down. The last line
of the comment holds what the plan file says and the target has no word for (the chips, the price, the tokens of the
run, the traffic), so that an import gets it back. What the target does have a word for is never read from it: flags
that were edited count, not the comment.

>>> kept = kept_line({"model": "llama3-8b", "slice": "h100:8", "tokens": ""})
>>> kept
'dscale: {"model": "llama3-8b", "slice": "h100:8"}'
>>> read_kept(f"# {kept}\\nvllm serve …")["slice"]
'h100:8'
"""

import contextlib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dragonscale.errors import Infeasible
from dragonscale.exports.written import LaunchProgram, PlanDifference, Word, WrittenFiles
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice
from dragonscale.physics.units import parse
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import TABLES, SavedPlan
from dragonscale.serving.space.legal import divisible
from dragonscale.training.plan.builds import trainers
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import TUNED, TrainingFile
from dragonscale.training.plan.tuning import FIELDS

STEPS = 100
"""Steps that are written where a plan does not say how many tokens it trains on, and the software needs a number."""


def experts_of(model: Transformer) -> int:
    """Experts of a layer; 0 of a dense model."""
    return max((section.dims.get("e", 0) for section in model.program().sections), default=0)


ROOM = 64
"""Tokens of a chat template, at least."""
PAGE = 256
"""Lengths of requests are whole multiples of this."""


@dataclass(frozen=True)
class TrainingRun:
    """A training plan to write down. `file` is the plan file, `fields` the model's config as Hugging Face names it;
    `expected` are sentences for the header, `command` what made the export."""

    file: TrainingFile
    model: Transformer
    fields: Mapping[str, Any]
    slice: Slice
    expected: tuple[str, ...] = ()
    command: str = ""
    step_s: float = 0.0
    """Seconds of a step that are expected; 0 where that is not known."""
    notes: tuple[str, ...] = ()
    """What whoever runs it has still to set."""

    @property
    def plan(self) -> Plan:
        return self.file.plan

    def running(self, plan: Plan) -> "TrainingRun":
        """The same with the plan that a target runs in place of the one that was asked for."""
        return replace(self, file=replace(self.file, plan=plan))

    def check_built(self, trainer: str) -> None:
        """Refuse a model that a trainer of `training.builds` does not build."""
        if reason := trainers()[trainer].refuses(self.fields, self.file.model):
            raise Infeasible(f"{reason}.")

    def trained(self, plan: Plan, words: Sequence[Word], written: WrittenFiles, **program: Any) -> WrittenFiles:
        """What a trainer writes with the program that every host starts, and the plan that runs where it is another."""
        start = LaunchProgram("train", tuple(words), *hosts_of(self.slice), **program)
        return replace(written, programs=(start,), as_run=plan if plan != self.plan else None)

    @property
    def said(self) -> Mapping[str, Any]:
        """What the plan file's `[run]` says."""
        return self.file.run

    @property
    def experts(self) -> int:
        """Experts of a layer; 0 of a dense model."""
        return experts_of(self.model)

    @property
    def whole_blocks(self) -> bool:
        """Whether blocks are recomputed whole."""
        return self.plan.remat == "block"

    @property
    def hosts(self) -> int:
        """Hosts of its slice."""
        return self.slice.vms

    @property
    def all_steps(self) -> int:
        """Steps of the run by its tokens, or as the plan file says them; 0 where it says neither."""
        return self.steps or int(self.said.get("steps") or 0)

    @property
    def length(self) -> int:
        """Those steps, or as many as show that it runs."""
        return self.all_steps or STEPS

    @property
    def accumulation(self) -> int:
        """Microbatches that each data-parallel rank runs in a step."""
        return max(self.file.batch // (self.plan.replicas * self.plan.microbatch), 1)

    @property
    def steps(self) -> int:
        """Steps of the whole run; 0 where its tokens are not said."""
        text = self.file.tokens.strip()
        if not text or text == "chinchilla":
            return 0
        return max(round(parse(text, "count", "the tokens") / (self.file.batch * self.file.seq)), 1)


@dataclass(frozen=True)
class ServingRun:
    """A serving plan to write down. `engine` is the engine as it is launched on the chip, limits of the plan included;
    `prefill` is the pool that prefills, where there is one (its own plan and slice)."""

    file: SavedPlan
    model: Transformer
    fields: Mapping[str, Any]
    slice: Slice
    engine: Engine
    expected: tuple[str, ...] = ()
    command: str = ""
    prefill: "ServingRun | None" = None
    role: str = ""
    """`prefill` or `decode` for a pool of a disaggregated deployment; empty for an engine that does both."""
    notes: tuple[str, ...] = ()
    """What whoever runs it has still to set."""

    @property
    def plan(self) -> ServingPlan:
        return self.file.plan

    def served(self, plan: ServingPlan, words: Sequence[Word], written: WrittenFiles, **program: Any) -> WrittenFiles:
        """What an engine writes with the program that the hosts of a replica start, and the plan that runs where it is
        another."""
        program["copies"] = self.file.replicas or 1
        start = LaunchProgram(self.role or "serve", tuple(words), *hosts_of(self.slice), **program)
        return replace(written, programs=(start,), as_run=plan if plan != self.plan else None)

    @property
    def seqs(self) -> int:
        """Max sequences per DP rank: what engines call their maximum number of sequences."""
        if self.file.launch.max_seqs:
            return self.file.launch.max_seqs
        if self.file.batch:
            return max(-(-self.file.batch // self.file.plan.data), 1)
        return self.engine.scheduling.max_sequences

    @property
    def length(self) -> int | None:
        """Tokens of the longest request that an engine is to take: the longest of the traffic with room for chat
        templates, and no less than `mean_length`; no more than the model was made for. None where the traffic is not
        said. Outputs of traffic that does not say its longest request are up to one and a half times their mean."""
        mean_length, traffic = self.mean_length, self.file.traffic
        if mean_length is None:
            return None
        longest = traffic.longest or traffic.prompt + traffic.output * 3 // 2
        return self._whole_pages(max(longest + ROOM, mean_length))

    @property
    def mean_length(self) -> int | None:
        """Tokens of a mean request and a tenth more, for chat templates and for a tokeniser that does not cut as the
        planned lengths do: what a server reserves that gives every sequence the same room. None where the traffic is
        not said."""
        mean = self.file.traffic.prompt + self.file.traffic.output
        if not mean:
            return None
        return self._whole_pages(mean + max(mean // 10, ROOM))

    def _whole_pages(self, tokens: int) -> int:
        """So many tokens rounded up to whole pages, and no more than the model was made for."""
        wanted = -(-tokens // PAGE) * PAGE
        return min(wanted, self.model.context) if self.model.context else wanted

    @property
    def budget(self) -> int:
        """Tokens of an iteration, at most."""
        return self.engine.scheduling.max_tokens

    @property
    def prefills(self) -> bool:
        """Whether it is the pool that prefills."""
        return self.role == "prefill"

    @property
    def decodes(self) -> bool:
        return not self.prefills

    @property
    def experts(self) -> int:
        """Experts of a layer; 0 of a dense model."""
        return divisible(self.model).experts

    @property
    def hosts(self) -> int:
        """Hosts of its slice."""
        return self.slice.vms


Run = TrainingRun | ServingRun


def hosts_of(piece: Slice) -> tuple[int, int]:
    """Hosts of a slice (virtual machines of TPUs, trays of a rack) and chips of each, as launchers count them.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [hosts_of(parse_slice(text)) for text in ("h100:4", "h100:16", "gb200:16", "v5e:2x4", "v5e:4x4", "v5p:4x4x4*2")]
    [(1, 4), (2, 8), (4, 4), (1, 8), (4, 4), (32, 4)]
    """
    hosts = piece.vms
    return hosts, -(-piece.chips // hosts)


MARK = "dscale: "
_KEPT = re.compile(rf"^[^\w\n]*{re.escape(MARK)}(\{{.*\}})\s*$", re.MULTILINE)
WIDTH = 96


def header(run: Run, title: str, differences: Sequence[PlanDifference] = (), comment: str = "#") -> str:
    """The comment, each line after the mark of a comment in the target's language. `title` names the software and
    version."""
    plan = run.file.plan
    lines = [f"{title}: {run.model.name} on {run.slice}{_replicas(run)}, plan {plan}."]
    lines += [f"Expected: {text}" for text in run.expected]
    lines += [f"Differs: {one}." for one in differences]
    lines += [f"To do: {text}" for text in run.notes]
    lines += [f"Made by: {run.command}"] if run.command else []
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent="  ", break_long_words=False)
    wrapped = [row for line in lines for row in wrapper.wrap(one_line(line))]
    return comments((*wrapped, kept_line(kept_of(run))), comment)


def _replicas(run: Run) -> str:
    """How many replicas there are, where there are several, and their chips."""
    many = 1 if isinstance(run, TrainingRun) else run.file.replicas
    return f" x {many} replicas ({many * run.slice.chips} chips)" if many > 1 else ""


def kept_of(run: Run) -> dict[str, Any]:
    """What of a plan file a target has no word for."""
    file = run.file
    if isinstance(run, TrainingRun):
        names = ("model", "slice", "stack", "numerics", "tokens", "price", "documents", "skew", "capacity")
        return {name: getattr(file, name) for name in (*names, *FIELDS)}
    tables = {name: msgspec.to_builtins(getattr(file, name)) for name in TABLES}
    said = {name: {key: value for key, value in own.items() if value} for name, own in tables.items()}
    words = {name: getattr(file, name) for name in ("model", "slice", "engine", "batch", "replicas")}
    return {**words, **said}


def kept_line(values: Mapping[str, Any]) -> str:
    """What is kept, as one line."""
    return MARK + json.dumps({name: value for name, value in values.items() if value})


def read_kept(text: str) -> dict[str, Any]:
    """What the header of an exported file keeps; nothing where there is none."""
    found = _KEPT.search(text)
    if found is None:
        return {}
    try:
        kept = json.loads(found[1])
        return _checked(kept) if isinstance(kept, dict) else {}
    except (ValueError, RecursionError):
        return {}


def _checked(kept: dict[str, Any]) -> dict[str, Any]:
    """What a header may hold, each of its kind; anything else was not written by an export and is left out."""
    found: dict[str, Any] = {}
    for name, value in kept.items():
        with contextlib.suppress(msgspec.ValidationError):
            if name in TABLES:
                record = msgspec.convert(value, TABLES[name])
                found[name] = {key: one for key, one in msgspec.to_builtins(record).items() if key in value}
            elif name in _KINDS:
                found[name] = msgspec.convert(value, _KINDS[name])
    return found


_WORDS = ("model", "slice", "stack", "numerics", "engine", "tokens", "price", "documents", *TUNED)
_KINDS: dict[str, Any] = {
    **dict.fromkeys(_WORDS, str),
    **dict.fromkeys(("batch", "replicas", "lora_rank"), int),
    **dict.fromkeys(("skew", "capacity"), float),
    "rl": dict[str, str | int | float],
}


def comments(lines: Iterable[str], comment: str = "#") -> str:
    """Lines as a comment."""
    return "".join(f"{comment} {one_line(line)}\n" for line in lines)


def one_line(text: str) -> str:
    """Text without any sign that ends a line (YAML has more of these than a shell): all of it stays a comment."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
