"""Which sinks a profile names: words as of PENSTOCK_OBSERVE, with paths relative to the file."""

import pytest

from penstock.errors import ConfigError
from penstock.observe.environment import _KINDS
from penstock.options.table import Value
from penstock.stores.profiles.build import WORDS, named_sinks
from penstock.stores.profiles.sinks import NamedSinks


def named(raw, **variables):
    return named_sinks({"observe": Value(raw, "file:3: profiles.x.observe", "/etc/p")}, variables.get).words


def test_words_are_those_of_the_variable():
    assert set(WORDS) == _KINDS.keys()


def test_words_in_a_text_or_a_list_with_paths_relative_to_the_file():
    assert named("log, jsonl:events-{rank}.jsonl") == ("log", "jsonl:/etc/p/events-{rank}.jsonl")
    assert named(["chrome:/tmp/t.json", "prometheus:9000"]) == ("chrome:/tmp/t.json", "prometheus:9000")
    assert named(["otel:http://${HOST}:4318"], HOST="h") == ("otel:http://h:4318",)
    assert not named_sinks({}, {}.get)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("json:x", "file:3: profiles.x.observe: 'json' does not name a sink: did you mean 'jsonl'"),
        (["nothing"], "there are jsonl, chrome, log, otel, prometheus"),
        ([1], "must be a list of str"),
        ("log,${NOT_SET}", "NOT_SET is not set"),
    ],
)
def test_mistakes_are_errors_with_their_place(raw, text):
    with pytest.raises(ConfigError) as caught:
        named(raw)
    assert text in str(caught.value)


def test_headers_of_a_collector_do_not_show():
    found = named_sinks({"telemetry.metrics.headers.k": Value("${S}", "o")}, {"S": "secret"}.get)
    assert found.telemetry == (("metrics.headers.k", "secret"),)
    assert "secret" not in repr(found)
    assert found
    assert not NamedSinks()
