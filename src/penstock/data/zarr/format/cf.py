"""CF conventions as xarray applies them: masks and scales values, with the same types, bit for bit; no time decoding.

This follows ``xarray.open_zarr(mask_and_scale=True, decode_times=False)``: ``coding/variables.py`` (CFMaskCoder,
CFScaleOffsetCoder, BooleanCoder) and ``backends/zarr.py`` of xarray 2025 and 2026.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import Damaged, MissingExtra, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.data.zarr.format.layout import Layout

_NUMBERS = "iufc"
ATTRIBUTES = {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"}


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decoding of stored values by CF attributes. Picklable.

    Attributes:
        dtype: Type of decoded values.
        sign: Type of the other signedness to reinterpret integers as; None: integers stay as they are.
        mask: Stored values that mean NaN, compared in the type ``masked``.
        masked: Type of masked values; None: values are not masked.
        scaled: Type of scaled values; None: values are not scaled.
        offset: Summand, applied after the factor ``scale``.
    """

    dtype: np.dtype[Any]
    sign: np.dtype[Any] | None = None
    mask: tuple[Any, ...] = ()
    masked: np.dtype[Any] | None = None
    scaled: np.dtype[Any] | None = None
    scale: Any = None
    offset: Any = None

    def apply(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return decoded values in a new array. Mostly releases the GIL."""
        if self.sign is not None:
            array = array.astype(self.sign)
        if self.masked is not None:
            array = array.astype(self.masked)
            condition = array == self.mask[0]
            for value in self.mask[1:]:
                condition |= array == value
            array[condition] = complex(np.nan, np.nan) if self.masked.kind == "c" else np.nan
        if self.scaled is not None:
            array = array.astype(self.scaled, copy=self.masked is None)
            if self.scale is not None:
                array *= self.scale
            if self.offset is not None:
                array += self.offset
        return array.astype(self.dtype, copy=self.sign is None and self.masked is None and self.scaled is None)


def cf_of(layout: Layout, url: str = "", *, asked: bool = True) -> Decoding | None:
    """Return the decoding by ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value`` and ``_Unsigned``.

    None if there is nothing to decode. ``asked`` is True if the user requested the decoding. If it is False, integers
    without any of these attributes stay as they are: the ``fill_value`` of Zarr v2 may be nothing more than the value
    of absent chunks (0 by default, which is a class among labels).

    In Zarr v2, ``fill_value`` is the ``_FillValue``. In v3 it is not, so an absent chunk of packed integers becomes
    ``add_offset`` (xarray writes ``fill_value`` 0 there) and not NaN, as in xarray. Booleans with a ``_FillValue`` stay
    booleans; xarray converts them to objects. Texts and times are not changed.
    """
    if layout.dtype.kind not in _NUMBERS:
        return None
    if not asked and layout.dtype.kind in "iu" and ATTRIBUTES.isdisjoint(layout.attributes):
        return None
    try:
        found = _find_decoding(layout.dtype, _attributes(layout))
        if found is not None:
            # Raises here if the attributes cannot be applied.
            found.apply(np.zeros(1, layout.dtype))
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error, struct.error) as error:
        message = f"attributes of CF of the array {layout.name!r} cannot be applied to its {layout.dtype}: {error}"
        raise Damaged(message, url=url) from error
    return found


def dates_of(values: np.ndarray[Any, Any], units: str, calendar: str, url: str = "") -> np.ndarray[Any, Any]:
    """Return times as xarray decodes them: ``datetime64``, or objects of cftime for what NumPy cannot represent."""
    try:
        from xarray import Variable
        from xarray.conventions import decode_cf_variable
    except ImportError as error:
        message = f"times in {units!r} need xarray to be decoded: pip install xarray"
        raise MissingExtra(message, url=url) from error
    try:
        found = decode_cf_variable("time", Variable(("time",), values, {"units": units, "calendar": calendar})).values
    except (ValueError, OverflowError, ImportError) as error:
        message = f"cannot decode times in {units!r} of the calendar {calendar!r}: {error}"
        raise Unusable(message, url=url) from error
    return np.asarray(found)


def times_in(wanted: str, values: np.ndarray[Any, Any], units: str, calendar: str, url: str) -> np.ndarray[Any, Any]:
    """Return times of any calendar as numbers in ``wanted`` units, as xarray encodes them."""
    if units == wanted:
        return values
    dates = dates_of(values, units, calendar, url)
    from xarray import Variable
    from xarray.conventions import encode_cf_variable

    found = encode_cf_variable(Variable(("time",), dates, encoding={"units": wanted, "calendar": calendar}))
    return np.asarray(found.values)


def _attributes(layout: Layout) -> dict[str, Any]:
    """Return the attributes, with ``_FillValue`` as xarray's backend interprets it."""
    attributes, document = dict(layout.attributes), layout.document
    if document["zarr_format"] == 2:  # noqa: PLR2004  the format's version
        if document.get("fill_value") is not None:
            attributes["_FillValue"] = layout.fill
    elif "_FillValue" in attributes:
        attributes["_FillValue"] = _fill_of_v3(attributes["_FillValue"], layout.dtype.kind)
    return {
        name: _single(value) if name in {"scale_factor", "add_offset"} else value for name, value in attributes.items()
    }


def _fill_of_v3(value: Any, kind: str) -> Any:  # noqa: ANN401  as JSON has it
    """Parse a ``_FillValue`` of v3: xarray writes floats as Base64 of eight bytes; others write numbers."""
    if kind in "iu":
        return int(value)
    if kind == "c" and isinstance(value, list):
        return complex(*(_fill_of_v3(part, "f") for part in value))
    if isinstance(value, str):
        return struct.unpack("<d", base64.b64decode(value, validate=True))[0]
    return float(value) if kind == "f" else complex(value)


def _single(value: Any) -> Any:  # noqa: ANN401  as JSON has it
    """Return a number, or the only number of a list; raise for another value."""
    found = np.asarray(value).item() if isinstance(value, list) else value
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"expected a number, got {found!r}")
    return found


