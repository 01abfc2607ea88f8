"""Authorisation of requests to Google Cloud Storage: by an HMAC key's signature, or by a bearer token."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import Unsupported
from penstock.stores.s3.presigning import Address, keyed_query, signed_query
from penstock.stores.s3.signing import EMPTY_SHA256, Scheme, Signer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.stores.s3.vocabulary import Bucket, Sign

__all__ = ["Bearer", "ServiceToken", "bearer", "google_query", "hmac_keys"]

_PAYER = "x-goog-user-project"
_SCHEME = Scheme(name="GOOG4", service="storage", prefix="x-goog-")


@dataclass(frozen=True, slots=True)
class ServiceToken(BearerToken):
    """Token of a service account whose private key is local.

    Attributes:
        account: Email address of the account.
        sign: Returns the RSA-SHA256 signature of bytes, by that key.

    """

    account: str = ""
    sign: Callable[[bytes], bytes] | None = field(default=None, compare=False)


class Bearer:
    """Signer that puts the current access token into each request."""

    __slots__ = ("_credentials", "_headers", "_proof", "_token")

    def __init__(self, credentials: Callable[[], BearerToken | None], headers: Mapping[str, str]) -> None:
        """Send ``headers`` along with each token; without credentials, send neither."""
        self._credentials = credentials
        self._headers = tuple(f"{name}: {value}" for name, value in headers.items())
        self._token: BearerToken | None = None
        self._proof: tuple[str, ...] = ()

    def sign(
        self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = EMPTY_SHA256
    ) -> tuple[str, ...]:
        """Return the header lines to send: ``headers`` and, unless anonymous, the token."""
        del method, path, query, digest
        token = self._credentials()
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if token is None:
            return tuple(lines)
        if token is not self._token:
            self._proof = (f"Authorization: Bearer {token.token}", *self._headers)
            self._token = token
        return *self._proof, *lines


def google_query(user_project: str) -> Callable[[Address, BearerToken | Credentials], str]:
    """Return a function that signs a query by an HMAC key or a service account's private key; ``user_project`` pays."""
    # As a query field, which Google accepts in place of the header: users of the URL send no headers.
    payer = {"userProject": user_project} if user_project else {}

    def query(address: Address, credentials: BearerToken | Credentials) -> str:
        if isinstance(credentials, Credentials):
            return keyed_query(address, credentials, _SCHEME, payer)
        sign = credentials.sign if isinstance(credentials, ServiceToken) else None
        if not isinstance(credentials, ServiceToken) or sign is None:
            raise Unsupported(
                "an access token signs no address: use an HMAC key (access_key, secret_key), or the file of a service "
                "account, which holds a private key (credentials_file)"
            )
        fields = {"Credential": credentials.account, **payer}
        return signed_query(address, _SCHEME, "GOOG4-RSA-SHA256", fields, lambda text: sign(text.encode()).hex())

    return query


def bearer(user_project: str) -> Callable[[Bucket, str, str, Callable[[], BearerToken | None]], Sign]:
    """Return a maker of signers for OAuth 2.0 tokens; ``user_project`` pays, unless it is empty."""
    headers = {_PAYER: user_project} if user_project else {}

    def make(_bucket: Bucket, _host: str, _region: str, credentials: Callable[[], BearerToken | None]) -> Sign:
        return Bearer(credentials, headers).sign

    return make


def hmac_keys(user_project: str) -> Callable[[Bucket, str, str, Callable[[], Credentials | None]], Sign]:
    """Return a maker of signers for HMAC keys: GOOG4-HMAC-SHA256; ``user_project`` pays, unless it is empty."""
    scheme = replace(
        _SCHEME,
        headers={_PAYER: user_project} if user_project else {},
        # Google's front end rewrites this header before it checks the signature.
        unsigned=frozenset({"accept-encoding"}),
        # x-goog-hash, which is signed, holds the body's checksum.
        signs_body=False,
    )

    def make(_bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
        return Signer(host, region, credentials, time.time, scheme).sign

    return make
