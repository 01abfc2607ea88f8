"""Options of Azure Blob Storage."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.options.parts import StoreOptions
from penstock.options.private import PUBLIC

# Settings that locate an account, for messages.
WHERE = "endpoint= or AZURE_STORAGE_ENDPOINT, account= or AZURE_STORAGE_ACCOUNT_NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions(StoreOptions):
    """Storage account of a container, and the credentials for it. These options override the environment.

    Attributes:
        account: The storage account; default: the URL's, the connection string's, the endpoint's, then
            ``AZURE_STORAGE_ACCOUNT_NAME``, ``AZURE_STORAGE_ACCOUNT``, ``AZURE_ACCOUNT_NAME``.
        endpoint: URL of the account's blob service, with a path where it has one (an emulator's ends in the account);
            default ``AZURE_STORAGE_ENDPOINT``, then ``https://ACCOUNT.blob.core.windows.net``.
        account_key: One of the account's two keys, in base64; default ``AZURE_STORAGE_ACCOUNT_KEY``,
            ``AZURE_STORAGE_KEY``, ``AZURE_ACCOUNT_ACCESS_KEY``.
        sas_token: A shared access signature, with or without ``?``; default ``AZURE_STORAGE_SAS_TOKEN``.
        connection_string: As the portal shows it; ``UseDevelopmentStorage=true`` is a local emulator. Default
            ``AZURE_STORAGE_CONNECTION_STRING``.
        token: A bearer token of Microsoft Entra ID for ``https://storage.azure.com``, which is not renewed.
        credential: An object whose ``get_token(scope)`` returns a token and when it expires, as those of
            ``azure-identity`` do, or a function without arguments that returns a bearer token. It is called before
            a token expires, so it must be safe to call from any thread. Worker processes need one that can be pickled.
        anonymous: Send requests without credentials (public containers); default ``AZURE_STORAGE_ANON``.
        checksums: Compare objects that are read whole with the MD5 that the service has of them: about 0.2 ms of CPU
            for each 100 KiB. Writes always carry their MD5.
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> options = ps.AzureOptions(account="name", sas_token="sv=2024-08-04&sig=c2VjcmV0")
        >>> options.account, "c2VjcmV0" in repr(options)
        ('name', False)
    """

    account: str | None = field(default=None, metadata=PUBLIC)
    endpoint: str | None = field(default=None, metadata=PUBLIC)
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    connection_string: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credential: object = field(default=None, repr=False, hash=False)  # may be unhashable
    anonymous: bool = False
    checksums: bool = True

    def __post_init__(self) -> None:
        ways = ("account_key", "sas_token", "connection_string", "token", "credential")
        given = [name for name in ways if getattr(self, name) is not None]
        given += ["anonymous=True"] if self.anonymous else []
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} contradict one another: pass one of them")
        if self.credential is not None and not (callable(self.credential) or hasattr(self.credential, "get_token")):
            raise ConfigError("credential must have a method get_token(scope), or be a function that returns a token")
