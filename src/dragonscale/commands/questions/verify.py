"""What `dscale verify`, `profile` and `calibrate` and their functions can be asked."""

from dragonscale.commands.questions import flag, shared
from dragonscale.commands.questions.flag import Question, Real, Several, Switch, Text, Thing, Whole

_PLAN = shared.PLAN.but(default=flag.REQUIRED, place=True)
"""A plan (fsdp=8,remat=block; tp8 dp2), or a file that train or serve --save wrote."""


class VerifyQuestion(Question):
    """A plan to compile; what is left out is taken from the plan file, or from what the rest implies."""

    plan: Thing = _PLAN
    model: Thing = shared.MODEL.but(default="", place=False)
    on: Thing = shared.ON.but(default="")
    """The slice to compile for (v5p:8x16x16, h100:512)."""
    batch: Text = shared.BATCH.but(default="")
    """Training: tokens of a step (4M), or sequences (512seq). Serving: sequences."""
    seq: Text = shared.SEQ.but(default="")
    """Tokens of a sequence, of a prompt, or that a cache has room for."""
    program: Text = shared.PROGRAM.but()
    """What to compile: train, prefill or decode; told by the plan without it."""
    passes: Text = Text("canonical", "WHICH", flag.COMPILER, offers=("canonical", "full"))
    """canonical: plain collectives, quickly; full: overlap and schedule too."""
    timeout: Text = Text("900s", "TIME", flag.COMPILER)
    """The longest the compiler may take."""
    memory_limit: Text = Text("8GB", "BYTES", flag.COMPILER)
    """The most of this machine's memory that it may take."""
    options: Several = Several("", "NAME=VALUE", flag.COMPILER, dash="--option")
    """An option of XLA; may be repeated."""
    stack: Text = shared.STACK.but(default="")
    """The stack the plan was made for: what it does otherwise than our own program is listed."""
    cache: Switch = Switch(default=True, group=flag.COMPILER)
    """Use what was compiled before, if nothing has changed since."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY


class ProfileQuestion(Question):
    """A profile to read, and the plan to lay beside it; a plan file says what is left out."""

    trace: Thing = Thing(value="TRACE", place=True, offers="files")
    """A profile: xplane.pb, trace.json(.gz) of JAX or PyTorch, an Nsight SQLite export, XLA's HLO text, or a folder
    of them."""
    plan: Thing = shared.PLAN.but()
    """The plan it was recorded of (fsdp=8,remat=block; tp8), or a file that train or serve --save wrote."""
    model: Thing = shared.MODEL.but(default="", place=False, group=flag.PLAN)
    on: Thing = shared.ON.but(default="")
    """The slice it ran on (v5p:4x4x4, h100:8), or the chip (h200); told by the profile without it."""
    batch: Text = shared.BATCH.but(default="", group=flag.PLAN)
    """With --plan: tokens of a step (4M) or sequences (512seq); serving: sequences."""
    seq: Text = shared.SEQ.but(default="", group=flag.PLAN)
    """With --plan: tokens of a sequence, of a prompt, or that a cache holds."""
    program: Text = shared.PROGRAM.but()
    """With --plan: what ran: train, prefill or decode; told by the plan without it."""
    stack: Text = shared.STACK.but(default="")
    """The stack that trained, whose plan is laid beside it."""
    engine: Text = shared.ENGINE.but()
    """The engine that served, whose plan is laid beside it."""
    profile: Text = shared.PROFILE.but()
    """With --plan: kernel times of your own device, as `dscale train` takes them."""
    step: Whole = Whole(None, "N", flag.SHOW)
    """Look at this step alone, counted from 0; all that are whole without it."""
    top: Whole = shared.TOP.but(default=15)
    """How many of the longest ops to list."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY


class CalibrateQuestion(Question):
    """What to measure on the device at hand, for how long, and where to keep it."""

    on: Thing = shared.ON.but(default="", value="CHIP")
    """The chip that the device is (h200, mychip.toml); told by the device's name without it."""
    minutes: Real = Real(5.0, "MINUTES")
    """How long to measure, about; 0 fits what was measured before."""
    only: Several = Several(
        "", "KINDS", offers=("matmul", "attention", "decode", "experts", "memory", "collective", "host")
    )
    """Only these kinds: matmul, attention, decode, experts, memory, collective, host; with --whole-steps: training,
    prefill, decode."""
    dtypes: Several = Several("", "DTYPES", flag.SOFTWARE, offers="dtypes")
    """Formats to multiply in, the one to measure fully first; what the device has without it."""
    timed_with: Text = Text("", "SOFTWARE", flag.SOFTWARE, offers=("jax", "torch"), dash="--with")
    """The software to time with: jax, or torch; jax where it is installed."""
    check: Text = Text("", "PROFILE", flag.PLAN, offers="files")
    """Lay this profile (a file, own, built-in, h200 …) beside a few fresh measurements instead of fitting one."""
    whole_steps: Switch = Switch(group=flag.PLAN)
    """Time whole steps of our own program instead of kernels, and settle its stack and engine (--stack FILE,
    --engine FILE)."""
    dry_run: Switch = Switch(group=flag.PLAN)
    """List what would be measured and measure nothing."""
    small: Switch = Switch(group=flag.PLAN)
    """A handful of small cases: a trial of the whole way in seconds."""
    records: Text = Text("", "FILE", flag.FILES, offers="files")
    """The file of measurements, added to as they are made; a run that was stopped goes on from it."""
    out: Text = shared.OUT.but()
    """The file to write the profile to; CHIP-profile.toml without it."""
    install: Switch = Switch(group=flag.FILES)
    """Also put the profile into your folder, where every planner command finds it."""
    verbose: Switch = shared.VERBOSE.but()
    """A line on stderr for each measurement."""
