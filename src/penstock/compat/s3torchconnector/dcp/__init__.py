"""``s3torchconnector.dcp`` over Penstock: torch's Distributed Checkpoint on S3."""

from penstock.compat.s3torchconnector.dcp.s3_file_system import S3FileSystem, S3StorageReader, S3StorageWriter
from penstock.compat.s3torchconnector.dcp.s3_prefix_strategy import (
    BinaryPrefixStrategy,
    DefaultPrefixStrategy,
    HexPrefixStrategy,
    NumericPrefixStrategy,
    RoundRobinPrefixStrategy,
    S3PrefixStrategyBase,
)

__all__ = [
    "BinaryPrefixStrategy",
    "DefaultPrefixStrategy",
    "HexPrefixStrategy",
    "NumericPrefixStrategy",
    "RoundRobinPrefixStrategy",
    "S3FileSystem",
    "S3PrefixStrategyBase",
    "S3StorageReader",
    "S3StorageWriter",
]
