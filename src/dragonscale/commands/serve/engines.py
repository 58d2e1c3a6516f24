"""Several engines that are asked for at once (`--engine sglang,vllm`): each answered for the same requests, and how the
first compares with the others."""

from dataclasses import replace

from dragonscale.commands.given import comma_list
from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.measured import USUAL_BENCHMARK, loaded_runs
from dragonscale.commands.serve.serve_question import ServeQuestion, read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.serve.variant_records import EngineRow
from dragonscale.errors import InputError, shorten

# Part by which rates may differ and are called the same.
SAME = 0.03

# Part by which they may differ and nobody can tell, where their error bands overlap.
UNCLEAR = 0.1


def programs_of(text: str) -> list[str]:
    """Stacks or engines; what has an = is a setting of the one before it.

    >>> programs_of("vllm,max_seqs=64,sglang"), programs_of("")
    (['vllm,max_seqs=64', 'sglang'], [''])
    """
    programs: list[str] = []
    for part in comma_list(text):
        if "=" in part:
            if not programs:
                raise InputError(f"{shorten(part)} is a setting without an engine before it.")
            programs[-1] += f",{part}"
        else:
            programs.append(part)
    return programs or [""]


def add_engines(report: ServeReport, question: ServeQuestion, others: list[str]) -> None:
    """Add what other engines give for the same question, and put the comparison before everything else."""
    report.engines = [_row(report, report.asked.question)]
    for engine in others:
        request = read_question(replace(question, engine=engine))
        report.engines.append(_row(answer(request, brief=True, confirm=False).came_from(request, []), request.question))
    report.verdict = _compared(report.engines)


def _row(report: ServeReport, question: ServeQuestion) -> EngineRow:
    """What one engine gives: in its steady state, and for a benchmark's prompts that come at once."""
    if not report.configs:
        return EngineRow(engine=report.workload.engine, problem=next(iter(report.notes), "nothing fits"))
    first = report.configs[0]
    row = EngineRow(
        engine=first.engine or report.workload.engine,
        batch=first.batch,
        tpot_s=first.tpot_s,
        ttft_s=first.ttft_s,
        requests_per_s=first.requests_per_s * first.copies,
        output_tokens_per_s=first.output_tokens_per_s_per_chip * first.chips * first.copies,
        release=report.release,
    )
    if first.tokens_low is not None and first.tokens_high is not None:
        row.tokens_low = first.tokens_low * first.chips * first.copies
        row.tokens_high = first.tokens_high * first.chips * first.copies
    for run in loaded_runs(report.asked, report, "", question.requests or USUAL_BENCHMARK):
        row.at_once_requests, row.at_once_requests_per_s = run.requests, run.requests_per_s
        row.at_once_total_tokens_per_s = run.total_tokens_per_s
    return row


def _compared(rows: list[EngineRow]) -> str:
    """The first engine against each of the others, by the output tokens of the whole slice."""
    first, *others = rows
    if first.problem:
        return f"{first.engine} does not run it: {first.problem}"
    sentences: list[str] = []
    for row in others:
        if row.problem:
            sentences.append(f"{row.engine} does not run it: {row.problem.rstrip('.')}")
            continue
        ratio = first.output_tokens_per_s / row.output_tokens_per_s
        rates = f"{first.output_tokens_per_s:,.0f} against {row.output_tokens_per_s:,.0f} output tokens/s"
        separate = first.tokens_low is None or row.tokens_high is None or _apart(first, row)
        if not separate and abs(ratio - 1) <= UNCLEAR:
            sentences.append(f"No clear difference between {first.engine} and {row.engine}: {rates}, within the error")
            continue
        if abs(ratio - 1) <= SAME:
            text = f"{first.engine} is as fast as {row.engine}: {rates}"
        elif ratio > 1:
            text = f"{first.engine} is {ratio:.2f}x as fast as {row.engine}: {rates}"
        else:
            text = f"{first.engine} is slower than {row.engine}, {1 - ratio:.0%} fewer tokens: {rates}"
        if not separate:
            text += " (their error bands overlap: the order could be the other way round)"
        sentences.append(text)
    return f"{'; '.join(sentences)}."


def _apart(first: EngineRow, second: EngineRow) -> bool:
    """Whether the bands of two engines lie apart."""
    slower, faster = sorted((first, second), key=lambda row: row.output_tokens_per_s)
    return bool((slower.tokens_high or 0.0) < (faster.tokens_low or 0.0))
