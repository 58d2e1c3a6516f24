"""Problems of the chapter on goodput: failures, checkpoints, days that are longer, requests that are late."""

from dragonscale.course.closed_forms.failures import (
    DAY,
    checkpoint_interval,
    goodput,
    time_between_failures,
    time_with_failures,
)
from dragonscale.course.closed_forms.rules_of_thumb import run_cost, run_seconds
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines.counts import model_flops

GPUS = (16384, 1024, 2048, 4096, 8192, 24576, 32768, 65536, 100_000)
RATES = (3.8, 2.5, 3.0, 5.0, 6.5, 8.0)
"""Failures for 1,000 days of a host."""
HOST = 8
FORM = "goodput = (1 − N·r·(restart + interval/2)) / (1 + save/interval)"


def per_second(rate: float) -> float:
    return rate / 1000 / DAY


@problem("goodput", "Hours between failures", gpus=GPUS, rate=RATES)
def hours_between_failures(gpus: int, rate: float) -> Posed:
    hosts = gpus // HOST
    answer = time_between_failures(hosts, per_second(rate))
    return Posed(
        ask=f"Hosts of 8 GPUs fail {rate} times in 1,000 host-days. How long does a job on {count(gpus)} GPUs run between "
        "two failures, on average?",
        answer=answer,
        dimension="s",
        hints=(
            "Any host that fails stops the job.",
            "MTBF of the job = 1 / (N · r), N hosts, r failures of one per second.",
        ),
        steps=(
            f"N = {count(gpus)} / 8 = {count(hosts)} hosts",
            f"failures a day = {count(hosts)} · {rate} / 1,000 = {number(hosts * rate / 1000)}",
            f"1 day / {number(hosts * rate / 1000)} = {amount(answer, 's')}",
        ),
        traps=(
            Trap(answer / HOST, "The rate is that of a host of 8 GPUs, not of one GPU."),
            Trap(DAY / rate * 1000, "That is how long one host runs; the job has many."),
        ),
        check=f'dscale calc "time_between_failures({hosts}, {rate}/1000/day)"',
    )


@problem("goodput", "Failures in a run", gpus=GPUS, rate=RATES, days=(54, 10, 30, 90, 120))
def failures_in_a_run(gpus: int, rate: float, days: int) -> Posed:
    hosts = gpus // HOST
    answer = days * DAY / time_between_failures(hosts, per_second(rate))
    return Posed(
        ask=f"Hosts of 8 GPUs fail {rate} times in 1,000 host-days. How many failures are to be expected in {days} days of a "
        f"job on {count(gpus)} GPUs?",
        answer=answer,
        hints=("Count host-days.", "failures = N · r · days."),
        steps=(
            f"host-days = {count(gpus)} / 8 · {days} = {count(hosts * days)}",
            f"failures = {count(hosts * days)} · {rate} / 1,000 = {number(answer)}",
        ),
        traps=(
            Trap(answer * HOST, "The rate is that of a host of 8 GPUs, not of one GPU."),
            Trap(answer / days, "That is one day's."),
        ),
        check=f'dscale calc "{days}day / time_between_failures({hosts}, {rate}/1000/day)"',
    )


@problem("goodput", "How often to save", gpus=GPUS, rate=RATES, save=(10, 5, 30, 60, 120))
def how_often_to_save(gpus: int, rate: float, save: int) -> Posed:
    hosts = gpus // HOST
    answer = checkpoint_interval(hosts, per_second(rate), save)
    between = time_between_failures(hosts, per_second(rate))
    return Posed(
        ask=f"A job on {count(gpus)} GPUs (hosts of 8, {rate} failures in 1,000 host-days each) stops for {save}s to save a "
        "checkpoint. Which interval between checkpoints loses least time, by Young's formula?",
        answer=answer,
        dimension="s",
        hints=(
            "Saving more often costs stops, saving less often costs work that is done again.",
            "interval = √(2 · save · MTBF), with MTBF = 1/(N·r).",
        ),
        steps=(
            f"MTBF = 1,000 days / ({count(hosts)} · {rate}) = {amount(between, 's')}",
            f"interval = √(2 · {save}s · {number(between)}s) = {amount(answer, 's')}",
        ),
        traps=(
            Trap(
                checkpoint_interval(hosts, per_second(rate), save / 2),
                "A failure loses half an interval on average: the 2 is under the root.",
            ),
            Trap(between, "That is the time between failures itself."),
        ),
        check=f'dscale calc "checkpoint_interval({hosts}, {rate}/1000/day, {save}s)"',
        tolerance=0.03,
    )


