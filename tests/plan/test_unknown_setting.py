"""A word of a plan that is no setting is refused alike in plans of training and of serving."""

from collections.abc import Callable

import pytest

from dragonscale.errors import InputError
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.training.plan.plan import plan_of_words


@pytest.mark.parametrize("parse", [plan_of_words, parse_serving_plan])
@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("tensor", "by itself; give its value, such as tensor=1."),
        ("tp", "by itself; give its value, such as tp=1."),
        ("tensr8", "did you mean 'tensor8'?"),
        ("hello", "A plan has degrees, written tp"),
    ],
)
def test_both_kinds_of_plan_say_what_to_write(parse: Callable[[str], object], text: str, advice: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(text)
    assert f"In the plan '{text}' the part '{text}' is not a setting" in str(refused.value)
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("parse", "text", "advice"),
    [
        (plan_of_words, "sequence", "sequence is on or off, write sequence=true."),
        (plan_of_words, "sp", "sp is on or off, write sp=true."),
        (plan_of_words, "layout", "give its value, such as layout=even."),
        (plan_of_words, "blok", "did you mean 'block'?"),
        (parse_serving_plan, "weights8", "give its value, such as weights=bf16."),
        (parse_serving_plan, "wire", "give its value, such as wire=bf16."),
    ],
)
def test_a_setting_without_its_value_is_told_a_value(parse: Callable[[str], object], text: str, advice: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(text)
    assert advice in str(refused.value)
    parse(advice.split()[-1].rstrip(".") if "=" in advice else "tp2")
