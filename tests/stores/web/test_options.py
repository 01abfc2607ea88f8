"""Options of plain HTTP: what cannot be sent is refused at once, and nothing of them is shown."""

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest

from penstock.errors import ConfigError, Unusable
from penstock.stores.web.options import HTTPOptions

HUSH = "hush-hush-hush"


@pytest.mark.parametrize(
    "options", [{"token": HUSH}, {"username": "me", "password": HUSH}, {"headers": {"X-Api-Key": HUSH}}]
)
def test_secrets_are_shown_nowhere_and_go_to_workers_alone(options):
    made = HTTPOptions(**options)
    assert HUSH not in repr(made)
    with pytest.raises(Unusable, match="secret"):
        pickle.dumps(made)
    again = pickle.loads(ForkingPickler.dumps(made))
    assert again == made
    assert hash(again) == hash(made)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"username": "me"}, "go together"),
        ({"password": HUSH}, "go together"),
        ({"token": HUSH, "netrc": True}, "contradict"),
        ({"token": HUSH, "username": "me", "password": HUSH}, "contradict"),
        ({"username": "a:b", "password": HUSH}, "colon"),
        ({"token": "a\nb"}, "printable"),
        ({"token": ""}, "printable"),
        ({"headers": "X: y"}, "mapping"),
        ({"headers": {"a b": "c"}}, "name of a header"),
        ({"headers": {7: "c"}}, "name of a header"),
        ({"headers": {"a": "b\r\nc: d"}}, "line breaks"),
        ({"headers": {"a": "日"}}, "Latin-1"),
        ({"headers": {"a": 7}}, "text"),
        ({"headers": {"Range": "bytes=0-1"}}, "set by Penstock"),
        ({"headers": {"a": "1", "A": "2"}}, "twice"),
        ({"headers": {"Authorization": HUSH}, "token": HUSH}, "contradicts"),
        ({"bearer": HUSH}, "no option"),
    ],
)
def test_invalid_http_options_are_refused_at_construction_without_quoting_secret(options, words):
    with pytest.raises(ConfigError, match=words) as caught:
        HTTPOptions(**options)
    assert HUSH not in str(caught.value)
