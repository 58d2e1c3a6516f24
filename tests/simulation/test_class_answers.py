"""Classes of traffic as they are asked for and answered: words, files and use cases, targets and costs of each."""

from dataclasses import replace
from pathlib import Path

import pytest

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.commands.simulate.simulate_sheet import simulate_sheet
from dragonscale.commands.simulate.traffic_flags import read_classes
from dragonscale.errors import InputError
from dragonscale.simulation import Mixed
from dragonscale.simulation.fleet_sizing import capacity
from dragonscale.simulation.fleet_sizing.traffic_classes import class_of, means_of, use_cases

ONE = SimulateQuestion("llama3.1-8b", on="h100:1", requests="1500", engine="generic", max_rate=False)
TWO = "chat,rate=8/s,think=2s,input_price=0.2,output_price=0.6,agent,rate=4/s,priority=1,pause=1s,ttft=p95:20ms"


def asked(question: SimulateQuestion) -> SimulateReport:
    return run_simulation(read_question(question))[0]


@pytest.fixture(scope="module")
def two() -> SimulateReport:
    return asked(replace(ONE, classes=TWO))


def test_each_class_is_held_to_its_own_targets(two: SimulateReport) -> None:
    chat, agent = two.classes
    assert (chat.name, agent.name, chat.priority, agent.priority) == ("chat", "agent", 0, 1)
    assert chat.slo == {"ttft_s": 0.3, "tpot_s": 0.03}
    assert agent.slo == {"ttft_s": 0.02, "tpot_s": 0.04}
    assert (chat.meets_slo, agent.meets_slo, two.meets_slo) == (True, False, False)
    assert two.bound_by == "TTFT"
    assert "TTFT of agent is" in two.advice
    assert two.exit_code == 4
    assert chat.good_share > 0.95 > agent.good_share
    assert chat.arrived + agent.arrived == 1500
    goods = chat.goodput_requests_per_s + agent.goodput_requests_per_s
    assert goods == pytest.approx(two.rates.goodput_requests_per_s, rel=0.1)


def test_dollars_and_waits_of_classes_add_up(two: SimulateReport) -> None:
    chat, agent = two.classes
    assert chat.usd_per_h is not None
    assert agent.usd_per_h is not None
    assert chat.usd_per_h + agent.usd_per_h == pytest.approx(two.usd_per_h)
    assert chat.served_share + agent.served_share == pytest.approx(1)
    assert chat.earned_usd_per_h == pytest.approx(
        3600 * (0.2 * chat.input_tokens_per_s + 0.6 * chat.output_tokens_per_s) / 1e6
    )
    assert agent.earned_usd_per_h == 0
    for one in two.classes:
        assert sum(one.waited.values()) == pytest.approx(one.latency["e2e_s"].mean)
        low, high = one.latency["ttft_s"].mean_low, one.latency["ttft_s"].mean_high
        assert low is not None
        assert high is not None
        assert low <= one.latency["ttft_s"].mean <= high
    assert any("classes of traffic" in str(block) for block in simulate_sheet(two, False).blocks)


def test_what_holds_is_found_for_classes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of all classes together at which the last of their targets is met; more replicas for the asked one."""
    for name, value in (("MIN_REQUESTS", 300), ("MAX_RATE_RUNS", 6), ("TURNOVERS", 2), ("MAX_SIZE_RUNS", 2)):
        monkeypatch.setattr(capacity, name, value)
    words = "chat,rate=60/s,turns=1,output=64,prefixes=,lengths=fixed,tpot=p95:9ms,batch,rate=6/s,output=64"
    found = asked(replace(ONE, classes=words, requests="600", max_rate=True)).capacity
    assert found is not None
    assert found.requests_per_s is not None
    assert found.requests_per_s < 66
    assert found.limited_by == "tpot_s"
    assert found.replicas is not None
    assert found.replicas > 1


def test_a_file_says_the_same_as_words(tmp_path: Path) -> None:
    path = tmp_path / "traffic.toml"
    path.write_text(
        '[[class]]\nname = "chat"\nrate = "8/s"\nthink = "2s"\ninput_price = 0.2\noutput_price = 0.6\n'
        '[[class]]\nname = "agent"\nrate = "4/s"\npriority = 1\npause = "1s"\nttft = "p95:20ms"\n'
    )
    assert read_classes(replace(ONE, traffic=str(path))) == read_classes(replace(ONE, classes=TWO))


def test_users_of_a_use_case_come_at_their_rate_and_flags_change_it() -> None:
    read = read_question(replace(ONE, use_case="chat", users=3600, prompt="100", ttft="p99:1s"))
    (one,) = read.tables
    assert one.requests_per_s == pytest.approx(10)
    assert (one.prompt, one.output, one.ttft, one.tpot) == ("100", 215, "p99:1s", "p95:30ms")
    assert any("LMSYS" in note and "assumed: think" in note for note in read.notes)
    assert "users 3600" in one.text
    assert "think 60s" in one.text
    stream = read.job.traffic.source
    assert isinstance(stream, Mixed)
    turns = [request.session for request in stream.start(0)[0]]
    assert len(set(turns)) == len(turns)


def test_every_use_case_is_a_class_with_a_source_and_agents_are_as_long_as_measured() -> None:
    for name in use_cases():
        one = class_of({"name": name, "users": 100}, name)
        assert one.source
        assert one.requests_per_s > 0
        assert one.targets
        unknown = set(one.assumed.replace(" ", "").split(",")) - set(one.__struct_fields__)
        assert not unknown
    agent = read_question(replace(ONE, use_case="agent", rate="4/s")).job.traffic
    assert agent.prompt == pytest.approx(8600, rel=0.15)
    means = means_of(agent.source)
    assert means.output == pytest.approx(182, rel=0.1)
    assert 0.8 < means.repeated_share < 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"classes": "rate=8/s"}, "begin with its name"),
        ({"classes": "chat,rat=8/s"}, "rate"),
        ({"classes": "mine,prompt=10"}, "says no rate"),
        ({"classes": "chat,turns=x"}, "write a number"),
        ({"classes": "chat,rate=8/s", "rate": "4/s"}, "leave --rate out"),
        ({"classes": "chat,rate=8/s", "use_case": "chat"}, "give one of them"),
        ({"use_case": "chatt", "users": 10}, "chat"),
        ({"users": 10, "rate": "4/s"}, "--use-case"),
        ({"classes": "chat,rate=8/s,turns=0.5"}, "turns of the class chat is 0.5; a session has at least 1"),
    ],
)
def test_what_cannot_be_is_refused(words: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_question(replace(ONE, **words))
