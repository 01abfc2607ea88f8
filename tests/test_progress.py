"""Long loops show a line on a terminal, where rich is installed, and nothing anywhere else; it never harms the loop."""

from __future__ import annotations

import os
import re
import sys

import pytest
import torch

import penstock as ps
from penstock import progress
from penstock.errors import ConfigError, MissingExtra
from penstock.progress import bar, current, tally, totals
from tests.children import in_child
from tests.terminal import Terminal
from tests.threads import at_once


@pytest.fixture
def terminal(monkeypatch):
    return Terminal(monkeypatch)


def move(**how):
    with bar("moving", 2, 10, **how) as count:
        count(1, 5)


def test_objects_bytes_and_their_sums_are_shown_and_taken_away(terminal):
    with terminal, bar("moving", 2, 10) as count:
        count(1, 5)
        count(1, 5)
    assert "moving" in terminal.text
    assert "1/2" in terminal.text
    assert "2/2" in terminal.text
    assert "10/10 bytes" in terminal.text
    assert terminal.text.rstrip().endswith("\x1b[2K"), "the line is erased at last"
    assert "\x1b[?25h" in terminal.text, "and the cursor is there again"


def test_a_number_of_objects_has_no_bytes(terminal):
    with terminal, tally("listing s3://b/[red]x") as count:
        tell = totals(count)
        tell(1000)
        tell(2500)
    assert "listing s3://b/[red]x" in terminal.text, "as it is: no markup"
    assert "1,000" in terminal.text
    assert "2,500" in terminal.text
    assert "bytes" not in terminal.text


@pytest.mark.parametrize("variables", [{"PENSTOCK_PROGRESS": "0"}, {"RANK": "1"}, {"TERM": "dumb"}])
def test_progress_line_is_hidden_by_environment_unless_explicitly_shown(terminal, monkeypatch, variables):
    with terminal:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        move()
        terminal.stderr.write("between\n")
        monkeypatch.setenv("TERM", "xterm")  # on a dumb one there is nothing to see in any case
        move(shown=True)
    before, _, after = terminal.text.partition("between")
    assert before == ""
    assert "moving" in after


def test_no_line_is_shown_where_none_is_wanted_or_rich_is_missing(terminal, monkeypatch):
    with terminal:
        move(shown=False)
        monkeypatch.setattr(progress, "find_spec", lambda _name: None)
        move()
        with pytest.raises(MissingExtra, match=r"penstock\[cli\]"):
            move(shown=True)
    assert terminal.text == ""


