"""Quantities as people write them, and what is refused."""

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.units import parse, parse_count, parse_length

READ = [
    ("1.5GB", "bytes", 1.5e9),
    ("4,194,304", "count", 4194304),
    ("1,500GB", "bytes", 1.5e12),
    ("$1,200", "USD", 1200),
    ("900GB/s", "bytes/s", 9e11),
    ("15T", "count", 15e12),
    ("0.5s", "s", 0.5),
    ("20/s", "count/s", 20),
    ("2k/s", "count/s", 2000),
    ("60/min", "count/s", 1),
    ("7200/h", "count/s", 2),
]
WRONG = [
    ("1,5GB", "bytes", "write 1.5GB"),
    ("0,5s", "s", "write 0.5s"),
    ("0,500s", "s", "write 0.500s"),
    ("1,23,456", "count", "threes"),
    ("20", "count/s", "write 20/s"),
    ("500", "s", "write 500ms or 500s"),
    ("34", "bytes", "write 34MB or 34GB"),
    ("1e300T", "count", "finite"),
    ("1e30", "count", "at most"),
    ("1e-320s", "s", "at least"),
    ("-1s", "s", "negative"),
    ("nan", "s", "not a number"),
    ("٣s", "s", "not a number"),
    (10**5000, "count", "at most"),
    ("", "s", "not a number"),
]


@pytest.mark.parametrize(("text", "dimension", "value"), READ)
def test_quantities_are_read(text: str, dimension: str, value: float) -> None:
    assert parse(text, dimension) == value


@pytest.mark.parametrize(("text", "dimension", "says"), WRONG, ids=range(len(WRONG)))
def test_wrong_quantities_are_refused_with_what_to_write(text: str, dimension: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse(text, dimension)


def test_counts_are_whole() -> None:
    with pytest.raises(InputError, match="whole"):
        parse_count("1.6")


def test_lengths_are_powers_of_two_and_say_so() -> None:
    assert parse_length("32k") == (parse_length("32K")[0], "32k is read as 32,768 tokens.")
    assert parse_length("8192") == (8192, "")
    assert "1,048,576" in parse_length("1M")[1]
    for wrong in ("0", "0.0001k", "200000k", "-5", "x"):
        with pytest.raises(InputError):
            parse_length(wrong)


def test_a_part_of_a_thing_is_refused_with_a_number_of_its_size() -> None:
    with pytest.raises(InputError, match=r"--replicas is '1\.6', which is not a whole number; write e\.g\. '2'\."):
        parse_count("1.6", "--replicas")
    with pytest.raises(InputError, match=r"write e\.g\. '4M'"):
        parse_count("4000.5", "tokens")
