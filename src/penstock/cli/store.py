"""The options of every command that goes to a store."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Annotated, Any

from penstock.options import S3Options, StoreOptions

__all__ = ["with_options", "with_store"]


def with_store(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the options that say where its store is; it takes them as one keyword, ``store``."""
    from typer import Option

    def store(
        *,
        endpoint: Annotated[str | None, Option(help="An S3-compatible server; default: the environment, AWS.")] = None,
        region: Annotated[str | None, Option(help="Signing region; default: the environment, us-east-1.")] = None,
        profile: Annotated[str | None, Option(help="A profile of the shared AWS files.")] = None,
        anonymous: Annotated[bool, Option("--anonymous", help="Send unsigned requests: for public data.")] = False,
    ) -> StoreOptions:
        own = S3Options(endpoint=endpoint, region=region, profile=profile, anonymous=anonymous)
        return StoreOptions() if own == S3Options() else own  # neutral ones are every provider's

    return with_options("store", store)(command)


def with_options(keyword: str, make: Callable[..., object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator: the command gets the options of ``make``, and takes what it makes of them as one keyword."""
    options = signature(make).parameters.values()

    def fold(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def complete(**given: Any) -> None:  # noqa: ANN401  whatever the command takes
            command(**{keyword: make(**{each.name: given.pop(each.name) for each in options})}, **given)

        own = [each for each in signature(command).parameters.values() if each.name != keyword]
        complete.__signature__ = signature(command).replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        complete.__annotations__ = {each.name: each.annotation for each in (*own, *options)}
        return complete

    return fold
