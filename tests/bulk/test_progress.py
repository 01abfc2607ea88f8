"""A bar is shown on a terminal, where rich is installed, and nowhere else."""

from __future__ import annotations

import sys

import pytest

from penstock.bulk.progress import bar
from penstock.errors import MissingExtra


def test_a_bar_says_nothing_where_there_is_no_terminal(capsys):
    with bar(2, 10) as count:
        count(1, 5)
        count(1, 5)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def _terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


@pytest.mark.usefixtures("_terminal")
def test_a_bar_is_wanted_without_rich_and_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(MissingExtra, match=r"penstock\[cli\]"), bar(2, 10, shown=True):
        pass


@pytest.mark.usefixtures("_terminal")
def test_no_bar_is_shown_without_rich_unless_it_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("penstock.bulk.progress.find_spec", lambda _name: None)
    with bar(2, 10) as count:
        count(1, 5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_terminal")
def test_no_bar_is_shown_where_none_is_wanted(capsys):
    with bar(2, 10, shown=False) as count:
        count(1, 5)
    assert capsys.readouterr() == ("", "")
