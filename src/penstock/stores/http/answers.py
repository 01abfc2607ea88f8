"""Reader of one store's answers: the headers or the XML of a success, or the error for a refusal.

Parser for untrusted XML in answers: no DTD, no other encoding, no entities; elements, attributes and names bounded.

Within these bounds, time and memory are proportional to the text, whose size the request bounds.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from xml.etree import ElementTree as ET
from xml.parsers import expat

from penstock.engine.contracts.driver import MOVED
from penstock.errors import AlreadyExists, Changed, Damaged, NotFound, PenstockError, PreconditionFailed, Transient
from penstock.stores.http.headers import unquoted
from penstock.stores.http.verify import REPLACED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from xml.etree.ElementTree import Element

    from penstock.engine.contracts.credentials import Identity, Renewable
    from penstock.engine.contracts.exchange import Response
    from penstock.errors import Conflict
    from penstock.stores.http.codes import Codes, Refusal


__all__ = ["Answers", "Store", "child_texts", "local_name", "parse_xml"]

_QUOTED = 40  # characters of a foreign text
# Retries after a change of credentials, region or host: new credentials may take a moment to arrive.
_REPAIRED = 3
_UNMET: Mapping[str, tuple[type[Conflict], str]] = {
    "read": (Changed, REPLACED),
    "copy": (Changed, REPLACED),
    "replace": (PreconditionFailed, "the object is no longer the one that was to be replaced"),
}
_TAKEN = "there is an object already, and only a new one was to be written"


class Store(Protocol):
    """Interface of a driver to its ``Answers``: URLs for messages, and the targets of later requests."""

    def url(self, key: str) -> str:
        """Return an object's URL."""

    def follow_region(self, region: str) -> bool:
        """Send later requests to ``region``; return False, unchanged, if that is another service."""

    def follow_redirect(self, key: str, location: str) -> bool:
        """Send the next request for ``key`` to ``location``; return False, unchanged, if that is another service."""


class Answers:
    """Reader of one store's answers by its dialect's code table, with the repairs that the table allows."""

    def __init__(self, codes: Codes, identity: Identity[Renewable], store: Store) -> None:
        """Read answers to requests that ``identity`` signed for ``store``."""
        self._codes = codes
        self._identity = identity
        self._store = store

    def headers(self, response: Response, action: str, key: str) -> dict[str, str]:
        """Return the headers of a success; raise the error for any other answer. ``action`` is a verb for messages."""
        if response.fault is not None or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self.error(response, action, key)
        if response.overflow:
            message = f"cannot {action}: the answer is longer than any that {self._codes.service} gives"
            raise Damaged(message, url=self._store.url(key))
        return response.headers

    def document(self, response: Response, action: str, key: str, root: str = "", child: str = "") -> Element:
        """Return the XML of a success: the root element is ``root``, or has a ``child`` (servers differ in names).

        A 200 whose body is an ``<Error>`` raises that error; any other document raises ``Damaged``.
        """
        self.headers(response, action, key)
        with self.locating(key):
            found = parse_xml(response.body)
            name = local_name(found)
            if name == "Error":
                refusal = self._refusal(response, action, key)
                error = refusal.error
                raise error if refusal.coded else Transient(error.message, url=error.url)
            if name != root and not (child and child_texts(found).get(child)):
                message = f"cannot {action}: the server answers <{name[:_QUOTED]}> where <{root}> was expected"
                message = message if root else f"cannot {action}: the server answers <{name[:_QUOTED]}>"
                raise Damaged(f"{message}: this is no {self._codes.service} server's answer, check {self._codes.where}")
        return found

    def version(self, response: Response, header: str, action: str, key: str, root: str = "") -> str:
        """Return the version of a written object: from ``header``, or from the ETag in XML whose root is ``root``."""
        version = self.headers(response, action, key).get(header, "")
        if root:
            etag = child_texts(self.document(response, action, key, root, "ETag")).get("ETag", "")
            version = (etag if header == "etag" else "") or version
        elif not version and _has_body(response):
            self.document(response, action, key)
        return unquoted(version)

    def deletion(self, action: str, key: str) -> Callable[[Response], None]:
        """Return a parser of answers to deletions; a 404 from the store itself, for the object, is a success too."""

        def parse(response: Response) -> None:
            if response.status == 404 and response.fault is not None:  # noqa: PLR2004  the body was cut off
                response.fault.url = response.fault.url or self._store.url(key)
                raise response.fault
            if response.status != 404:  # noqa: PLR2004  404: already deleted
                self.headers(response, action, key)
                if _has_body(response):
                    self.document(response, action, key)
                return
            refusal = self._refusal(response, action, key)
            if refusal.meaning.missing == "bucket" or (_has_body(response) and not refusal.error.code):
                raise refusal.error

        return parse

    def error(self, response: Response, action: str, key: str) -> PenstockError:
        """Return the error for an answer, and repair what may let a retry succeed.

        A refusal is read even if its body was cut short.
        """
        if response.fault is not None and response.status < 300:  # noqa: PLR2004  not a refusal
            response.fault.url = response.fault.url or self._store.url(key)
            return response.fault
        return self._refusal(response, action, key).error

    @contextmanager
    def locating(self, key: str) -> Iterator[None]:
        """Add the object's URL to errors that have no URL."""
        try:
            yield
        except PenstockError as error:
            error.url = error.url or self._store.url(key)
            raise

    def _refusal(self, response: Response, action: str, key: str) -> Refusal:
        refusal = self._codes.refusal(response, action, self._store.url(key))
        error = refusal.error
        # A 412, unless its code says that something else failed.
        unmet = isinstance(error, PreconditionFailed)
        if unmet or (action == "replace" and refusal.meaning.missing == "object" and isinstance(error, NotFound)):
            kind, message = _UNMET.get(action, (AlreadyExists, _TAKEN))
            return refusal.instead(kind(message, url=error.url))
        if self._repaired(refusal, response, key):
            error.retries = _REPAIRED
        return refusal

    def _repaired(self, refusal: Refusal, response: Response, key: str) -> bool:
        """Make the change that may let a retry succeed, by the row of the code table; return whether one was made."""
        meaning, credentials = refusal.meaning, self._identity.current()
        if meaning.renews and refusal.coded:
            self._identity.renew()
            return True
        if refusal.region:
            if meaning.region:
                # Many requests may be in flight: the first answer changes the region, and all are retried.
                return self._store.follow_region(refusal.region)
        elif meaning.renews and not refusal.error.code and credentials is not None and credentials.token:
            # An answer to HEAD has no body, so it cannot say whether temporary credentials have expired.
            self._identity.renew()
            return True
        location = response.headers.get("location", "")
        followed = bool(meaning.redirect and location) and self._store.follow_redirect(key, location)
        if followed:
            refusal.error.code = MOVED
        return followed


