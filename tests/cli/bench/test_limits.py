"""A machine's limits, as far as it tells them: quotas of containers count, and what is unknown is 0."""

from __future__ import annotations

import os

import pytest

from penstock.cli.bench import limits
from penstock.cli.bench.limits import examined, network


def test_this_machine_has_limits():
    found = examined()
    assert 0 < found.cores <= (os.cpu_count() or 1)
    assert found.memory_bytes > 1 << 20
    assert found.copy_bytes_per_s > 0
    assert found.socket_bytes_per_s > 0
    assert found.network == ""
    assert found.network_bytes_per_s == 0


def test_a_containers_quota_bounds_processors_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    whole = limits._cores(), limits._memory_bytes()
    for name, text in {"cpu.max": "50000 100000", "memory.max": "3000000", "memory.current": "1000000"}.items():
        (tmp_path / name).write_text(text + "\n")
    assert limits._cores() == 0.5
    assert limits._memory_bytes() == 2_000_000
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert limits._cores() == whole[0]
    assert limits._memory_bytes() > 2_000_000


def test_processors_are_busy_for_as_long_as_they_are_not_idle(tmp_path, monkeypatch):
    second = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(limits, "_STAT", tmp_path / "stat")
    assert limits.occupied() == (0, 0), "elsewhere than on Linux"
    found = []
    for busy in (100, 400):  # user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
        ticks = [busy, 1, 2, 500 + busy // 4, 100, 3, 4, 5, 77, 77]
        (tmp_path / "stat").write_text(f"cpu  {' '.join(str(each * second) for each in ticks)}\ncpu0 1 1\n")
        found.append(limits.occupied())
    assert found[0] == (115.0, 740.0)
    assert found[1].share(found[0]) == pytest.approx(300 / 375)
    assert found[0].share(found[0]) == 0.0


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "127.0.0.1", "localhost:80", "[::1]:443"])
def test_a_server_on_this_machine_is_reached_over_loopback(host):
    assert network(host) == ("lo", 0.0)


@pytest.mark.parametrize("host", ["", "memory", "file", "no-such-host.invalid:443"])
def test_missing_or_unresolvable_host_yields_empty_network(host):
    assert network(host) == ("", 0.0)


@pytest.mark.parametrize(("speed", "bytes_per_s"), [("25000", 3.125e9), ("-1", 0.0), (None, 0.0)])
def test_default_route_interface_and_its_speed_are_returned(tmp_path, monkeypatch, speed, bytes_per_s):
    monkeypatch.setattr(limits, "_is_local", lambda _host: False)
    monkeypatch.setattr(limits, "_routes", lambda: [["docker0", "000011AC"], ["ens5", "00000000"]])
    monkeypatch.setattr(limits, "_NET", tmp_path)
    (tmp_path / "ens5").mkdir()
    if speed is not None:
        (tmp_path / "ens5" / "speed").write_text(speed + "\n")
    assert network("s3.amazonaws.com") == ("ens5", bytes_per_s)
