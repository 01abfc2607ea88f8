"""The demo's report counts the images that the training as it ended has learnt from, and nothing else."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from penstock.cli.demo import story
from penstock.cli.demo.story import Pace, Tally
from penstock.errors import PenstockError


def tally_of(*events):
    tally = Tally()
    for event in events:
        tally.hear(event)
    return tally


def ready(step):
    return {"ready": step, "batches": 2, "images": 4}


def step(number, loss, *numbers, epoch=0):
    return {"step": number, "epoch": epoch, "numbers": numbers, "loss": loss}


def test_the_tally_stands_where_the_training_stands():
    tally = tally_of(ready(0), step(1, 2.0, 0, 1), step(2, 1.0, 2, 3), step(3, 0.5, 1, 2, epoch=1))
    assert (tally.step, tally.loss(0), tally.loss(1)) == (3, 1.5, 0.5)
    assert tally.place(tally.step) == "in epoch 2, after 1 of 2 batches"
    assert tally.delivered(2) == (2, 0)


def test_steps_after_the_checkpoint_are_forgotten_and_compared_when_they_come_again():
    killed = [ready(0), step(1, 2.0, 0, 1), step(2, 1.0, 2, 3), step(3, 0.5, 0, 1, epoch=1)]
    tally = tally_of(*killed, ready(1), step(2, 1.0, 2, 3), step(3, 0.6, 0, 1, epoch=1))
    assert (tally.began, tally.again, tally.alike) == (1, 2, 1)
    assert tally.delivered(1) == (0 - 2, 0)
    assert tally.delivered(2) == (2, 0)


@pytest.mark.parametrize(
    ("numbers", "missed", "repeated"), [((2, 3), 0, 0), ((2, 2), 1, 1), ((1, 3), 1, 1), ((2,), 1, 0)]
)
def test_an_image_that_is_missed_or_repeated_is_counted(numbers, missed, repeated):
    assert tally_of(ready(0), step(1, 2.0, 0, 1), step(2, 1.0, *numbers)).delivered(1) == (missed, repeated)


def test_the_pace_is_the_sum_of_all_epochs_and_processes():
    tally = tally_of(ready(0), {"epoch": 0, "pace": (100, 4.0, 1.0)}, ready(0), {"epoch": 0, "pace": (100, 4.0, 0.0)})
    assert tally.pace == Pace(200, 8.0, 1.0)
    assert str(tally.pace) == "25 objects/s, 12% of the time waiting for data"


@pytest.mark.parametrize(("accuracy", "fails"), [(0.94, True), (0.95, False)])
def test_low_accuracy_is_an_error_after_the_report(monkeypatch, accuracy, fails):
    told = []

    class Story:
        def __init__(self, *given):
            told.append(given[0])
            self.tally = Tally(accuracy=accuracy)
            self.fill = self.train = lambda: None
            self.report = lambda *_: told.append("report")

    monkeypatch.setattr(story, "_Story", Story)
    monkeypatch.setattr(story, "embedded", lambda _provider: nullcontext("s3://penstock-demo/"))
    with pytest.raises(PenstockError, match=r"a test accuracy of 94\.0% is below 95%") if fails else nullcontext():
        story.Demo().run()
    assert told == ["s3://penstock-demo/", "report"]
