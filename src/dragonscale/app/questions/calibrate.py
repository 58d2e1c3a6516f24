"""What `dscale calibrate` and `ds.calibrate` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import FILES, PLAN, SHOW, SOFTWARE, WHERE, Real, Several, Switch, Text, Thing


@dataclass(frozen=True)
class CalibrateQuestion:
    """What to measure on the device at hand, for how long, and where to keep it."""

    on: Thing = Thing(
        "The chip that the device is (h200, mychip.toml); told by the device's name without it.",
        default="",
        value="CHIP",
        group=WHERE,
        offers="slices",
    )
    minutes: Real = Real("How long to measure, about; 0 fits what was measured before.", default=5.0, value="MINUTES")
    only: Several = Several(
        (
            "Only these kinds: matmul, attention, decode, experts, memory, collective, host; with --stack: training, "
            "prefill, decode."
        ),
        default="",
        value="KINDS",
        offers=("matmul", "attention", "decode", "experts", "memory", "collective", "host"),
    )
    dtypes: Several = Several(
        "Formats to multiply in, the one to measure fully first; what the device has without it.",
        default="",
        value="DTYPES",
        group=SOFTWARE,
        offers="dtypes",
    )
    timed_with: Text = Text(
        "The software to time with: jax, or torch; jax where it is installed.",
        default="",
        value="SOFTWARE",
        group=SOFTWARE,
        offers=("jax", "torch"),
        dash="--with",
    )
    check: Text = Text(
        "Lay this profile (a file, own, built-in, h200 …) beside a few fresh measurements instead of fitting one.",
        default="",
        value="PROFILE",
        group=PLAN,
        offers="files",
    )
    stack: Switch = Switch(
        (
            "Time whole steps of our own program instead of kernels, and settle its stack and engine (--stack FILE, "
            "--engine FILE)."
        ),
        group=PLAN,
    )
    dry_run: Switch = Switch("List what would be measured and measure nothing.", group=PLAN)
    small: Switch = Switch("A handful of small cases: a trial of the whole way in seconds.", group=PLAN)
    records: Text = Text(
        "The file of measurements, added to as they are made; a run that was stopped goes on from it.",
        default="",
        value="FILE",
        group=FILES,
        offers="files",
    )
    profile: Text = Text(
        "The file to write the profile to; CHIP-profile.toml without it.",
        default="",
        value="FILE",
        group=FILES,
        offers="files",
        dash="--out",
    )
    install: Switch = Switch(
        "Also put the profile into your folder, where every planner command finds it.", group=FILES
    )
    log: Switch = Switch("A line on stderr for each measurement.", group=SHOW)