def _has_body(response: Response) -> bool:
    return isinstance(response.body, bytes) and bool(response.body.strip())


# No object store sends these, and both can harm a parser: entities, and an encoding that hides them.
_DTD = b"<!DOCTYPE"
_ENCODED = re.compile(rb"<\?xml[^>]*\bencoding\s*=\s*[\"'](?!(?:utf-?8|us-ascii)\b)", re.IGNORECASE)
# Most elements, and most attributes, of a document: a page of 5,000 blobs has some 40 elements for each.
_ELEMENTS = 1 << 19
# Most bytes of a tag with the text behind it: keys, metadata and tokens are shorter.
_TOKEN_BYTES = 16 << 10
_SLICE_BYTES = 64 << 10  # other threads run between slices
# ElementTree writes the namespace into each name, so a long one makes a short document large.
_NAMESPACE = re.compile(rb"xmlns(?::[A-Za-z0-9]{1,16})?=(?:\"[^\"<]{0,200}\"|'[^'<]{0,200}')")
_XMLNS = b"xmlns"


def parse_xml(body: object) -> ET.Element:
    """Return the root element of an answer's body.

    Raises:
        Damaged: The body is not XML, has a DTD or an encoding besides UTF-8, or exceeds the bounds of this module.

    """
    data = body.strip() if isinstance(body, bytes) else b""
    if _DTD in data or b"\0" in data or _ENCODED.match(data):
        raise Damaged("the answer is no XML that an object store sends: check endpoint=")
    _check_bounds(data)
    try:
        if data.count(_XMLNS) != len(_NAMESPACE.findall(data)):
            return _without_namespaces(data)
        if len(data) <= _SLICE_BYTES:
            return ET.fromstring(data)  # noqa: S314  no DTD, so no entities
        return _in_slices(data)
    except (ET.ParseError, expat.ExpatError, ValueError, LookupError) as error:
        problem = f"the answer is no XML ({error})" if data else "the answer is empty, where XML should be"
        raise Damaged(f"{problem}: no object store sends that, check endpoint=") from None


def local_name(element: ET.Element) -> str:
    """Return an element's name without its namespace, which differs from server to server."""
    return element.tag.rpartition("}")[2]


def child_texts(element: ET.Element) -> dict[str, str]:
    """Return the texts of an element's children by their names."""
    return {local_name(child): child.text or "" for child in element}


def _check_bounds(data: bytes) -> None:
    if data.count(b"<") - data.count(b"</") > _ELEMENTS or data.count(b"=") > _ELEMENTS:
        raise Damaged(f"the answer is XML of more than {_ELEMENTS} elements or attributes: check endpoint=")
    at, last = 0, len(data) - _TOKEN_BYTES
    while at < last:
        mark = data.rfind(b"<", at + 1, at + _TOKEN_BYTES)
        if mark < 0:
            raise Damaged(f"the answer is XML with a name or a text of more than {_TOKEN_BYTES} bytes: check endpoint=")
        at = mark


def _in_slices(data: bytes) -> ET.Element:
    """Parse slice by slice, so that other threads can run in between.

    Expat before 2.6 parses a tag, comment or instruction again with every slice that does not end it. Tags are short
    here; a document with comments or instructions is parsed in one go.
    """
    declared = not data.startswith(b"<?") or data.find(b"?>", 0, _SLICE_BYTES) > 0
    whole = b"<!" in data or data.find(b"<?", 1) > 0 or not declared
    size = len(data) if whole else _SLICE_BYTES
    parser = ET.XMLParser()  # noqa: S314  as above
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
    return parser.close()


def _without_namespaces(data: bytes) -> ET.Element:
    """Parse XML with unusual namespace names, or with ``xmlns`` in a text, unchanged: half as fast as ElementTree."""
    builder, parser = ET.TreeBuilder(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: builder.start(tag.rpartition(":")[2], attributes)
    parser.EndElementHandler = lambda tag: builder.end(tag.rpartition(":")[2])
    parser.CharacterDataHandler = builder.data
    parser.Parse(data, True)  # noqa: FBT003  the end of the document
    return builder.close()
