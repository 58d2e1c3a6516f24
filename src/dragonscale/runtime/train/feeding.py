"""What the devices are given: the tokens of each step, and those of the data that is held out."""

import statistics
from functools import partial
from typing import Any

import jax
import numpy

from dragonscale.errors import InputError
from dragonscale.models.program import Program
from dragonscale.runtime.train.documents import tokenizer_for
from dragonscale.runtime.train.settings import Order
from dragonscale.runtime.train.step import State, Trainer
from dragonscale.runtime.train.tokens import TokenSource, document_begins, open_tokens, plain_tokens


def open_data(order: Order, program: Program, data: tuple[str, ...]) -> TokenSource:
    run, vocab = order.run, program.sections[0].dims["v"]
    tokenizer = partial(tokenizer_for, order.model, run.tokenizer, run.weights, vocab)
    found = open_tokens(data, run.tokens, run.seq, vocab, run.seed, tokenizer)
    if run.mask_documents and not found.marked:
        raise InputError(
            "Documents are kept apart where it is known where they begin: in .txt, .jsonl, .parquet and .arrow files, "
            "not in token files; leave out mask_documents."
        )
    return found


class Exam:
    """The loss on data that is held out: the same batches each time."""

    def __init__(self, order: Order, program: Program, trainer: Trainer) -> None:
        self.order, self.trainer = order, trainer
        self.tokens = open_data(order, program, order.run.eval_data) if order.run.eval_data else None
        self.last: float | None = None

    def take(self, state: State, done: int) -> dict[str, float]:
        """After a step that it is due, for the metrics."""
        run = self.order.run
        if self.tokens is None or not (done == run.steps or (run.eval_every and done % run.eval_every == 0)):
            return {}
        batches = (feed(self.trainer, self.tokens, self.order, at) for at in range(run.eval_batches))
        self.last = statistics.fmean(float(self.trainer.evaluate(state, *batch)) for batch in batches)
        return {"eval_loss": self.last}


def feed(trainer: Trainer, tokens: TokenSource, order: Order, step: int) -> tuple[jax.Array, jax.Array]:
    """Tokens and targets [passes, b, t] of a step; each host reads the sequences of its own devices. Of tokens that are
    not learnt the input is their complement, the target -1. Where documents are kept apart, beside each token stands
    the place where its document begins."""
    passes, seq, apart = order.passes, order.run.seq, order.run.mask_documents
    shape = (passes, order.run.batch // passes, seq)
    numbers = (step * order.run.batch + numpy.arange(order.run.batch)).reshape(shape[:2])
    read: dict[int, Any] = {}

    def part(index: Any, shift: int) -> Any:
        wanted = numbers[index[0], index[1]]
        new = [number for number in wanted.ravel().tolist() if number not in read]
        read.update(zip(new, tokens.rows(new), strict=True))
        whole = numpy.stack([read[number][shift : seq + shift] for number in wanted.ravel().tolist()])
        if shift:
            own = numpy.where(whole < 0, -1, plain_tokens(whole))
        else:
            own = numpy.stack([plain_tokens(whole), document_begins(whole)], -1) if apart else plain_tokens(whole)
        return own.reshape(*wanted.shape, *own.shape[1:])[:, :, index[2]]

    return tuple(
        jax.make_array_from_callback(
            (*shape, 2) if apart and not shift else shape, trainer.batch, lambda index, shift=shift: part(index, shift)
        )
        for shift in (0, 1)
    )  # pyright: ignore[reportReturnType]  two of them
