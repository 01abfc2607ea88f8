"""Alibaba OSS: signature, code table, checksum and credentials over the verbs of the S3 family."""
