"""The OpenAPI schema against the server: requests made from it, valid and not, get what it promises."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tiny import tiny_reader

from ccrank.server.app import create_app
from ccrank.server.settings import ServerSettings

EXAMPLES = 25
"""Requests of each kind; benchmarks/serve_fuzz.py sends 10,000."""

app = create_app(
    ServerSettings(hosts=("testserver",), max_items=50, max_prompts=2000), {"tiny": tiny_reader()}
)
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_answers_conform_to_the_schema(case):
    """No request gives a server error, and every answer has a status, a type and a form that the schema names."""
    # A request of the right form may still make no sense, such as a list of equal items: 422.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