def _find_decoding(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> Decoding | None:
    """Return the decoding that xarray applies to values of a type with these attributes; None for none."""
    fills = {name: attributes[name] for name in ("missing_value", "_FillValue") if name in attributes}
    encoded = {
        name: [each for each in np.ravel(np.asarray(value)) if not _is_null(each)] for name, value in fills.items()
    }
    # xarray drops an attribute without a value that an integer can have.
    if dtype.kind in "iu":
        fills = {name: value for name, value in fills.items() if encoded[name]}
    mask = dict.fromkeys(each for name in fills for each in encoded[name])  # ordered set
    sign = _other_sign(dtype, attributes.get("_Unsigned"), fills, mask)
    stored = sign or dtype
    packing = {name: attributes[name] for name in ("scale_factor", "add_offset") if name in attributes}
    masked = None
    if mask:
        masked = _float_type(packing) if packing else _promote_dtype(stored)
    scaled = None
    # With a fill value, the mask determines the type.
    if packing:
        scaled = masked or stored if fills else _float_type(packing)
    boolean = attributes.get("dtype") == "bool"
    if sign is None and masked is None and scaled is None and not boolean:
        return None
    final = np.dtype(bool) if boolean else scaled or masked or stored
    return Decoding(
        dtype=final,
        sign=sign,
        mask=tuple(mask),
        masked=masked,
        scaled=scaled,
        scale=packing.get("scale_factor"),
        offset=packing.get("add_offset"),
    )


def _is_null(value: Any) -> bool:  # noqa: ANN401  an element of any array
    return value is None or bool(value != value)  # noqa: PLR0124  NaN


def _other_sign(
    dtype: np.dtype[Any], unsigned: object, fills: Mapping[str, Any], mask: dict[Any, None]
) -> np.dtype[Any] | None:
    """Return the type that ``_Unsigned`` converts integers to, or None; also convert ``_FillValue`` in ``mask``."""
    letter = {("i", "true"): "u", ("u", "false"): "i"}.get((dtype.kind, str(unsigned)))
    if letter is None:
        return None
    turned = np.dtype(f"{letter}{dtype.itemsize}")
    if "_FillValue" in fills:
        del mask[fills["_FillValue"]]
        mask[np.array(fills["_FillValue"], dtype).view(turned).item()] = None
    return turned


def _promote_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that holds NaN and all values of a type (xarray's ``maybe_promote``)."""
    if dtype.kind not in "iu":
        return dtype
    return np.dtype("f4" if dtype.itemsize <= 2 else "f8")  # noqa: PLR2004  24 bits hold 16


def _float_type(packing: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type of scaled values (xarray's ``_choose_float_dtype``).

    JSON numbers become Python numbers, so a scale factor alone is a float64 (or an int64), and never a float32.
    """
    return np.dtype("f8") if "add_offset" in packing else np.dtype(type(packing["scale_factor"]))
