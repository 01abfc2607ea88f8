"""Screens are drawn on terminals alone, fold long text below its beginning, and show whatever they get literally."""

from __future__ import annotations

import io
import os
import pty
import re

import pytest
from rich.console import Console

from penstock.cli.commands import config
from penstock.cli.screen import Cell, Screen, terminal
from tests.terminal import read_all

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def drawn():
    """Return a screen of 90 columns and what reaches it."""
    screen, text = Screen(), io.StringIO()
    screen._console = Console(file=text, force_terminal=True, width=90, highlight=False, soft_wrap=True)
    return screen, text


def lines(text):
    return [line.rstrip() for line in CODES.sub("", text.getvalue()).splitlines()]


def test_lines_are_plain_and_uncut_without_a_terminal(capsys):
    screen, long = Screen(), "x" * 500
    screen.title("A title")
    screen.say("label", long)
    assert capsys.readouterr().out == f"\nA title\n  label       {long}\n"


def test_rich_markup_in_text_is_printed_literally(capsys):
    Screen().say("bucket", "s3://a/[bold]b[/bold] :smile:")
    assert capsys.readouterr().out == "  bucket      s3://a/[bold]b[/bold] :smile:\n"


def test_progress_bar_is_silent_without_a_terminal_but_lines_are_printed(capsys):
    screen = Screen()
    with screen.bar("uploading", 3) as show:
        show(1)
        screen.say("within", "a line")
        show(3)
    assert capsys.readouterr() == ("  within      a line\n", "")


def test_rows_fold_long_text_below_its_beginning_and_escape_controls(drawn):
    screen, text = drawn
    screen.row(Cell("ab", "red", 4), Cell("7", "", 3, right=True), Cell("[b]x[/b] \x1b[2J " + "word " * 20))
    found = lines(text)
    assert found[0].startswith("ab      7  [b]x[/b] \\x1b[2J word")
    assert len(found) == 2
    assert found[1].startswith(" " * 11 + "word")
    assert "\x1b[31m" in text.getvalue(), "red"


def test_waiting_line_is_erased_and_rows_stand_above_it(drawn):
    screen, text = drawn
    with screen.waiting("… a moment"):
        screen.row(Cell("done"))
    assert "… a moment" in text.getvalue()
    assert text.getvalue().endswith("\x1b[2K"), "the line is erased at last"


@pytest.mark.parametrize(
    ("is_terminal", "as_json", "term"), [(False, False, "xterm"), (True, True, "xterm"), (True, False, "dumb")]
)
def test_no_screen_for_pipes_json_and_dumb_terminals(monkeypatch, is_terminal, as_json, term):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("TERM", term)
    assert terminal(as_json=as_json) is None


def test_settings_are_drawn_in_groups_with_their_origins(drawn):
    screen, text = drawn
    rows = [("url", "s3://b/", "URL"), ("retry.attempts", "3", "-o"), ("retry.cap_s", "10", "default")]
    config._draw(screen, rows, (14, 7))
    found = lines(text)
    assert found[1:3] == ["", "retry"]
    assert found[3].split() == ["attempts", "3", "-o"]
    assert "\x1b[1;32m3" in text.getvalue(), "a setting that was made is in colour"
    assert "\x1b[2m10" in text.getvalue(), "a default is dim"


def test_doctor_on_a_terminal_ends_with_sums(start, strict):
    terminal_, side = pty.openpty()
    start("doctor", "s3://bucket/runs/", bucket=strict, stdout=side)
    os.close(side)
    shown = CODES.sub("", read_all(terminal_))
    assert re.search(r"✓  settings +\d+ ms  S3", shown)
    assert re.search(r"\d+ passed", shown.splitlines()[-1])
    assert strict.store.secret_key not in shown
