"""The tree is the one that is drawn, its errors cross processes whole, and say what they must."""

import pickle
import re

import pytest

from penstock import errors
from penstock.errors import NotFound, PenstockError, Throttled, Transient

CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_the_docstring_draws_the_tree():
    drawn = set(re.findall(r"[A-Z]\w+", errors.__doc__.partition("::")[2].partition("Only")[0])) & set(errors.__all__)
    assert drawn == set(errors.__all__)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_one_of_ours_and_crosses_processes_whole(kind):
    error = kind("what happened", url="s3://b/k", attempts=3, elapsed_s=1.5)
    error.retry_after_s, error.code = 7.0, "SlowDown"
    assert isinstance(error, PenstockError)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error) == "what happened [s3://b/k] (gave up after 3 attempts in 1.5 s)"
    assert str(kind("only words")) == "only words", "DataLoader makes a worker's error anew from its text"


def test_the_url_is_said_once():
    assert str(NotFound("no s3://b/k here", url="s3://b/k", attempts=1)) == "no s3://b/k here"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("NotFound", FileNotFoundError),
        ("Denied", PermissionError),
        ("Unauthenticated", PermissionError),
        ("NoSpace", OSError),
        ("AlreadyExists", FileExistsError),
        ("TimedOut", TimeoutError),
        ("Unreachable", ConnectionError),
        ("MissingExtra", ImportError),
        ("ManifestError", ValueError),
    ],
)
def test_python_s_own_names_catch_them_too(name, builtin):
    assert issubclass(getattr(errors, name), builtin)


def test_only_what_may_pass_is_transient():
    assert {kind.__name__ for kind in CLASSES if issubclass(kind, Transient)} == {
        "Transient",
        "Throttled",
        "TimedOut",
        "Unreachable",
    }
    assert not issubclass(Throttled, errors.Damaged)
