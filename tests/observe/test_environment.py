"""PENSTOCK_OBSERVE opens sinks in the process and its workers, once each, and a mistake in it breaks no import."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.observe import ChromeTrace, JsonLines, Log
from penstock.observe.environment import named_sinks
from tests.children import python
from tests.data.datasets.ranks import free_port
from tests.observe.reads import lines_of


def test_words_name_sinks():
    assert named_sinks("") == named_sinks(" , ") == ()
    assert named_sinks("jsonl:/a:b, chrome:c.json,log") == (JsonLines("/a:b"), ChromeTrace("c.json"), Log())


@pytest.mark.parametrize("text", ["json", "jsonl", "jsonl:", "log:x", "jsonl:a,nothing"])
def test_other_words_are_refused(text):
    with pytest.raises(ConfigError, match="PENSTOCK_OBSERVE"):
        named_sinks(text)


SCRIPT = """
    import multiprocessing, sys, os
    import penstock as ps
    from penstock.source import open_source

    def read(source, key):
        source.head(key)

    if __name__ == "__main__":
        source, key = open_source("file://" + sys.argv[1])
        source.head(key)
        child = multiprocessing.get_context("{method}").Process(target=open_source(sys.argv[1])[0].head, args=(key,))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_variable_opens_sinks_in_the_process_and_once_in_its_children(tmp_path, monkeypatch, method):
    monkeypatch.setenv("PENSTOCK_OBSERVE", f"jsonl:{tmp_path}/events.jsonl")
    (tmp_path / "key").write_bytes(b"bytes")
    result = python(SCRIPT.replace("{method}", method), str(tmp_path / "key"))
    assert (result.returncode, result.stderr) == (0, "")
    lines = lines_of(tmp_path / "events.jsonl")
    assert [line["event"] for line in lines] == ["RequestStarted", "RequestEnded"] * 2
    assert len({line["pid"] for line in lines}) == 2


COUNTED = """
    import multiprocessing, sys
    from urllib.request import urlopen
    from penstock.source import open_source

    source, key = open_source("file://" + sys.argv[1])
    source.head(key)
    child = multiprocessing.get_context("spawn").Process(target=open_source(sys.argv[1])[0].head, args=(key,))
    child.start()
    child.join()
    text = urlopen("http://127.0.0.1:" + sys.argv[2] + "/metrics", timeout=60).read().decode()
    print(*(line for line in text.splitlines() if line.startswith("penstock_requests_total")))
"""


def test_a_spawned_child_adds_to_its_parents_metrics_without_a_warning(tmp_path, monkeypatch):
    port = str(free_port())
    monkeypatch.setenv("PENSTOCK_OBSERVE", f"jsonl:{tmp_path}/no/folder,prometheus:{port}")
    (tmp_path / "key").write_bytes(b"bytes")
    result = python(COUNTED, str(tmp_path / "key"), port)
    assert result.stdout == 'penstock_requests_total{host="file"} 2.0\n'
    assert result.stderr.count("\n") == result.stderr.count("No such file or directory") > 0, result.stderr


@pytest.mark.parametrize("text", ["nonsense", "jsonl:/no/such/folder/file", "jsonl:{x}"])
def test_a_mistake_is_logged_and_breaks_no_import(monkeypatch, text):
    monkeypatch.setenv("PENSTOCK_OBSERVE", text)
    result = python("import penstock; print('imported')")
    assert result.stdout == "imported\n"
    assert "sink" in result.stderr
