"""Real servers on loopback for the tests: where one answers, and a fresh bucket or container on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.stores.azure.options import AzureOptions
from penstock.stores.s3.options import S3Options

if TYPE_CHECKING:
    from penstock.options import StoreOptions

__all__ = ["Account", "Bucket", "Container", "Server"]


@dataclass(frozen=True)
class Server:
    """Where a server answers (path-style, no TLS) and whom it knows."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    @property
    def store(self) -> StoreOptions:
        """The same, as Penstock takes it."""
        return S3Options(
            endpoint=self.endpoint, region=self.region, access_key=self.access_key, secret_key=self.secret_key
        )

    @property
    def environment(self) -> dict[str, str]:
        """The same, as a user exports it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    def client(self) -> Any:
        """Return a boto3 client: the independent opinion that Penstock's work is compared with."""
        import boto3  # takes a second, so only where it is used
        from botocore.config import Config

        # Ceph 16 stores the trailing checksum that boto3 adds by default as part of the object.
        config = Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=config,
        )


@dataclass(frozen=True)
class Bucket:
    """An empty bucket of one test's own. Nobody empties it: it goes when its server goes."""

    server: Server
    name: str
    client: Any

    @property
    def url(self) -> str:
        """The bucket as a user writes it, with a trailing slash."""
        return f"s3://{self.name}/"

    @property
    def store(self) -> StoreOptions:
        """The options that reach it."""
        return self.server.store


@dataclass(frozen=True)
class Account:
    """Where a storage account of Azure's answers, and its key."""

    endpoint: str
    name: str
    key: str

    @property
    def store(self) -> StoreOptions:
        """The same, as Penstock takes it."""
        return AzureOptions(account=self.name, endpoint=self.endpoint, account_key=self.key)

    @property
    def environment(self) -> dict[str, str]:
        """The same, as a user exports it."""
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}

    @property
    def connection_string(self) -> str:
        """The same in one text, as the portal shows it."""
        return f"AccountName={self.name};AccountKey={self.key};BlobEndpoint={self.endpoint};"

    def client(self) -> Any:
        """Return a client of Microsoft's own: the independent opinion that Penstock's work is compared with."""
        from azure.storage.blob import BlobServiceClient

        credential = {"account_name": self.name, "account_key": self.key}
        return BlobServiceClient(self.endpoint, credential, api_version="2023-11-03")  # Azurite knows no later ones


@dataclass(frozen=True)
class Container:
    """An empty container of one test's own."""

    account: Account
    name: str
    client: Any

    @property
    def url(self) -> str:
        """The container as a user writes it, with a trailing slash."""
        return f"az://{self.name}/"

    @property
    def store(self) -> StoreOptions:
        """The options that reach it."""
        return self.account.store
