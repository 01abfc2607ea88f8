"""The demo's lines are plain where there is no terminal, and show whatever they are given as it is."""

from __future__ import annotations

from penstock.cli.demo.story import Screen


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
