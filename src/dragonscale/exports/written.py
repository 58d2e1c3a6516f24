"""What an export comes to: files, the programs that a launcher starts, and what the target does otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dragonscale.exports.words import Word
from dragonscale.serving.plan import ServingPlan
from dragonscale.training.plan import Plan


@dataclass(frozen=True)
class PlanDifference:
    """Something of a plan that the target cannot say: what was planned, what runs instead, and why.

    `setting` is the plan's name for it; empty where the difference is not one of the plan's settings."""

    planned: str
    instead: str
    why: str = ""
    setting: str = ""

    def __str__(self) -> str:
        because = f" ({self.why})" if self.why else ""
        return f"{self.planned} cannot be said; {self.instead}{because}"


@dataclass(frozen=True)
class LaunchProgram:
    """One command to start on hosts.

    `per` says how often a host runs it: `chip` (a process for each chip, which torchrun starts: `words` begin with the
    script, or the module where `module` is set), `rank` (the same, started by MPI) or `host` (one process). `hosts` are
    those of one copy, `chips` those of a host that it uses. Of `words`, the launcher fills in what is not text: ranks,
    addresses, where files are."""

    name: str
    words: tuple[Word, ...]
    hosts: int
    chips: int
    per: str = "host"
    module: bool = False
    copies: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    """A container image that has the software."""
    port: int = 0
    others: tuple[Word, ...] = ()
    """Words that hosts after the first add: `--headless` of an engine whose first host alone answers requests."""


@dataclass(frozen=True)
class WrittenFiles:
    """Files by name, the main one first, and what they start. `as_run` is the plan that the target runs, where that is
    not the one that was asked for."""

    files: Mapping[str, str]
    programs: tuple[LaunchProgram, ...] = ()
    differences: tuple[PlanDifference, ...] = ()
    as_run: Plan | ServingPlan | None = None
    notes: tuple[str, ...] = ()
    routing: tuple[str, ...] = ()
    """What has to be put before the servers, and who has to be told their addresses; for launchers that do neither."""
    addressed: tuple[str, ...] = ()
    """Files that name copies of programs (`prefill-0:8001`), for a launcher to put their addresses there."""

    def with_pool(
        self, other: "WrittenFiles", further: Sequence[LaunchProgram] = (), routing: tuple[str, ...] = ()
    ) -> "WrittenFiles":
        """The same with another pool of servers, and with what stands before both."""
        return replace(
            self,
            files={**self.files, **other.files},
            programs=(*self.programs, *other.programs, *further),
            differences=tuple(dict.fromkeys((*self.differences, *other.differences))),
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
            routing=routing,
        )

    def plus(self, files: Mapping[str, str]) -> "WrittenFiles":
        """The same with more files before the others: a launcher's script is what people start."""
        return replace(self, files={**files, **self.files})
