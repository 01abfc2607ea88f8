from __future__ import annotations

import warnings

import pytest

from penstock.compat import arguments


def test_each_argument_is_named_once(monkeypatch):
    monkeypatch.setattr(arguments, "_named", set())
    with pytest.warns(UserWarning, match=r"^speed is not honoured: it adapts$"):
        arguments.not_honoured("speed", "it adapts")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arguments.not_honoured("speed", "it adapts")
    with pytest.warns(UserWarning, match="colour"):
        arguments.not_honoured("colour", "there is none")
