"""Alibaba OSS in its own dialect: signature, code table, checksum and credentials over the verbs of S3's family."""
