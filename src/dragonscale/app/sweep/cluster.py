"""Entries answered on a Ray cluster, on whose machines this package is installed too."""

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from dragonscale.app.sweep.answer import Task, answer_entry
from dragonscale.app.sweep.records import Answer, Entry
from dragonscale.errors import InputError


def on_ray(entries: Sequence[Entry], address: str, cached: bool = True) -> Generator[Answer]:
    """Answers in the order in which they are found; `address` is the cluster's (`auto`, `local`,
    `ray://host:10001`)."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("A sweep on a cluster needs Ray: pip install 'dragonscale[ray]'.") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except Exception as error:
        raise InputError(f"There is no Ray cluster at {address!r}: {' '.join(str(error).split())[:300]}") from None
    remote = ray.remote(num_cpus=1, max_retries=1)(answer_bytes)
    waiting = {remote.remote(msgspec.json.encode(Task(entry, cached))): entry for entry in entries}
    try:
        while waiting:
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            yield _collected(ray, done, waiting.pop(done))
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        ray.shutdown()


def answer_bytes(task: bytes) -> bytes:
    """One task, as bytes both ways: nothing of ours has to be unpickled on the way."""
    known = msgspec.json.decode(task, type=Task)
    return msgspec.json.encode(answer_entry(known.entry, known.cached))


def _collected(ray: Any, reference: Any, entry: Entry) -> Answer:
    try:
        return msgspec.json.decode(ray.get(reference), type=Answer)
    except Exception as error:
        reason = f"Ray lost it: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return Answer(entry.key, entry.command, entry.asks, 0.0, failed=reason)
