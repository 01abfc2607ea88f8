"""Copies of objects on this machine end with the process that made them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.file import local_copy


def test_a_copy_has_the_bytes_and_the_suffix(tree):
    client, path = msc.resolve_storage_client(f"{tree}/a.txt")
    copy = local_copy(client.download_file, path)
    assert copy.endswith("a.txt")
    with open(copy, "rb") as file:
        assert file.read() == b"a.txt"
    assert local_copy(client.download_file, path) != copy


def test_copies_go_with_the_process_that_made_them_and_not_with_its_child(tree):
    program = """
import os, sys
from penstock.compat import multistorageclient as msc
client, path = msc.resolve_storage_client(sys.argv[1])
from penstock.compat.multistorageclient.file import local_copy
copy = local_copy(client.download_file, path)
if not (child := os.fork()):
    sys.exit(0)
os.waitpid(child, 0)
assert os.path.exists(copy)
print(copy)
"""
    words = [sys.executable, "-c", program, f"{tree}/a.txt"]
    copy = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    assert copy
    assert not Path(copy).parent.exists()
