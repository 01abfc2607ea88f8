"""Writes samples as plain objects and in tar files: ``shards.py FOLDER NAME SIZE COUNT EACH``; prints their sizes."""

import io
import json
import random
import sys
import tarfile
from pathlib import Path

folder, name, size, count, each = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])
draw = random.Random(0)
block = draw.randbytes(4 << 20)
(folder / name / "tar").mkdir(parents=True)
sizes = []
for first in range(0, count, each):
    with tarfile.open(folder / name / "tar" / f"{first // each:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as out:
        for number in range(first, min(count, first + each)):
            start, length = draw.randrange(2 << 20), draw.randrange(size * 3 // 7, size * 11 // 7)
            body = f"{number:08d}".encode() + block[start : start + length]
            (folder / name / f"{number:06d}.bin").write_bytes(body)
            sizes.append(len(body))
            for suffix, data in (("bin", body), ("cls", b"%d" % (number % 10))):
                member = tarfile.TarInfo(f"{number:06d}.{suffix}")
                member.size = len(data)
                out.addfile(member, io.BytesIO(data))
print(json.dumps(sizes))
