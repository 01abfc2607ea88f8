"""Writes samples as plain objects and in tar files: ``shards.py FOLDER NAME SIZE COUNT EACH``; prints their sizes."""

import io
import json
import sys
import tarfile
from pathlib import Path

from bodies import bodies

folder, name, size, count, each = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])
made = bodies(size, count)
(folder / name / "tar").mkdir(parents=True)
sizes = []
for first in range(0, count, each):
    with tarfile.open(folder / name / "tar" / f"{first // each:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as out:
        for number in range(first, min(count, first + each)):
            body = next(made)
            (folder / name / f"{number:06d}.bin").write_bytes(body)
            sizes.append(len(body))
            for suffix, data in (("bin", body), ("cls", b"%d" % (number % 10))):
                member = tarfile.TarInfo(f"{number:06d}.{suffix}")
                member.size = len(data)
                out.addfile(member, io.BytesIO(data))
print(json.dumps(sizes))
