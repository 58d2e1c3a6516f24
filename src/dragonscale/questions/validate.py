"""What `dscale validate …` and `ds.validate` can be asked."""

from dataclasses import dataclass

from dragonscale.questions.flag import ENGINE, SHOW, STACK, Switch, Text, Whole

KINDS = {
    "training": "Score expected step times and memory of training runs against measured ones.",
    "inference": "Score expected latencies and throughputs of inference runs against measured ones.",
    "serving": "Score simulated times to the first token and between tokens against measured ones.",
    "collectives": "Score expected times of collectives against measured ones.",
    "kernels": "Score expected times of single kernels against measured ones.",
    "memory": "Score expected peaks of memory, and whether runs fit, against measured ones.",
}
FILE = Text(
    "A CSV, plain or gzipped, of measured runs: published columns or typed ones.",
    value="FILE", place=True, offers="files",
)  # fmt: skip
BY_STACK = STACK.but(
    about="Score every row by this stack; auto: by what people run on its chips. Else by its own.", default=""
)
BY_ENGINE = ENGINE.but(
    about="Score every row by this engine as it is shipped; auto: by what people run. Else by its own."
)
SEARCH = Switch("Lay the recommended plan of every job beside the best measured one.", group=SHOW)
JOBS = Whole("With --search: at most so many jobs, evenly chosen (0: all).", default=0, value="N", group=SHOW)
CHOICES = Switch("Add what the predicted best configuration costs over the measured best.", group=SHOW)


@dataclass(frozen=True)
class ScoreQuestion:
    """A file of measured collectives, kernels, inference or memory."""

    file: Text = FILE


@dataclass(frozen=True)
class TrainingScoreQuestion(ScoreQuestion):
    """A file of measured training runs."""

    stack: Text = BY_STACK
    search: Switch = SEARCH
    jobs: Whole = JOBS


@dataclass(frozen=True)
class ServingScoreQuestion(ScoreQuestion):
    """A file of measured serving runs."""

    engine: Text = BY_ENGINE
    choices: Switch = CHOICES


@dataclass(frozen=True)
class ValidateQuestion:
    """A file of measured runs and their kind; `stack`, `search` and `jobs` are of training, `engine` and `choices`
    of serving."""

    kind: Text = Text(f"{', '.join(KINDS)}.", value="KIND", place=True, offers=tuple(KINDS))
    file: Text = FILE
    stack: Text = BY_STACK
    search: Switch = SEARCH
    jobs: Whole = JOBS
    engine: Text = BY_ENGINE
    choices: Switch = CHOICES