def test_a_log_gets_nothing_and_neither_does_a_closed_standard_error(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        for shown in (None, True):
            move(shown=shown)
    move()
    monkeypatch.setattr(sys, "stderr", None)
    move()
    monkeypatch.undo()
    assert (tmp_path / "log").read_text() == ""


def test_short_operation_shows_no_progress_line(terminal, monkeypatch):
    with terminal:
        monkeypatch.setattr(progress, "_PATIENCE_S", 3600.0)
        with bar("moving", 2, 10) as count:
            count(2, 10)
    assert terminal.text == ""


def test_a_terminal_that_hangs_up_does_not_end_the_work(terminal):
    with terminal, bar("moving", 2, 10) as count:
        count(1, 5)
        other = os.open(os.devnull, os.O_WRONLY)
        os.dup2(other, terminal.stderr.fileno())
        os.close(other)
        os.close(terminal.stderr.fileno())  # every write fails from here on
        count(1, 5)
        os.dup2(os.open(os.devnull, os.O_WRONLY), terminal.stderr.fileno())


def test_inner_progress_bar_stays_hidden_and_current_counts_for_the_outer(terminal):
    with terminal, bar("outer", 1, 100) as outer:
        outer(0, 10)
        with bar("inner", 1, 50) as inner:
            inner(0, 50)
            current()(0, 20)
        outer(0, 0)
    assert "inner" not in terminal.text
    assert "30/100 bytes" in terminal.text
    assert "80/100" not in terminal.text


def test_counting_from_many_threads_loses_nothing(terminal):
    with terminal, bar("moving", None, 400) as count:
        at_once(*[lambda: [count(0, 1) for _ in range(50)]] * 8)
        count(1, 0)
    assert "400/400 bytes" in terminal.text


def test_a_forked_process_draws_nothing_over_its_parents_line(terminal):
    with terminal, bar("moving", 1, 100) as count:
        count(0, 10)
        in_child(lambda: (count(0, 90), current()(0, 90)))
    assert "100/100" not in terminal.text


def test_an_error_in_the_loop_takes_the_line_away_and_the_next_one_has_its_turn(terminal):
    with terminal:
        with pytest.raises(KeyboardInterrupt), bar("first", 1, 10) as count:
            count(0, 5)
            raise KeyboardInterrupt
        with bar("second", 1, 10) as count:
            count(0, 5)
    assert "second" in terminal.text


def test_saving_loading_and_listing_show_their_line(terminal, tmp_path):
    state = {"a": torch.arange(1000, dtype=torch.float32), "b": torch.ones(50)}
    with terminal:
        ps.save(state, tmp_path / "state.pt")
        found = ps.load(tmp_path / "state.pt")
        ps.save_safetensors(state, tmp_path / "state.safetensors")
        again = ps.load_safetensors(tmp_path / "state.safetensors")
        for kind in (ps.MapDataset, ps.IterableDataset):
            kind.from_prefix(f"{tmp_path}/")
    assert all(torch.equal(found[name], state[name]) and torch.equal(again[name], state[name]) for name in state)
    for title in ("saving", "loading"):
        for name in ("state.pt", "state.safetensors"):
            assert re.search(rf"{title} (file://)?{tmp_path}/{name}", terminal.text)
    assert re.search(rf"listing (file://)?{tmp_path}/ 2 ", terminal.text)
    assert "4.2/4.2 KiB" in terminal.text or "4.1/4.1 KiB" in terminal.text, "of the safetensors, all bytes"


def test_a_runs_checkpoints_show_their_line_and_background_saves_do_not(terminal, tmp_path):
    state = {"a": torch.arange(2000, dtype=torch.float32)}
    (tmp_path / "files").mkdir()
    for name in "xy":
        (tmp_path / "files" / name).write_bytes(bytes(1500))
    with terminal:
        manager = ps.CheckpointManager(tmp_path / "run")
        manager.save(1, state)
        manager.restore(1)
        manager.save_folder(2, tmp_path / "files")
        manager.restore_folder(tmp_path / "again", 2)
        terminal.stderr.write("then\n")
        with ps.AsyncCheckpointer(manager) as background:
            background.save(3, state)
        at_once(lambda: ps.save(state, tmp_path / "state.pt"))
    lines, _, quiet = terminal.text.partition("then")
    assert quiet.strip() == ""
    for title, step in (("saving", 1), ("restoring", 1), ("saving", 2), ("restoring", 2)):
        assert re.search(rf"{title} (file://)?{tmp_path}/run/0*{step}/", lines), (title, step)
    assert "2/2" in lines, "both files were restored"
    assert "2.9/2.9 KiB" in lines


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_distributed_checkpoints_show_their_line(terminal, tmp_path):
    import torch.distributed.checkpoint as dcp

    from penstock.checkpoint.dcp import StorageReader, StorageWriter

    state = {"a": torch.arange(2000, dtype=torch.float32)}
    with terminal:
        dcp.save(state, storage_writer=StorageWriter(tmp_path / "dcp"), no_dist=True)
        dcp.load(state, storage_reader=StorageReader(tmp_path / "dcp"), no_dist=True)
    for title in ("saving", "loading"):
        assert re.search(rf"{title} (file://)?{tmp_path}/dcp/", terminal.text), title


def test_progress_false_is_silent_everywhere(terminal, tmp_path):
    state = {"a": torch.ones(10)}
    with terminal:
        ps.save(state, tmp_path / "state.pt", progress=False)
        ps.load(tmp_path / "state.pt", progress=False)
        ps.save_safetensors(state, tmp_path / "state.safetensors", progress=False)
        ps.load_safetensors(tmp_path / "state.safetensors", progress=False)
        ps.Catalog.scan(f"{tmp_path}/", progress=False)
        ps.IterableDataset.from_prefix(f"{tmp_path}/", progress=False)
    assert terminal.text == ""


@pytest.mark.parametrize("shown", ["x", 0, 1.5])
def test_a_progress_that_is_neither_true_false_nor_none_is_refused(shown):
    with pytest.raises(ConfigError, match="progress must be True, False or None"), tally("listing", shown=shown):
        pass
    with pytest.raises(ConfigError, match="progress must be True, False or None"), bar("copying", 1, 1, shown=shown):
        pass
