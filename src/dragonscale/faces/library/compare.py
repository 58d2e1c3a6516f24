"""`ds.compare`: plans, slices, stacks or engines side by side; or answers that one already has.

>>> import dragonscale as ds
>>> job = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 8192}
>>> answer = ds.compare("fsdp8", "tp8", **job)
>>> answer.winner, answer.differences[0].ratio > 1
('A', True)
>>> mine = ds.train(plan="fsdp8", alone=True, **job)
>>> other = ds.train(plan="tp8", alone=True, **job)
>>> ds.compare(mine, other).winner
'A'
"""

from typing import Any

from dragonscale.commands.compare.ask_compare import ask
from dragonscale.commands.compare.compare_records import CompareReport
from dragonscale.commands.questions.flag import fields_of
from dragonscale.commands.questions.train import CompareQuestion
from dragonscale.faces.command import heard, python_words, read_call, signature_of


def compare(*things: Any, **words: Any) -> CompareReport:
    """
    Plans, slices, stacks or engines side by side, difference by difference.

    `things` are plans ("tp8 pp4 dp16", files, the word "best", `Plan`s, plans of an answer), or answers of `ds.train`
    or `ds.serve`, one by one or in a list; one answer alone is compared plan by plan. The words are the flags of
    `dscale compare`: model, on, batch, seq, tokens, prompt, output, ttft, tpot, measured, price, stack, engine, dtype.

    Returns a `CompareReport`: `.sides`, `.differences` (each side against the first), `.best`.

    >>> import dragonscale as ds
    >>> ds.compare("fsdp8", "best", model="llama3-8b", on="h100:8", batch="64seq", seq=8192)  # doctest: +SKIP
    """
    reading = read_call("compare", fields_of(CompareQuestion)[1:], (), words)
    if len(things) == 1 and isinstance(things[0], list | tuple):
        things = tuple(things[0])
    with python_words(fields_of(CompareQuestion)):
        return ask(CompareQuestion(things, **reading.values), heard(reading))


setattr(compare, "__signature__", signature_of(fields_of(CompareQuestion), CompareReport))  # noqa: B010  for editors
