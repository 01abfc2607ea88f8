"""Options of S3 refuse halves and contradictions."""

import pytest

from penstock.errors import ConfigError
from penstock.stores.s3.options import S3Options


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ({"access_key": "id"}, "go together"),
        ({"secret_key": "secret"}, "go together"),
        ({"session_token": "token"}, "needs access_key"),
        ({"anonymous": True, "access_key": "id", "secret_key": "secret"}, "contradict"),
        ({"addressing": "sideways"}, "sideways"),
    ],
)
def test_halves_and_contradictions_are_refused(fault, match):
    with pytest.raises(ConfigError, match=match):
        S3Options(**fault)
