"""Check of options for credentials: at most one source, of a valid type."""

from __future__ import annotations

from itertools import combinations

from penstock.errors import ConfigError

__all__ = ["check_sources"]


def check_sources(options: object, *names: str) -> None:
    """Refuse two sources of credentials, a ``credentials`` that is not callable, or an empty ``credentials_process``.

    ``names`` are the options that are sources, in the order in which the error text names them.

    Raises:
        ConfigError: Two sources are given, or one is not a valid source.

    """
    given = [name for name in names if getattr(options, name) not in (None, False)]
    for one, other in combinations(given, 2):
        first = f"{one}=True" if getattr(options, one) is True else one
        raise ConfigError(f"{first} and {other} contradict one another: name one source of credentials")
    function: object = getattr(options, "credentials", None)
    if function is not None and not callable(function):
        raise ConfigError(f"credentials is a function that returns credentials, not a {type(function).__name__}")
    process: object = getattr(options, "credentials_process", None)
    words = process if isinstance(process, tuple) else (process,)
    if process is not None and not (words and all(isinstance(each, str) for each in words) and words[0]):
        raise ConfigError("credentials_process is a command, or a tuple of a program and its arguments")
