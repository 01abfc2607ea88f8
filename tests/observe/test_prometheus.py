"""What a scraper gets: the counts of the process and its workers, by host."""

from __future__ import annotations

import multiprocessing
import socket
import urllib.request

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.engine.cache.tiers import CacheTiers
from penstock.errors import ConfigError, Unusable
from penstock.events import JobCounts, count_job, listening
from penstock.observe import Prometheus, to
from penstock.observe.board import CACHE_COUNTS
from penstock.observe.environment import named_sinks
from penstock.options import CacheOptions
from tests.children import forked
from tests.observe.reads import keys_of, read_all, read_one, source_of


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def scraped(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return samples(answer.read().decode())


def samples(text):
    return {
        (sample.name, sample.labels.get("host"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def requests(found):
    return sum(value for (name, _, _), value in found.items() if name == "penstock_requests_total")


def test_a_scraper_gets_counts_and_histograms(tmp_path, port):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    with to(Prometheus(port)):
        assert not listening()
        before = scraped(port)
        for key in keys * 4:  # stores without a wire are measured every 16 responses
            read_one(source, key)
        after = scraped(port)
    assert requests(after) - requests(before) == 40
    bytes_ = ("penstock_received_bytes_total", "file", None)
    assert after[bytes_] - before.get(bytes_, 0) == 400
    name = "penstock_first_byte_seconds_bucket", "file"
    buckets = [value for (*named, _), value in after.items() if tuple(named) == name]
    assert buckets == sorted(buckets)
    assert buckets[-1] == after["penstock_first_byte_seconds_count", "file", None] > 0
    assert after["penstock_first_byte_seconds_sum", "file", None] > 0
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_jobs_are_counted_by_operation(port):
    count_job("prometheus_test", JobCounts(parts=2, failed_parts=1, size_bytes=7, seconds=1.5))
    with to(Prometheus(port)), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    for name, value in {"parts": "2.0", "failed_parts": "1.0", "bytes": "7.0", "seconds": "1.5"}.items():
        assert f'penstock_job_{name}_total{{operation="prometheus_test"}} {value}\n' in text


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_are_counted_and_their_counts_stay(tmp_path, port, method):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    context = multiprocessing.get_context(method)
    sink = Prometheus(port)
    with to(sink) as observed:
        before = requests(scraped(port))
        child = context.Process(target=read_all, args=(source, keys))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        for _ in range(2):
            assert requests(scraped(port)) == before + 10
        folder = observed._pumps[0]._writer._board.folder
    assert not folder.exists()


def test_a_forked_child_does_not_keep_the_port(port):
    started, wait = multiprocessing.Pipe(), multiprocessing.Pipe()

    def work():
        started[1].send(1)
        wait[0].recv()

    with to(Prometheus(port)) as observed, forked(work) as status:
        started[0].recv()
        observed.close()
        with to(Prometheus(port)):
            assert requests(scraped(port)) >= 0
        wait[1].send(1)
        assert status() == 0


def test_the_metrics_may_join_the_programs_own(tmp_path):
    source, keys = source_of(tmp_path), keys_of(tmp_path)
    with to(Prometheus(port=None)):
        read_all(source, keys)
        text = prometheus_client.generate_latest().decode()
    assert "penstock_requests_total{host=" in text
    assert "python_info" in text
    assert "penstock" not in prometheus_client.generate_latest().decode()


def test_prometheus_port_in_use_raises_os_error(port):
    with to(Prometheus(port)), pytest.raises(OSError, match="in use"):
        to(Prometheus(port))


def test_each_rank_of_a_machine_has_a_port(port, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with to(Prometheus(port - 1)):
        assert requests(scraped(port)) >= 0


def test_words_of_the_environment():
    assert named_sinks("prometheus,prometheus:9000,prometheus:0.0.0.0:9001") == (
        Prometheus(),
        Prometheus(9000),
        Prometheus(9001, "0.0.0.0"),  # noqa: S104  what a user may want
    )


@pytest.mark.parametrize("port", ["9464", 0, -1, 65_536, True, 1.5])
def test_a_port_that_does_not_exist_is_refused(port):
    with pytest.raises(Unusable, match="port must be"):
        Prometheus(port)


@pytest.mark.parametrize("word", ["prometheus:0.0.0.0", "prometheus:here", "prometheus:99999"])
def test_prometheus_word_without_valid_port_raises_config_error(word):
    with pytest.raises(ConfigError, match=r"port"):
        named_sinks(word)


def test_a_cache_is_counted_by_its_directory(tmp_path, port):
    cache = CacheTiers(CacheOptions(path=str(tmp_path / "cache"), size_bytes=1 << 26))
    with to(Prometheus(port)):
        cache.note(hit=False)
        cache.note(hit=True, size_bytes=7)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found = {
                sample.name: sample.value
                for family in text_string_to_metric_families(answer.read().decode())
                for sample in family.samples
                if sample.labels.get("cache") == str(tmp_path / "cache")
            }
    assert found["penstock_cache_hits_total"] == found["penstock_cache_misses_total"] == 1
    assert found["penstock_cache_hit_bytes_total"] == 7
    assert found.keys() == {f"penstock_{each.name}_total" for each in CACHE_COUNTS}
