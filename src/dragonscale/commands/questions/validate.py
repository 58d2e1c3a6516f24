"""What `dscale validate …` and `ds.validate` can be asked."""

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import SHOW, Question, Switch, Text, Thing, Whole

KINDS = ("training", "inference", "serving", "collectives", "kernels", "memory", "finetune", "rl")
FILE = Text(value="FILE", place=True, offers="files")
"""A CSV, plain or gzipped, of measured runs: published columns or typed ones."""
TRAINING_FILE = FILE.but()
"""A CSV of measured runs; or, with --plan, the log of one: Megatron-LM, torchtitan, MaxText, DeepSpeed, Hugging
Face."""
SERVING_FILE = FILE.but()
"""A CSV of measured runs; or, with --plan, the result of one load test: vllm bench serve, sglang.bench_serving,
AIPerf, --record of run serve."""
RUN_PLAN = shared.PLAN.but()
"""The plan that ran (a .toml that --save wrote, tp8 pp4 dp16, or the config or command that was run): FILE is its
log."""
RUN_MODEL = shared.MODEL.but(default="", place=False)
"""With --plan: the model, where the plan does not say it."""
RUN_ON = shared.ON.but(default="")
"""With --plan: the slice, where the plan does not say it."""
RUN_BATCH = shared.BATCH.but(default="")
"""With --plan: tokens (4M) or sequences (512seq) of a step, where neither the plan nor the log says it."""
RUN_SEQ = shared.SEQ.but(default="")
"""With --plan: tokens of a sequence, where neither says it."""
BY_STACK = shared.STACK.but(default="")
"""Score every row by this stack; auto: by what people run on its chips. Else by its own."""
BY_ENGINE = shared.ENGINE.but()
"""Score every row by this engine as it is shipped; auto: by what people run. Else by its own."""
SEARCH = Switch(group=SHOW)
"""Lay the recommended plan of every job beside the best measured one."""
LIMIT = Whole(0, "N", SHOW)
"""With --search: at most so many jobs, evenly chosen (0: all)."""
CHOICES = Switch(group=SHOW)
"""Add what the predicted best configuration costs over the measured best."""


class ScoreQuestion(Question):
    """A file of measured collectives, kernels, inference or memory."""

    file: Text = FILE


class TrainingScoreQuestion(ScoreQuestion):
    """A file of measured training runs, or the log of one and the plan that ran."""

    file: Text = TRAINING_FILE
    plan: Thing = RUN_PLAN
    model: Thing = RUN_MODEL
    on: Thing = RUN_ON
    batch: Text = RUN_BATCH
    seq: Text = RUN_SEQ
    stack: Text = BY_STACK
    search: Switch = SEARCH
    limit: Whole = LIMIT


class ServingScoreQuestion(ScoreQuestion):
    """A file of measured serving runs, or the result of a load test and the plan that was tested."""

    file: Text = SERVING_FILE
    plan: Thing = RUN_PLAN
    model: Thing = RUN_MODEL
    on: Thing = RUN_ON
    engine: Text = BY_ENGINE
    choices: Switch = CHOICES


class RlScoreQuestion(ScoreQuestion):
    """A file of measured steps of reinforcement learning, or the log of a run and the config or command that ran."""

    file: Text = FILE.but()
    """A CSV of measured steps or weight transfers; or, with --plan, the log of a run of verl, NeMo-RL, OpenRLHF, slime
    or TRL."""
    plan: Thing = RUN_PLAN.but()
    """The config or command that ran (see --plan of rl): FILE is its log."""
    model: Thing = RUN_MODEL
    on: Thing = RUN_ON


class ValidateQuestion(Question):
    """A file of measured runs and their kind; `stack`, `search`, `limit`, `batch` and `seq` are of training, `engine`
    and `choices` of serving, `plan`, `model` and `on` of the log of one run of either."""

    kind: Text = Text(value="KIND", place=True, offers=KINDS)
    """training, inference, serving, collectives, kernels, memory, finetune, rl."""
    file: Text = FILE.but()
    """A CSV of measured runs, plain or gzipped; of training and serving also the log of one."""
    plan: Thing = RUN_PLAN
    model: Thing = RUN_MODEL
    on: Thing = RUN_ON
    batch: Text = RUN_BATCH
    seq: Text = RUN_SEQ
    stack: Text = BY_STACK
    search: Switch = SEARCH
    limit: Whole = LIMIT
    engine: Text = BY_ENGINE
    choices: Switch = CHOICES