@problem(
    "goodput",
    "The share that is lost",
    gpus=GPUS,
    rate=RATES,
    minutes=(10, 5, 20, 30, 60),
    restart=(10, 3, 5, 15),
)
def share_that_is_lost(gpus: int, rate: float, minutes: int, restart: int) -> Posed | None:
    hosts, save = gpus // HOST, 10
    lost, whole = (hosts * per_second(rate) * 60 * (restart + part * minutes) for part in (0.5, 1))
    if whole > 0.8:
        return None
    share = goodput(hosts, per_second(rate), 60 * minutes, 60 * restart, save)
    answer, stops = 1 - share, 1 + save / (60 * minutes)
    return Posed(
        ask=f"A job on {count(gpus)} GPUs (hosts of 8, {rate} failures in 1,000 host-days each) saves every {minutes} minutes, "
        f"which stops it for {save}s; a restart takes {restart} minutes. Which share of the time is lost, in percent (100% less the goodput)?",
        answer=answer,
        hints=("A failure costs the restart and half an interval of work.", FORM),
        steps=(
            f"N·r = {count(hosts)} · {rate} / 1,000 days = {number(hosts * rate / 1000)} a day",
            f"lost to failures = N·r · ({restart} + {minutes}/2) min = {100 * lost:.1f}%",
            f"goodput = (1 − {lost:.4f}) / (1 + {save}/{60 * minutes}) = {100 * share:.2f}%; lost: {100 * answer:.2f}%",
        ),
        traps=(
            Trap(share, "That is the share that makes progress, the goodput."),
            Trap(1 - (1 - whole) / stops, "A failure loses half an interval on average, not a whole one."),
            Trap(1 - 1 / stops, "That is saving alone: failures cost time as well."),
            Trap(lost, "Saving takes time as well."),
        ),
        check=f'dscale calc "1 - goodput({hosts}, {rate}/1000/day, {60 * minutes}s, {60 * restart}s, {save}s)"',
        tolerance=0.01,
    )


@problem("goodput", "Days with failures", days=(54, 20, 30, 45, 90, 120), share=(0.9, 0.8, 0.85, 0.75, 0.7, 0.6, 0.44))
def days_with_failures(days: int, share: float) -> Posed:
    answer = time_with_failures(days * DAY, share)
    return Posed(
        ask=f"A run would take {days} days if nothing ever failed. Its goodput is {100 * share:.0f}%. How many days does it take "
        "(write 10d for ten days)?",
        answer=answer,
        dimension="s",
        hints=("Only a share of each day makes progress.", "time = time without failures / goodput."),
        steps=(f"{days}d / {share} = {amount(answer, 's')}", f"{amount(answer - days * DAY, 's')} are lost."),
        traps=(
            Trap(days * DAY * share, "Failures make it longer: divide by the goodput."),
            Trap(days * DAY * (2 - share), "Lost time is a share of the whole time, not of the time without failures."),
        ),
        check=f'dscale calc "{days}day / {share}" --to days',
        tolerance=0.003,
    )


