"""What a run learns from: documents made into tokens, which of them are learnt, and what it leaves behind."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("tokenizers")

import jax
import jax.numpy as jnp

from dragonscale.errors import Infeasible, InputError
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.runtime.checkpoint import load_weights
from dragonscale.runtime.forward import forward, losses
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.safetensors import SafeTensors
from dragonscale.runtime.train.documents import BEGINS, conversation_tokens, kept_tokens, packed, tokenizer_for
from dragonscale.runtime.train.feeding import feed, open_data
from dragonscale.runtime.train.loop import _checked, _mesh, train
from dragonscale.runtime.train.loss_watch import LossWatch
from dragonscale.runtime.train.metrics import Board, Metrics, read_metrics
from dragonscale.runtime.train.settings import Order, read_order
from dragonscale.runtime.train.step import make_trainer
from dragonscale.runtime.train.tokens import document_begins, open_tokens, plain_tokens
from tests.runtime.tiny import CONFIGS

VOCAB = 256
TURNS = [
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "I."},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "You."},
]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGONSCALE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text() -> Any:
    return tokenizer_for("", "bytes", "", VOCAB)


def tokens_of(path: Path, text: Any, seq: int = 32) -> list[int]:
    return numpy.fromfile(kept_tokens(path, text, seq), "<i4").tolist()


def letters(ids: list[int]) -> str:
    return bytes(one for one in ids if one >= 0).decode()


def test_texts_follow_each_other_with_an_end_between(tmp_path: Path, text: Any) -> None:
    text.ends = [7]
    (tmp_path / "a.jsonl").write_text('{"text": "ab"}\n\n{"content": "c"}\n')
    (tmp_path / "b.txt").write_text("déf")
    found = tokens_of(tmp_path / "a.jsonl", text)
    assert plain_tokens(numpy.array(found)).tolist() == [*b"ab", 7, *b"c", 7]
    assert document_begins(numpy.array(found)).tolist() == [0, 0, 0, 3, 3]
    assert tokens_of(tmp_path / "b.txt", text) == [b"d"[0] | BEGINS, *"éf".encode(), 7]
    (tmp_path / "b.txt").write_text("another")  # is not what was kept
    assert tokens_of(tmp_path / "b.txt", text)[1:] == [*b"nother", 7]


def test_only_what_the_assistant_says_is_learnt(text: Any) -> None:
    ids = conversation_tokens(TURNS, text)
    whole = "".join(f"{one['role']}: {one['content']}\n" for one in TURNS)
    assert bytes(plain_tokens(numpy.array(ids)).tolist()).decode() == whole
    assert document_begins(numpy.array([5, *ids, *ids])).max() == len(ids) + 1
    assert letters(ids) == "I.\nYou.\n"
    # a template that writes earlier answers otherwise: only the last is learnt
    short = "m.content if loop.last or m.role == 'user' else m.content[:1]"
    text.templates = {"default": "{% for m in messages %}{{ " + short + " }};{% endfor %}"}
    assert letters(conversation_tokens(TURNS, text)) == "You.;"


@pytest.mark.parametrize(
    "row",
    [
        {"messages": TURNS[:2]},
        {"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "I."}]},
        {"prompt": "Who?", "completion": "I."},
        {"prompt": TURNS[:1], "completion": TURNS[1:2]},
        {"instruction": "Who?", "input": "", "output": "I."},
    ],
)
def test_rows_as_others_write_them(row: dict[str, Any], tmp_path: Path, text: Any) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(row) + "\n")
    found = tokens_of(path, text, seq=40)
    assert letters(found) == "I.\n"
    assert len(found) == 41


def test_conversations_stay_whole_in_their_windows() -> None:
    dice = numpy.random.default_rng(0)
    documents = [[~at % 200, *[at] * int(size)] for at, size in enumerate(dice.integers(1, 30, 300))]
    documents = [[~(at % 200), *ids[1:]] for at, ids in enumerate(documents)]
    windows = list(packed([*documents, [~3, ~3]], 32))  # the last one has nothing to learn
    assert {len(window) for window in windows} == {32}
    learnt = sorted(one for window in windows for one in window if one >= 0)
    assert learnt == sorted(one for ids in documents for one in ids[1:])
    for window in windows:  # every document lies in one window
        assert all(window.count(at) in (0, len(documents[at]) - 1) for at in set(window) if at >= 0)
    assert len(windows) * 32 < 1.1 * sum(map(len, documents))
    assert list(packed([[~1, *range(50)]], 8)) == [[~1, *range(7)]]


def test_what_cannot_be_read_is_told(tmp_path: Path, text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError) as refused:
            kept_tokens(tmp_path / name, text, 8)
        return str(refused.value)

    assert "Row 1 of" in (said := refusal("a.jsonl", '{"title": "x", "body": "y"}'))
    assert "has title, body;" in said
    assert "Row 2 of" in refusal("b.jsonl", '{"text": "x"}\n{"messages": []}\n{"prompt": "a", "completion": "b"}')
    assert "is not what its ending says" in refusal("c.jsonl", "{")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refusal("d.parquet", "")
    with pytest.raises(InputError, match=r"no tokenizer.json in 'nowhere'"):
        tokenizer_for("m", "nowhere", "", VOCAB)
    with pytest.raises(InputError, match="has no file of documents"):
        open_tokens((str(tmp_path / "cache"),), "", 8, VOCAB, 0, lambda: text)


def test_a_folder_gives_its_files_for_training(tmp_path: Path, text: Any) -> None:
    for name in ("train-0.jsonl", "test-0.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": name * 9}) + "\n")
    found = open_tokens((str(tmp_path),), "", 8, VOCAB, 0, lambda: text)
    assert [file.path.name for file in found.files] == ["train-0.jsonl.bin"]  # pyright: ignore[reportAttributeAccessIssue]


def test_parquet_is_read_by_rows(tmp_path: Path, text: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]

    parquet.write_table(arrow.table({"text": ["ab", "c"]}), tmp_path / "a.parquet")
    assert tokens_of(tmp_path / "a.parquet", text) == [*b"abc"]


def test_synthetic_sequences_follow_from_the_seed() -> None:
    tokens = open_tokens(("synthetic",), "", 500, 1000, seed=3)
    rows = tokens.rows([4, 5])
    assert (rows == open_tokens(("synthetic",), "", 500, 1000, seed=3).rows([4, 5])).all()
    assert (tokens.rows([5])[0] == rows[1]).all()
    follows = (5 * rows[:, :-1] + 1) % 1000 == rows[:, 1:]
    assert 0.85 < follows.mean() < 0.95
    assert tokens.rows([]).shape == (0, 501)


def order_in(folder: Path, plan: str = "microbatch=2", **changes: Any) -> Order:
    config = CONFIGS["llama"] | {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "vocab_size": VOCAB,
    }
    (folder / "model.json").write_text(json.dumps(config))
    rows = [
        {"messages": [{"role": "user", "content": f"{at}?"}, {"role": "assistant", "content": f"{at}!"}]}
        for at in range(80)
    ]
    (folder / "chat.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    given = {"data": str(folder / "chat.jsonl"), "tokenizer": "bytes", "steps": 3, "batch": 4, "seq": 32}
    return read_order(plan, str(folder / "model.json"), changes=given | {"dtype": "fp32"} | changes)


@pytest.mark.parametrize(
    "plan",
    [
        "fsdp=2,tensor=2,microbatch=1",
        pytest.param("microbatch=2", marks=pytest.mark.slow),
        pytest.param("pipe=2,microbatch=1", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("eight")
def test_the_loss_is_the_mean_over_what_is_learnt(plan: str, tmp_path: Path, text: Any) -> None:
    order = order_in(tmp_path, plan)
    program, numerics = load_model(order.model).program(), numerics_of(order.model)
    tokens = open_tokens(order.run.data, "", 32, VOCAB, 0, lambda: text)
    assert tokens.masked
    trainer = make_trainer(order, program, numerics, _mesh(order), masked=True)
    state = trainer.start(0)
    whole = jax.tree.map(numpy.asarray, state["params"])
    given, targets = feed(trainer, tokens, order, 0)
    flat, wanted = (numpy.asarray(one).reshape(4, 32) for one in (given, targets))
    assert flat.min() >= 0
    assert (wanted == -1).any()
    each = losses(forward(whole, program, jnp.asarray(flat), PassSetting(numerics)), jnp.asarray(wanted))
    mean = float(each.sum() / (wanted >= 0).sum())
    assert float(each[wanted < 0].sum()) == 0
    assert float(trainer.evaluate(state, given, targets)) == pytest.approx(mean, rel=1e-5)
    flags = jax.make_array_from_callback((trainer.mesh.size,), trainer.flags, lambda _: numpy.zeros(1, numpy.int32))
    assert float(trainer.step(state, given, targets, 0.0, flags)[1]["loss"]) == pytest.approx(mean, rel=1e-5)


@pytest.mark.usefixtures("eight")
def test_documents_that_are_kept_apart_have_the_losses_that_they_have_alone(tmp_path: Path, text: Any) -> None:
    order = order_in(tmp_path, "context=2,ring=true", mask_documents=True, batch=2, seq=96)
    program, numerics = load_model(order.model).program(), numerics_of(order.model)
    tokens = open_tokens(order.run.data, "", 96, VOCAB, 0, lambda: text)
    trainer = make_trainer(order, program, numerics, _mesh(order), masked=True)
    state = trainer.start(0)
    whole = jax.tree.map(numpy.asarray, state["params"])
    given, targets = feed(trainer, tokens, order, 0)
    flat, wanted = numpy.asarray(given).reshape(2, 96, 2), numpy.asarray(targets).reshape(2, 96)
    alone = []
    for row, learnt in zip(flat, wanted, strict=True):
        for begin in sorted(set(row[:, 1].tolist())):
            own = numpy.where(row[:, 1] == begin)[0]
            ids, marks = numpy.zeros((2, 96), numpy.int32)  # as long each time: compiled once
            ids[: len(own)], marks[:] = row[own, 0], -1
            marks[: len(own)] = learnt[own]
            alone.append((ids, marks))
    assert len(alone) > 4
    each = losses(
        forward(whole, program, jnp.asarray([one for one, _ in alone]), PassSetting(numerics)),
        jnp.asarray([one for _, one in alone]),
    )
    mean = float(each.sum() / (wanted >= 0).sum())
    assert float(trainer.evaluate(state, given, targets)) == pytest.approx(mean, rel=1e-5)
    with pytest.raises(InputError, match="plans without pipeline stages"):
        order_in(tmp_path, "pipe=2", mask_documents=True)


def test_where_documents_begin_must_be_known(tmp_path: Path) -> None:
    order = order_in(tmp_path, mask_documents=True)
    program = load_model(order.model).program()
    numpy.arange(200, dtype="<u2").tofile(tmp_path / "a.bin")
    with pytest.raises(InputError, match="where it is known where they begin"):
        open_data(order, program, (str(tmp_path / "a.bin"),))
    with pytest.raises(InputError, match="write true or false"):
        order_in(tmp_path, mask_documents="yes")


def test_a_run_evaluates_and_writes_a_model_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "held.txt").write_text("assistant: 7!\n" * 30)
    order = order_in(
        tmp_path,
        eval_data=str(tmp_path / "held.txt"),
        eval_every=2,
        eval_batches=1,
        metrics=str(tmp_path / "m.jsonl"),
        save_weights=str(out),
    )
    result = train(order)
    lines = read_metrics(tmp_path / "m.jsonl")
    assert [line["step"] for line in lines if "eval_loss" in line] == [2, 3]
    assert lines[-1]["eval_loss"] == result.eval_loss
    program = load_model(out).program()
    params = load_weights(SafeTensors(out), program, numpy.float32)
    held = open_tokens(order.run.eval_data, "", 32, VOCAB, 0, lambda: tokenizer_for("", "bytes", "", VOCAB))
    rows = plain_tokens(held.rows(range(4)))
    each = losses(
        forward(params, program, jnp.asarray(rows[:, :-1]), PassSetting(numerics_of(str(out)))),
        jnp.asarray(rows[:, 1:]),
    )
    assert float(each.mean()) == pytest.approx(result.eval_loss, rel=1e-5)


def test_curves_are_told_to_boards_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    class Page:
        def __init__(self, folder: str = "") -> None:
            heard.append(folder)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            heard.append((step, {name: value}))

        def flush(self) -> None: ...

        def close(self) -> None:
            heard.append("closed")

    class Run(Page):
        def log(self, numbers: Any, step: int) -> None:
            heard.append((step, numbers))

        def finish(self) -> None:
            heard.append("finished")

    made = {"wandb": {"init": lambda **given: heard.append(given) or Run()}, "tensorboard.summary": {"Writer": Page}}
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    for name, own in made.items():
        module = types.ModuleType(name)
        vars(module).update(own)
        monkeypatch.setitem(sys.modules, name, module)
    boards = Board("wandb", "project", str(tmp_path), {}), Board("tensorboard", "", str(tmp_path), {})
    assert heard.pop(0)["mode"] == "offline"
    metrics = Metrics("", 0, boards)
    metrics.write({"step": 1, "loss": 2.0, "mfu": None})
    metrics.close()
    assert heard == ["", str(tmp_path), (1, {"loss": 2.0}), (1, {"loss": 2.0}), "finished", "closed"]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="pip install wandb"):
        Board("wandb", "project", str(tmp_path), {})


def test_a_run_that_diverges_is_ended() -> None:
    watch = LossWatch(VOCAB, [2.0 + 0.001 * (at % 7) for at in range(50)])
    assert not watch.take(2.01)
    assert watch.take(3.0)
    values = {"loss": 5.0, "grad_norm": 1.0}
    for _ in range(8):
        watch.take(5.0)
        assert _checked(values, 60, None, 0, watch) == 5.0
    for _ in range(10):
        watch.take(5.0)
    with pytest.raises(Infeasible, match=r"The loss of step 60 is 5 after 2.003: the run diverges; nothing was saved"):
        _checked(values, 60, None, 0, watch)
    early = LossWatch(VOCAB, [5.6, 5.5] * 30)  # nothing was learnt yet
    assert not early.diverged


def test_bad_data_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order_in(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"body": 1}\n')
    words = ["run", "train", "microbatch=4", "--model", str(tmp_path / "model.json"), "--steps", "1", "--batch", "4"]
    for data, said in ((tmp_path / "bad.jsonl", "Row 1 of"), (tmp_path / "none.jsonl", "No such file or directory")):
        code = main([*words, "--seq", "32", "--data", str(data), "--tokenizer", "bytes"])
        told = capsys.readouterr().err.strip()
        assert code == 2
        assert said in told
        assert "\n" not in told
