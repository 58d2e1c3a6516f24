"""XLA's GPU compiler against the algebra, on random einsums, shardings and meshes.

Every case is compiled alone, so that every collective is its. Its collectives must be those of the cheapest strategy,
of another that the algebra lists, or of a legal walk that the algebra can name (see `tests.sharding.xla.agreement`). A
case for which there is none is a mismatch, unless XLA's own result is wrong: that is checked by running it.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest

from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh
from tests.sharding.random_cases import draw_cases
from tests.sharding.xla.agreement import VERDICTS, Verdict, cut_line, is_wrong, judge, seen_over
from tests.sharding.xla.einsum_worker import Case, compile_cases
from tests.sharding.xla.moves import moves
from tests.sharding.xla.recognise import recognise

pytest.importorskip("jax_cuda12_plugin", reason="the GPU compiler's wheel is not installed")


@pytest.fixture(scope="module")
def judged() -> list[tuple[Case, Verdict]]:
    return judge_all(60, seed=1)


def judge_all(count: int, seed: int) -> list[tuple[Case, Verdict]]:
    cases = draw_cases(count, seed)
    return [(case, judge(case, hlo)) for case, hlo in zip(cases, compile_cases(cases), strict=True)]


def histogram(judged: list[tuple[Case, Verdict]]) -> str:
    counts = Counter((verdict.how, verdict.relative) for _, verdict in judged)
    rows = [f"{'XLA uses':16}{'cases':>6}   of them sending less / as many / more bytes than the cheapest"]
    for how in VERDICTS:
        each = [counts[how, relative] for relative in ("less", "equal", "more")]
        rows.append(f"{how:16}{sum(each):6}   {each[0]} / {each[1]} / {each[2]}")
    return "\n".join(rows)


def check(judged: list[tuple[Case, Verdict]]) -> None:
    print(histogram(judged))
    unexplained = [case for case, verdict in judged if verdict.how == "unexplained"]
    wrong = [case for case in unexplained if is_wrong(case)]
    assert [str(case) for case in unexplained if case not in wrong] == []
    counts = Counter(verdict.how for _, verdict in judged)
    assert len(wrong) + counts["aborted"] <= len(judged) / 100
    assert counts["cheapest"] + counts["listed"] > 0.75 * len(judged)
    less = [case for case, verdict in judged if verdict.relative == "less" and case not in wrong]
    assert len(less) <= 0.02 * len(judged), "XLA often finds something cheaper than the algebra's cheapest strategy"


def test_random_einsums(judged: list[tuple[Case, Verdict]]) -> None:
    check(judged)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seed"), [(300, 1), (1000, 2)])
def test_more_random_einsums(count: int, seed: int) -> None:
    check(judge_all(count, seed))


def test_collectives_of_every_kind_were_seen(judged: list[tuple[Case, Verdict]]) -> None:
    kinds = Counter(each.kind for _, verdict in judged for each in verdict.seen)
    assert set(kinds) == {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"}, kinds


def test_what_is_recognised_uses_the_bytes_seen(judged: list[tuple[Case, Verdict]]) -> None:
    """A strategy found for XLA's collectives predicts their wire bytes through the algebra's own formulas."""
    for case, verdict in judged:
        if verdict.strategy is not None:
            mesh = Mesh(dict(case.mesh))
            if verdict.how in ("parts of axes", "broadcast first"):
                mesh = cut_line(case.line, mesh)[1]
            if verdict.how != "broadcast first":
                predicted = verdict.strategy.wire_bytes(case.sizes, mesh)
                assert predicted == pytest.approx(verdict.wire), case


def test_recognised_walks_are_walks_in_the_graph_of_moves(judged: list[tuple[Case, Verdict]]) -> None:
    for case, verdict in judged:
        if verdict.how == "other walk" and verdict.strategy is not None:
            for step in verdict.strategy.collectives:
                reachable = {(each.kind, each.after) for each in moves(step.before, Mesh(dict(case.mesh)))}
                assert (step.kind, step.after) in reachable, f"{case}: {step}"


def test_wrong_collectives_are_not_explained(judged: list[tuple[Case, Verdict]]) -> None:
    """The search must be able to fail: after changing one collective's kind, bytes or groups hardly any case has
    another explanation."""
    rng = random.Random(0)
    tried = explained = 0
    for case, verdict in judged:
        mesh = Mesh(dict(case.mesh))
        seen = seen_over(list(verdict.seen), case.mesh)
        if not seen or verdict.how not in ("cheapest", "listed"):
            continue
        place = rng.randrange(len(seen))
        kinds = [
            kind for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all") if kind != seen[place].kind
        ]
        for change in ({"kind": rng.choice(kinds)}, {"sent": seen[place].sent * 4}, {"sent": seen[place].sent / 4}):
            tried += 1
            altered = [*seen[:place], replace(seen[place], **change), *seen[place + 1 :]]
            explained += recognise(case.line, case.sizes, mesh, altered) is not None
    assert tried > 60
    assert explained < 0.05 * tried


BOOK = {
    "A[I_X, J] @ B[J, K] -> C[I_X, K]": [],
    "A[I, J_X] @ B[J_X, K] -> C[I, K]": ["all_reduce"],
    "A[I, J_X] @ B[J_X, K] -> C[I, K_X]": ["reduce_scatter"],
    "A[I_X, J] @ B[J, K_X] -> C[I_X, K]": ["all_gather"],
}
"""The book's four cases, and the collectives that each takes."""
WRONG = Case(parse_einsum("A[L_X, I_Z, J] @ B[L_X, I_Z] -> C[J_Z, I_X]"), {"L": 4, "I": 16, "J": 16}, {"X": 2, "Z": 4})


@pytest.fixture(scope="module")
def alone() -> list[tuple[Case, Verdict]]:
    """The book's cases and the wrong one: each a program of its own, of one start of the compiler."""
    cases = [Case(parse_einsum(line), {"I": 512, "J": 512, "K": 512}, {"X": 4}) for line in BOOK]
    return [(case, judge(case, hlo)) for case, hlo in zip([*cases, WRONG], compile_cases([*cases, WRONG]), strict=True)]


def test_what_the_algebra_cannot_explain_xla_computes_wrongly(alone: list[tuple[Case, Verdict]]) -> None:
    """XLA scatters the partial sums over X inside blocks of Z and then exchanges Z as if X were the major axis."""
    verdict = alone[-1][1]
    assert (verdict.how == "unexplained") == is_wrong(WRONG)


def test_the_books_four_cases(alone: list[tuple[Case, Verdict]]) -> None:
    for (case, verdict), collectives in zip(alone, BOOK.values(), strict=False):
        assert verdict.how == "cheapest", case
        assert [each.kind for each in verdict.seen] == collectives, case
