"""Writes the plain objects of a load as LitData's chunks: ``litdata_layout.py FOLDER``, into FOLDER/litdata."""

import os
import sys
from pathlib import Path

import litdata

FOLDER = Path(sys.argv[1])


def item(name):
    return {"key": name, "bin": (FOLDER / name).read_bytes()}


if __name__ == "__main__":
    names = sorted(each.name for each in FOLDER.glob("*.bin"))
    litdata.optimize(fn=item, inputs=names, output_dir=str(FOLDER / "litdata"), chunk_bytes="32MB", num_workers=1)
    os._exit(0)
