"""Calls that must be refused."""

import pytest

__all__ = ["refused"]


def refused(error, says, call, *args, **options):
    """Return the error that a call raises, whose text must match."""
    with pytest.raises(error, match=says) as caught:
        call(*args, **options)
    return caught.value
