"""The commands: what each is asked, what answers it, how it is told in help. Nothing is loaded before it is needed."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dragonscale.questions.flag import Field, fields_of
from dragonscale.questions.output import ALWAYS, Output


@dataclass(frozen=True)
class Command:
    """A command: where its question and the function that answers it are, as `module:name`.

    The function takes the question and a `Listener` and returns a `Record`. `outputs` are the flags of `Output`
    that it takes beyond those of every command; `charts` what `--chart` offers.
    """

    name: str
    about: str
    question: str
    answer: str
    group: str
    examples: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    page: str = ""
    """The page of the docs."""

    def asked_by(self) -> type:
        return _named(self.question)

    def answered_by(self) -> Any:
        return _named(self.answer)

    def fields(self) -> tuple[Field[Any, Any], ...]:
        """Every flag: those of the question, and how the answer is given."""
        taken = (*self.outputs, *ALWAYS)
        shown = [field for field in fields_of(Output) if field.name in taken]
        if self.charts:
            shown = [
                field.but(about=_drawn(self.charts), offers=self.charts) if field.name == "chart" else field
                for field in shown
            ]
        return (*fields_of(self.asked_by()), *shown)


def _drawn(charts: tuple[str, ...]) -> str:
    return f"What --plot draws: {', '.join(charts)}."


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


PLANNING, PHYSICS, PROOF, FACTS = "Plan", "Understand", "Prove and run", "Look up"

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "train",
            "How to split a training run over chips, how long a step takes, what bounds it, what it costs.",
            "dragonscale.questions.train:TrainQuestion",
            "dragonscale.reports.train.ask:ask",
            PLANNING,
            (
                "dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --tokens 15T",
                'dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --plan "tp8 pp4 dp16" --measured 8.2s',
                "dscale train llama3-8b --on any --batch 1M --seq 8k --tokens 1T --deadline 30d",
            ),
            ("explain", "verify", "save", "timeline", "plot", "chart", "theme"),
            ("time", "memory", "mesh", "roofline", "scaling", "answer"),
            "training",
        ),
        Command(
            "verify",
            "Does the real compiler agree with the plan? Memory, FLOPs and every collective, planned and compiled.",
            "dragonscale.questions.verify:VerifyQuestion",
            "dragonscale.reports.verify.ask:ask",
            PROOF,
            (
                "dscale verify fsdp=8,remat=block --model llama3-8b --on h100:8 --batch 16seq --seq 8192",
                "dscale verify plan.toml --mode full --html report.html",
                "dscale verify tensor=8 --program decode --model llama3-70b --on v5e:2x4 --batch 64 --seq 2560",
            ),
            ("explain", "plot", "chart", "theme", "html"),
            ("compiled",),
            "verify",
        ),
        Command(
            "sweep",
            "Many questions at once, on all cores or a Ray cluster: resumable, one bad entry never stops the rest.",
            "dragonscale.questions.sweep:SweepQuestion",
            "dragonscale.reports.sweep.ask:ask",
            PLANNING,
            (
                "dscale sweep grid.toml --out results.jsonl --table rows.csv",
                "dscale sweep grid.toml --out results.jsonl --retry --jobs 8",
                "dscale sweep grid.toml --plot sweep.svg --columns mfu,batch,seq",
            ),
            ("explain", "plot", "chart", "theme", "table"),
            ("auto", "lines", "heat", "bars"),
            "training",
        ),
        Command(
            "models",
            "What a model weighs: parameters, FLOPs, KV cache and activations, by part; or all presets.",
            "dragonscale.questions.models:ModelsQuestion",
            "dragonscale.reports.models.ask:ask",
            FACTS,
            (
                "dscale models",
                "dscale models llama3-70b --seq 32k --kv-dtype fp8",
                "dscale models my/config.json --as llama --assume head_dim=128",
            ),
            ("plot", "chart", "theme"),
            ("parameters", "flops"),
            "models",
        ),
        Command(
            "estimate",
            "The back of the envelope: FLOPs, days, dollars, bytes and floors, each with its formula.",
            "dragonscale.questions.estimate:EstimateQuestion",
            "dragonscale.reports.estimate.ask:ask",
            PHYSICS,
            (
                "dscale estimate llama3-70b --on h100:1024 --tokens 15T --mfu 40%",
                "dscale estimate llama3-70b --on h100:8 --batch 64 --context 8192 --weights fp8",
                "dscale estimate --params 70e9 --tokens 15T --on h100:1024",
            ),
            page="estimate",
        ),
    )
}