@problem(
    "goodput", "What failures cost",
    chip=("h100", "h200", "b200", "v5p"), params=(405e9, 70e9, 32e9, 8e9), tokens=(15e12, 2e12, 30e12), gpus=(16384, 2048, 4096, 8192), share=(0.9, 0.8, 0.95, 0.85),
)  # fmt: skip
def what_failures_cost(chip: str, params: float, tokens: float, gpus: int, share: float) -> Posed:
    peak, mfu, price = load_chip(chip).peak("bf16"), 0.4, 2.5
    clean = run_seconds(model_flops(params, tokens), gpus, peak, mfu)
    answer = run_cost(gpus, time_with_failures(clean, share) - clean, price)
    whole = run_cost(gpus, clean, price)
    return Posed(
        ask=f"{count(params / 1e9)}B parameters are trained on {number(tokens / 1e12)}T tokens with {count(gpus)} {chip} at an MFU of 40% "
        f"(6·P·tokens FLOPs, peak {amount(peak, 'FLOP/s')}), at $2.5 per chip-hour. The goodput is {100 * share:.0f}%. "
        "What does the lost time cost, in dollars?",
        answer=answer,
        dimension="USD",
        hints=("What would it cost without failures, and what does it cost?", "cost of losses = cost without failures · (1/goodput − 1)."),
        steps=(
            f"FLOPs = 6 · {number(params)} · {number(tokens)} = {number(6 * params * tokens)}",
            f"time = FLOPs / ({count(gpus)} · {number(peak)} · 0.4) = {amount(clean, 's')}, ${number(whole)}",
            f"lost = ${number(whole)} · (1/{share} − 1) = ${number(answer)}",
        ),
        traps=(
            Trap(whole * (1 - share), "Lost time is a share of the whole time: 1/goodput − 1, not 1 − goodput."),
            Trap(whole, "That is what the run costs without failures."),
        ),
        check=f'dscale calc "run_cost({gpus}, run_seconds(model_flops({params:g}, {tokens:g}), {gpus}, {chip}.bf16, 0.4) * (1/{share} - 1), 2.5)"',
    )  # fmt: skip


@problem("goodput", "The largest job that is worth it", rate=RATES, restart=(10, 3, 5, 15), share=(0.9, 0.8, 0.85, 0.5))
def largest_job(rate: float, restart: int, share: float) -> Posed:
    lost = per_second(rate) * (60 * restart + 300)
    hosts = (1 - share) / lost
    return Posed(
        ask=f"Hosts of 8 GPUs fail {rate} times in 1,000 host-days, a restart takes {restart} minutes, checkpoints come every 10 minutes "
        f"and cost nothing. From how many GPUs on is the goodput below {100 * share:.0f}%?",
        answer=hosts * HOST,
        hints=("How many failures a day may there be?", "goodput = 1 − N·r·(restart + interval/2); solve for N."),
        steps=(
            f"a failure loses {restart} + 5 = {restart + 5} minutes",
            f"N = (1 − {share}) / (r · {restart + 5} min) = {number(hosts)} hosts",
            f"{number(hosts * HOST)} GPUs; there the goodput is {goodput(hosts, per_second(rate), 600, 60 * restart):.2f}",
        ),
        traps=(
            Trap(hosts, "That is hosts; each has 8 GPUs."),
            Trap((1 - share) / (per_second(rate) * (60 * restart + 600)) * HOST, "A failure loses half an interval on average, not a whole one."),
        ),
        check=f'dscale calc "8 * (1 - {share}) / ({rate}/1000/day * ({restart}min + 5min))"',
    )  # fmt: skip


@problem(
    "goodput",
    "Requests in time",
    rate=(20, 5, 12, 40, 80),
    within=(0.95, 0.8, 0.9, 0.99, 0.6),
    replicas=(4, 1, 2, 8, 16),
)
def requests_in_time(rate: int, within: float, replicas: int) -> Posed:
    answer = rate * within / replicas
    return Posed(
        ask=f"A fleet of {replicas} replica{'s' * (replicas > 1)} answers {rate} requests/s; {100 * within:.0f}% of them meet both the TTFT and "
        "the TPOT target. What is its goodput per replica, in requests/s?",
        answer=answer,
        dimension="count/s",
        hints=("A request that is late does not count, however fast the rest is.", "goodput = requests/s · share that meets both targets."),
        steps=(f"in time: {rate}/s · {within} = {number(rate * within)}/s", f"per replica: / {replicas} = {number(answer)}/s"),
        traps=(
            *((Trap(rate * within, "That is the whole fleet's."),) if replicas > 1 else ()),
            Trap(rate / replicas / within, "Late requests make it smaller."),
        ),
        check=f'dscale calc "{rate}/s * {within} / {replicas}"',
        tolerance=0.004,
    )  # fmt: skip
