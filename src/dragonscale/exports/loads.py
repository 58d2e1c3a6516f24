"""The planned traffic as a load test: `vllm bench serve`, `python -m sglang.bench_serving`, or `aiperf profile`.

Prompts are random tokens of the planned lengths without spread, and answers go on to their planned end, so that what is
measured is what was planned. With a rate requests come at random times of that rate; without one as many clients as the
plan has sequences send one request after the other. The part of a prompt that is expected in the prefix cache is one
prefix that all prompts share, or, for SGLang's, the beginning of a group of prompts.
"""

from dataclasses import dataclass

from dragonscale.exports.flags import flag_words, shell_lines
from dragonscale.exports.header import header
from dragonscale.exports.model_names import hub_id
from dragonscale.exports.runs import ServingRun
from dragonscale.exports.target import Target, target_named
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import WrittenFiles
from dragonscale.physics.units import parse

TERMS = load_terms("loads")
ROUNDS = 8
"""Requests of each client: what is begun and what is left over at the end is then a small part."""
SECONDS = 300
"""How long requests come where there is a rate."""
LEAST, MOST = 100, 100_000
SHARING = 16
"""Prompts that begin alike."""


@dataclass(frozen=True)
class LoadTest:
    """The traffic of a run as load generators ask for it; `software` is what is tested."""

    run: ServingRun
    software: Target

    @property
    def model(self) -> str:
        return hub_id(self.run.file.model)

    @property
    def models(self) -> list[str]:
        return [self.model]

    @property
    def replicas(self) -> int:
        return self.run.file.replicas or 1

    @property
    def rate(self) -> float:
        text = self.run.file.traffic.rate
        return parse(text, "count/s", "the rate") if text else 0.0

    @property
    def at_rate(self) -> float | str:
        return self.rate or "inf"

    @property
    def clients(self) -> int:
        return max(self.run.file.batch, 1) * self.replicas

    @property
    def shared(self) -> int:
        return round(self.run.file.traffic.prompt * self.run.file.traffic.cached)

    @property
    def fresh(self) -> int:
        return self.run.file.traffic.prompt - self.shared

    @property
    def some_fresh(self) -> int:
        return max(self.fresh, 1)

    @property
    def count(self) -> int:
        return min(max(round(self.rate * SECONDS) if self.rate else ROUNDS * self.clients, LEAST), MOST)

    @property
    def warmups(self) -> int:
        return min(self.clients, 32)

    @property
    def dataset(self) -> str:
        return "generated-shared-prefix" if self.shared else "random-ids"

    @property
    def groups(self) -> int:
        return -(-self.count // SHARING)

    @property
    def ending(self) -> list[str]:
        return ["ignore_eos:true", f"min_tokens:{self.run.file.traffic.output}"]

    @property
    def of_sglang(self) -> bool:
        return self.software.name in ("sglang", "sgl-jax")

    @property
    def pools(self) -> bool:
        return self.run.prefill is not None

    @property
    def goodput(self) -> list[str]:
        """The targets, in milliseconds."""
        own = {"ttft": self.run.file.targets.ttft, "tpot": self.run.file.targets.tpot}
        return [f"{name}:{parse(text, 's', name) * 1000:g}" for name, text in own.items() if text]

    @property
    def named_goodput(self) -> str:
        text = " ".join(self.goodput)
        return text.replace("ttft", "time_to_first_token").replace("tpot", "inter_token_latency")


@dataclass(frozen=True)
class LoadGenerator:
    """A load generator by the name of its target."""

    name: str

    def write(self, run: ServingRun, software: Target) -> WrittenFiles:
        """The command of a load test, as a script."""
        test, table = LoadTest(run, software), target_named(self.name).key_table()
        own = TERMS.tables[self.name]
        words = [*own["words"], *flag_words(table, TERMS.group(self.name, test))]
        title = f"{table.software} {table.version}, against {software.title}"
        lines = ["#!/usr/bin/env bash", header(run, title) + "set -euo pipefail", "", shell_lines(words)]
        told = {"scored": own.get("scored"), "all_replicas": test.replicas > 1 or test.pools}
        return WrittenFiles({own["file"]: "\n".join(lines) + "\n"}, notes=TERMS.notes(told, url=own["url"]))
