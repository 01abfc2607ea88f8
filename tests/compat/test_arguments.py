from __future__ import annotations

import inspect
import warnings

import pytest
from torch.distributed.checkpoint import FileSystemWriter

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


def test_torchs_defaults_mean_nothing():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(FileSystemWriter.__init__).parameters.items()
        if name in arguments.UNUSED
    }
    assert defaults.keys() == arguments.UNUSED.keys()
    assert arguments.overwrite_of("Writer", defaults)
    assert not arguments.overwrite_of("Writer", {"overwrite": False})


def test_other_arguments_are_named_or_refused(monkeypatch):
    monkeypatch.setattr(arguments, "_named", set())
    with pytest.warns(UserWarning, match=r"Writer\(thread_count=…\) is not honoured: .*parallel parts"):
        arguments.overwrite_of("Writer", {"thread_count": 4})
    with pytest.warns(UserWarning, match=r"Writer\(single_file_per_rank=…\) is not honoured: each rank writes one"):
        arguments.overwrite_of("Writer", {"single_file_per_rank": False})
    with pytest.raises(TypeError, match="speed"):
        arguments.overwrite_of("Writer", {"speed": 4})
