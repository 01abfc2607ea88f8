"""Delays are bounded, jittered and never below what a server asks for; retries are a purse that many share."""

import random
import sys

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operations.policy import Failure, Tokens, delay
from penstock.options import RetryOptions

_seconds = st.floats(0, 1e6)
_draw = st.floats(0, 1, exclude_max=True)
_options = st.builds(
    RetryOptions,
    base_s=st.floats(1e-3, 10),
    cap_s=st.floats(1e-3, 100),
    patience_s=st.floats(1, 1000),
    first_contact_s=st.floats(1, 1000),
    attempts=st.integers(1, 2000),
)
_retries = st.integers(0, 5) | st.just(sys.maxsize)
_waits = st.just(0.0) | _seconds
_failure = st.builds(Failure, st.integers(1, 2000), _seconds, st.booleans(), _retries, _waits, st.integers(0, 9))


def _purse(left=10.0, limit=10.0):
    return Tokens(left, limit)


@given(_failure, _options, _draw)
def test_every_bound_holds(failure, options, draw):
    wait_s = delay(failure, options, _purse(), draw)
    patience_s = options.patience_s if failure.answered else options.first_contact_s
    if wait_s is None:
        return
    assert failure.attempt < options.attempts
    assert failure.row <= failure.retries
    assert failure.elapsed_s + wait_s <= patience_s
    assert failure.retry_after_s <= wait_s <= max(options.cap_s, failure.retry_after_s)
    if not failure.retry_after_s:
        assert wait_s <= options.base_s * 2.0 ** min(1000, (failure.row or failure.attempt) - 1)


@given(_failure, _options, _draw)
def test_retry_stops_only_when_attempts_or_patience_are_exhausted(failure, options, draw):
    if delay(failure, options, _purse(), draw) is None:
        patience_s = options.patience_s if failure.answered else options.first_contact_s
        most_s = max(options.cap_s, failure.retry_after_s)
        spent = failure.attempt >= options.attempts or failure.row > failure.retries
        assert spent or failure.elapsed_s + most_s > patience_s


@given(st.integers(1, 60), _draw)
def test_jitter_is_full(attempt, draw):
    options = RetryOptions(attempts=100)
    wait_s = delay(Failure(attempt, 0, answered=True, retries=99), options, _purse(), draw)
    assert wait_s == min(options.cap_s, options.base_s * 2.0 ** (attempt - 1)) * draw


def test_unanswered_store_stops_retries_earlier_than_an_answering_store():
    options = RetryOptions()
    assert delay(Failure(3, 9, answered=False, retries=99), options, _purse(), 0.5) is None
    assert delay(Failure(3, 9, answered=True, retries=99), options, _purse(), 0.5) is not None


def test_retry_after_beyond_patience_gives_up_at_once():
    assert delay(Failure(1, 0, answered=True, retries=99, retry_after_s=3600), RetryOptions(), _purse(), 0) is None
    assert delay(Failure(1, 0, answered=True, retries=99, retry_after_s=60), RetryOptions(), _purse(), 0) == 60


@given(st.integers(1, 50), st.lists(st.booleans(), max_size=300))
def test_the_purse_is_never_overdrawn_nor_overfull(limit, events):
    tokens, options, spent = Tokens(limit, limit), RetryOptions(), 0
    for success in events:
        if success:
            tokens.refund()
        else:
            before = tokens.left
            assert delay(Failure(1, 0, answered=True, retries=99), options, tokens, 0.5) is not None
            spent += before - tokens.left
        assert 0 <= tokens.left <= limit
    assert spent <= limit + sum(events) * 0.1 + 1e-6


def test_giving_up_costs_nothing():
    tokens = _purse(5.0)
    assert delay(Failure(24, 0, answered=True, retries=99), RetryOptions(attempts=24), tokens, 0) is None
    assert tokens.left == 5.0


def test_an_empty_purse_slows_down_and_ends_nothing():
    options, empty = RetryOptions(), _purse(0.5)
    assert delay(Failure(1, 0, answered=True, retries=99), options, empty, 0.5) == options.cap_s / 2
    assert delay(Failure(1, 119, answered=True, retries=99), options, empty, 0.5) is None
    assert empty.left == 0.5


def test_patience_decides_when_an_operation_gives_up(seed):
    """And neither the attempts that fit in it, nor that 512 operations fail together."""
    chance, options = random.Random(seed), RetryOptions()
    tokens = Tokens(500, 500)
    for _ in range(512):
        elapsed_s, attempt, wait_s = 0.0, 0, 0.0
        while wait_s is not None:
            elapsed_s, attempt = elapsed_s + wait_s, attempt + 1
            failure = Failure(attempt, elapsed_s, answered=True, retries=sys.maxsize)
            wait_s = delay(failure, options, tokens, chance.random())
        assert options.patience_s - options.cap_s < elapsed_s <= options.patience_s


def test_few_attempts_are_few_when_they_are_asked_for():
    options = RetryOptions(attempts=3)
    waits = [delay(Failure(attempt, 0, answered=True, retries=99), options, _purse(), 0.5) for attempt in range(1, 5)]
    assert [each is not None for each in waits] == [True, True, False, False]
