"""What is said in the report is what was heard."""

from __future__ import annotations

import pytest

from penstock.demo.tally import Pace, Tally


def told(*events):
    tally = Tally()
    for event in events:
        tally.hear(event)
    return tally


START = {"ready": 0, "checkpoint": "", "batches": 2}
SAVED = {"saved": "epoch-1", "pace": (100, 2_000_000, 4.0, 1.0)}


def test_it_stands_where_the_training_stands():
    tally = told(START, {"loss": 2.0}, {"loss": 1.0}, SAVED, {"loss": 0.5})
    assert (tally.epoch, tally.batch, tally.checkpoint) == (1, 1, "epoch-1")
    assert tally.loss(0) == 1.5


def test_a_new_life_begins_where_it_says_and_is_compared_with_the_last():
    again = {"ready": 1, "checkpoint": "epoch-1", "batches": 2}
    tally = told(START, {"loss": 2.0}, {"loss": 1.0}, SAVED, {"loss": 0.5}, {"loss": 0.4}, again)
    assert (tally.began, tally.epoch, tally.batch) == (1, 1, 0)
    tally.hear({"loss": 0.5})
    tally.hear({"loss": 0.4000001})
    assert (tally.again, tally.alike) == (2, 1)


def test_only_whole_epochs_are_in_the_pace():
    tally = told(START, {"loss": 2.0}, {"loss": 1.0}, SAVED, {"loss": 0.5}, START, SAVED)
    assert tally.pace == Pace(200, 4_000_000, 8.0, 2.0)
    assert str(tally.pace) == "25 objects/s, 0.500 MB/s, 25% of the time waiting for data"


def test_the_last_word_is_the_accuracy():
    assert told(START, {"accuracy": 0.98}).accuracy == pytest.approx(0.98)
