"""Schemathesis on the server's own description: whatever it thinks of, no answer breaks the description, and none is a
500.

One of its checks is left out: that a request which fits the schema is never refused. A schema cannot say that a prompt
has to fit the model, that a text has to be a regular expression, or that two fields exclude each other; and it takes
1.0 for an integer.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as effort

from dragonscale.runtime.server.http import build_app
from dragonscale.runtime.server.text import plain_text
from tests.runtime.serve.echo_front import EchoFront, settings

APP = build_app(EchoFront(most=64), plain_text(300), settings(length=64))
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)
MUCH = effort(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def hold(case):
    checks = [check for check in schemathesis.checks.CHECKS.get_all() if check.__name__ != "positive_data_acceptance"]
    assert len(checks) + 1 == len(schemathesis.checks.CHECKS.get_all())
    case.call_and_validate(checks=checks)


@pytest.mark.slow
@SCHEMA.parametrize()
@MUCH
def test_a_lot(case):
    hold(case)
