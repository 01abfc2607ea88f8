"""Keys, sizes and times as people and programs read them."""

from __future__ import annotations

import pytest

from penstock.cli.output import harmless, harmless_lines, moment, readable


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (3 << 29, "1.5 GiB"),
        ((1000 << 10) - 1, "1,000 KiB"),
        ((1 << 50) - 1, "1,024 TiB"),
        (1 << 60, "1,024 PiB"),
    ],
)
def test_size_is_printed_in_the_largest_unit_it_fills(size_bytes, text):
    assert readable(size_bytes) == text


def test_a_time_is_iso_8601_in_utc_and_none_where_no_calendar_has_it():
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert moment(1e9 + 0.999) == "2001-09-09T01:46:40Z"
    assert [moment(seconds) for seconds in (None, 1e300, float("nan"), float("inf"), -1e18)] == [None] * 5


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, "a\\x1b[2Jb"), (False, "a\x1b[2Jb")])
def test_only_a_terminal_is_shown_a_key_s_escapes_escaped(monkeypatch, is_terminal, shown):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    assert harmless("a\x1b[2Jb") == shown


def test_a_text_of_several_lines_keeps_them_on_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert harmless_lines("a\x1b[2J\nb\r") == "a\\x1b[2J\nb\\r"
