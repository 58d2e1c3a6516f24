"""What `dscale calibrate` and `ds.calibrate` can be asked."""

from dragonscale.app.questions.flag import (
    FILES,
    PLAN,
    SHOW,
    SOFTWARE,
    WHERE,
    Question,
    Real,
    Several,
    Switch,
    Text,
    Thing,
)


class CalibrateQuestion(Question):
    """What to measure on the device at hand, for how long, and where to keep it."""

    on: Thing = Thing("", "CHIP", WHERE, offers="slices")
    """The chip that the device is (h200, mychip.toml); told by the device's name without it."""
    minutes: Real = Real(5.0, "MINUTES")
    """How long to measure, about; 0 fits what was measured before."""
    only: Several = Several(
        "", "KINDS", offers=("matmul", "attention", "decode", "experts", "memory", "collective", "host")
    )
    """Only these kinds: matmul, attention, decode, experts, memory, collective, host; with --stack: training,
    prefill, decode."""
    dtypes: Several = Several("", "DTYPES", SOFTWARE, offers="dtypes")
    """Formats to multiply in, the one to measure fully first; what the device has without it."""
    timed_with: Text = Text("", "SOFTWARE", SOFTWARE, offers=("jax", "torch"), dash="--with")
    """The software to time with: jax, or torch; jax where it is installed."""
    check: Text = Text("", "PROFILE", PLAN, offers="files")
    """Lay this profile (a file, own, built-in, h200 …) beside a few fresh measurements instead of fitting one."""
    stack: Switch = Switch(group=PLAN)
    """Time whole steps of our own program instead of kernels, and settle its stack and engine (--stack FILE,
    --engine FILE)."""
    dry_run: Switch = Switch(group=PLAN)
    """List what would be measured and measure nothing."""
    small: Switch = Switch(group=PLAN)
    """A handful of small cases: a trial of the whole way in seconds."""
    records: Text = Text("", "FILE", FILES, offers="files")
    """The file of measurements, added to as they are made; a run that was stopped goes on from it."""
    profile: Text = Text("", "FILE", FILES, offers="files", dash="--out")
    """The file to write the profile to; CHIP-profile.toml without it."""
    install: Switch = Switch(group=FILES)
    """Also put the profile into your folder, where every planner command finds it."""
    log: Switch = Switch(group=SHOW)
    """A line on stderr for each measurement."""
