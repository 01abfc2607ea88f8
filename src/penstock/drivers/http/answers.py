"""Answers of one store: the headers or the XML of a success, or the error that a refusal is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from penstock.drivers.http.headers import unquoted
from penstock.drivers.http.verify import REPLACED
from penstock.drivers.http.xml import child_texts, local_name, parse_xml
from penstock.errors import (
    AlreadyExists,
    Changed,
    Damaged,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Transient,
)
from penstock.protocols.driver import MOVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from xml.etree.ElementTree import Element

    from penstock.drivers.http.codes import Codes, Refusal
    from penstock.errors import Conflict
    from penstock.protocols.credentials import Identity, Renewable
    from penstock.protocols.exchange import Response

__all__ = ["Answers", "Store"]

_QUOTED = 40  # characters of a foreign text
_REPAIRED = 3  # retries after a change of credentials, region or host: new credentials may take a moment to come
_UNMET: Mapping[str, tuple[type[Conflict], str]] = {
    "read": (Changed, REPLACED),
    "copy": (Changed, REPLACED),
    "replace": (PreconditionFailed, "the object is no longer the one that was to be replaced"),
}
_TAKEN = "there is an object already, and only a new one was to be written"


class Store(Protocol):
    """The driver's side of an answer: names for texts, and where the next request goes."""

    def url(self, key: str) -> str:
        """Return an object's URL."""

    def follow_region(self, region: str) -> bool:
        """Send later requests to ``region``; False, and nothing changed, where that is not the same service."""

    def follow_redirect(self, key: str, location: str) -> bool:
        """Send the next request for ``key`` to ``location``; False, and nothing changed, unless the same service."""


class Answers:
    """Reads one store's answers by its dialect's code table, and repairs what the table says can be repaired."""

    def __init__(self, codes: Codes, identity: Identity[Renewable], store: Store) -> None:
        """Read answers to requests that ``identity`` signed for ``store``."""
        self._codes = codes
        self._identity = identity
        self._store = store

    def headers(self, response: Response, action: str, key: str) -> dict[str, str]:
        """Return the headers of a success; raises what any other answer means. ``action`` is a verb for the text."""
        if response.fault is not None or not 200 <= response.status < 300:  # noqa: PLR2004  success
            raise self.error(response, action, key)
        if response.overflow:
            message = f"cannot {action}: the answer is longer than any that {self._codes.service} gives"
            raise Damaged(message, url=self._store.url(key))
        return response.headers

    def document(self, response: Response, action: str, key: str, root: str = "", child: str = "") -> Element:
        """Return the XML of a success: the root element is ``root``, or has a ``child`` (servers differ in names).

        A 200 whose body is an ``<Error>`` is that error, and any other document is ``Damaged``.
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
        """Return the version of a written object: of ``header``, or of the ETag in XML whose root is ``root``."""
        version = self.headers(response, action, key).get(header, "")
        if root:
            etag = child_texts(self.document(response, action, key, root, "ETag")).get("ETag", "")
            version = (etag if header == "etag" else "") or version
        elif not version and _has_body(response):
            self.document(response, action, key)
        return unquoted(version)

    def deletion(self, action: str, key: str) -> Callable[[Response], None]:
        """Return a reader of answers to deletions: a 404 of the store itself, for the object, is a success too."""

        def parse(response: Response) -> None:
            if response.status == 404 and response.fault is not None:  # noqa: PLR2004  what is missing was cut off
                response.fault.url = response.fault.url or self._store.url(key)
                raise response.fault
            if response.status != 404:  # noqa: PLR2004  it is gone: fine
                self.headers(response, action, key)
                if _has_body(response):
                    self.document(response, action, key)
                return
            refusal = self._refusal(response, action, key)
            if refusal.meaning.missing == "bucket" or (_has_body(response) and not refusal.error.code):
                raise refusal.error

        return parse

    def error(self, response: Response, action: str, key: str) -> PenstockError:
        """Return the error that an answer is, and repair what another attempt may succeed with.

        A refusal counts even where its body was cut short.
        """
        if response.fault is not None and response.status < 300:  # noqa: PLR2004  not a refusal
            response.fault.url = response.fault.url or self._store.url(key)
            return response.fault
        return self._refusal(response, action, key).error

    @contextmanager
    def locating(self, key: str) -> Iterator[None]:
        """Give errors that have no URL the object's."""
        try:
            yield
        except PenstockError as error:
            error.url = error.url or self._store.url(key)
            raise

    def _refusal(self, response: Response, action: str, key: str) -> Refusal:
        refusal = self._codes.refusal(response, action, self._store.url(key))
        error = refusal.error
        unmet = isinstance(error, PreconditionFailed)  # a 412, unless its code says that it was about something else
        if unmet or (action == "replace" and refusal.meaning.missing == "object" and isinstance(error, NotFound)):
            kind, message = _UNMET.get(action, (AlreadyExists, _TAKEN))
            return refusal.instead(kind(message, url=error.url))
        if self._repaired(refusal, response, key):
            error.retries = _REPAIRED
        return refusal

    def _repaired(self, refusal: Refusal, response: Response, key: str) -> bool:
        """Change what another attempt may succeed with, as the row of the code table says; True where it was."""
        meaning, credentials = refusal.meaning, self._identity.current()
        if meaning.renews and refusal.coded:
            self._identity.renew()
            return True
        if refusal.region:
            if meaning.region:  # the first of many in flight is told first; all of them try again
                return self._store.follow_region(refusal.region)
        elif meaning.renews and not refusal.error.code and credentials is not None and credentials.token:
            # An answer to HEAD has no body, so whether temporary credentials have expired stays open.
            self._identity.renew()
            return True
        location = response.headers.get("location", "")
        followed = bool(meaning.redirect and location) and self._store.follow_redirect(key, location)
        if followed:
            refusal.error.code = MOVED
        return followed


def _has_body(response: Response) -> bool:
    return isinstance(response.body, bytes) and bool(response.body.strip())
