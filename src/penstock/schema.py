"""JSON documents of Penstock and of other programs: ``read_json`` parses one, and compares it with a schema.

A schema is written as the document looks:

- ``int`` (of 64 bits), ``float`` (any finite number), ``str``, ``bool``, ``dict``, ``list``, ``object`` (anything);
- a ``range``: a whole number in it, such as ``COUNT``; a compiled pattern: a text that matches it as a whole;
- a text, a number or None: this value;
- ``{"name": …, "other?": …}``: an object with these fields, of which ``other`` may be absent; further ones are allowed;
- ``{str: …}``: an object whose values are all alike;
- ``[…]``: a list of any length; ``[…, …]``: a list of so many values;
- a tuple: one of these.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

from penstock.errors import Damaged, PenstockError, add_article

COUNT = range(1 << 63)
_INT = range(-1 << 63, 1 << 63)
_SHOWN = 60
_NAMES = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false"}
_NAMES |= {dict: "an object", list: "a list"}


class _MismatchError(ValueError):
    """A value that its schema does not allow."""

    def __init__(self, field: str, cause: str) -> None:
        super().__init__(f"{field or 'the document'} {cause}")


def read_json(
    data: bytes | bytearray | memoryview | str,
    schema: object,
    what: str,
    url: str = "",
    error: type[PenstockError] = Damaged,
) -> Any:  # noqa: ANN401  as the schema says
    """Return a JSON document (``url``), whose size the caller has bounded, compared with its schema (see the module).

    ``what`` describes the document in messages: "the plan of a job". ``error`` is the class of the error for a document
    that is not JSON, has a name twice in an object, or does not match.
    """
    try:
        document = json.loads(bytes(data) if isinstance(data, memoryview) else data, object_pairs_hook=_object)
    except UnicodeDecodeError:
        cause = "not UTF-8"
    except _MismatchError as mismatch:
        cause = str(mismatch)
    except (ValueError, RecursionError) as failure:
        cause = f"not JSON ({failure})"
    else:
        check_json(document, schema, what, url, error)
        return document
    raise error(f"cannot read {what}: {cause}", url=url)


def check_json(value: object, schema: object, what: str, url: str = "", error: type[PenstockError] = Damaged) -> None:
    try:
        _check_value(value, schema, "")
    except _MismatchError as mismatch:
        cause = str(mismatch)
    except RecursionError:
        cause = "nested too deep"
    else:
        return
    raise error(f"cannot read {what}: {cause}", url=url)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise _MismatchError(f"the name {twice!r:.{_SHOWN}}", "occurs twice in an object")
    return found


def _check_value(value: Any, schema: Any, at: str) -> None:  # noqa: ANN401  JSON
    if isinstance(schema, dict) and isinstance(value, dict):
        _check_fields(value, schema, at)
    elif isinstance(schema, list) and isinstance(value, list) and len(schema) in (1, len(value)):
        for number, each in enumerate(value):
            # Most lists hold many numbers.
            if not (schema[0] is COUNT and type(each) is int and each in COUNT):
                _check_value(each, schema[number if len(schema) > 1 else 0], f"{at}[{number}]")
    elif isinstance(schema, tuple):
        _check_any(value, schema, at)
    elif not _matches(value, schema):
        raise _MismatchError(at, f"must be {_describe_schema(schema)}, got {_describe_value(value)}")


def _check_fields(value: dict[str, Any], schema: dict[Any, Any], at: str) -> None:
    if str in schema:
        for name, each in value.items():
            _check_value(name, str, f"the name {name!r:.{_SHOWN}}")
            _check_value(each, schema[str], f"{at}[{name!r:.{_SHOWN}}]")
        return
    for name, each in schema.items():
        field = name.removesuffix("?")
        place = f"{at}.{field}" if at else field
        if field in value:
            _check_value(value[field], each, place)
        elif field == name:
            raise _MismatchError(place, "is missing")


def _check_any(value: object, schemas: tuple[Any, ...], at: str) -> None:
    for each in schemas:
        try:
            return _check_value(value, each, at)
        except _MismatchError:
            # Of a list or an object, what is wrong inside says more.
            if isinstance(value, (dict, list)) and type(value) is type(each):
                raise
    raise _MismatchError(at, f"must be {_describe_schema(schemas)}, got {_describe_value(value)}")


def _matches(value: Any, schema: Any) -> bool:  # noqa: ANN401, PLR0911  one line for each kind
    if schema is object:
        return True
    if isinstance(schema, re.Pattern):
        return isinstance(value, str) and _is_text(value) and schema.fullmatch(value) is not None
    if isinstance(schema, range) or schema is int:
        return type(value) is int and value in (schema if isinstance(schema, range) else _INT)
    if schema is float:
        return type(value) in (int, float) and _is_finite(value)
    if schema is str:
        return isinstance(value, str) and _is_text(value)
    if isinstance(schema, type):
        return type(value) is schema
    return type(value) is type(schema) and value == schema


def _is_finite(value: Any) -> bool:  # noqa: ANN401  a number
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _is_text(value: str) -> bool:
    """Return whether a text can be encoded; names of files may hold bytes that are not UTF-8."""
    try:
        return value.isascii() or bool(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return False


def _describe_schema(schema: Any) -> str:  # noqa: ANN401  see the module
    if isinstance(schema, tuple):
        return " or ".join(map(_describe_schema, schema))
    if isinstance(schema, re.Pattern):
        return f"a text like {schema.pattern}"
    if isinstance(schema, range):
        return f"a whole number from {schema.start}" + (f" to {schema[-1]}" if schema.stop < COUNT.stop else "")
    if isinstance(schema, list) and len(schema) > 1:
        return f"a list of {len(schema)} values"
    if isinstance(schema, (dict, list)):
        return _NAMES[type(schema)]
    return _NAMES.get(schema) or json.dumps(schema)


def _describe_value(value: object) -> str:
    """Return a value for a message: a number itself, else only its kind: values may be long or secret."""
    if value is None or isinstance(value, (bool, int, float)):
        return f"{json.dumps(value):.{_SHOWN}}"
    if isinstance(value, list):
        return f"a list of {len(value)} values"
    return _NAMES.get(type(value)) or add_article(type(value).__name__)
