"""Values are small, frozen, and refuse what cannot be."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from penstock.errors import Unusable
from penstock.values import ObjectMeta, Page, Place, Span, as_folder, cut_spans, span_in, switch


def test_span_defaults_to_open_end_without_version_pin():
    assert Span("key") == ("key", 0, None, "", False, 0, None)
    assert pickle.loads(pickle.dumps(Span("key", 1, 2, "e", whole=True))) == Span("key", 1, 2, "e", whole=True)


@pytest.mark.parametrize("value", [ObjectMeta("key", 1), Page(()), Place()])
def test_values_are_frozen_and_travel(value):
    with pytest.raises((FrozenInstanceError, TypeError)):
        value.key = "other"
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("place", [(1, 1, 0, 1), (-1, 1, 0, 1), (0, 1, 1, 1), (0, 0, 0, 1), (0, 1, 0, 0)])
def test_place_outside_valid_range_is_refused(place):
    with pytest.raises(Unusable, match="invalid place"):
        Place(*place)


def test_place_is_read_from_launcher_environment(monkeypatch):
    assert Place.from_environment() == Place(0, 1)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(Unusable, match="together"):
        Place.from_environment()
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Place.from_environment() == Place(2, 4)
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(Unusable, match="invalid place"):
        Place.from_environment()


def test_a_folders_keys_begin_with_it():
    assert [as_folder(key) for key in ("", "a", "a/")] == ["", "a/", "a/"]


@pytest.mark.parametrize(
    ("given", "expected"), [(True, True), (0, False), (np.True_, True), (np.zeros((), bool), False)]
)
def test_a_switch_may_be_of_python_or_numpy(given, expected):
    assert switch(given, "overwrite") is expected


@pytest.mark.parametrize("given", ["no", "", None, 2, 0.5, [], np.ones(2, bool)])
def test_a_value_that_is_neither_true_nor_false_is_refused(given):
    with pytest.raises(Unusable, match="overwrite must be True or False"):
        switch(given, "overwrite")


def test_a_span_is_bound_to_the_version_and_known_to_be_the_whole_object():
    meta = ObjectMeta("key", 10, "tag")
    assert span_in(meta) == span_in(meta, 0, 10) == Span("key", 0, 10, "tag", whole=True)
    assert span_in(meta, 3) == Span("key", 3, 10, "tag")
    assert span_in(meta, 0, 9) == Span("key", 0, 9, "tag")


def test_pieces_cover_the_asked_bytes_of_an_object_once():
    meta = ObjectMeta("key", 10, "tag")
    assert [each[1:4] for each in cut_spans(meta, 4)] == [(0, 4, "tag"), (4, 8, "tag"), (8, 10, "tag")]
    assert [each[1:4] for each in cut_spans(meta, 4, 3, 99)] == [(3, 7, "tag"), (7, 10, "tag")]
    assert not list(cut_spans(meta, 4, 10))
