"""Command line of the flagship example: ``python -m examples.llm``; from a checkout, ``make llm``."""

from __future__ import annotations

import argparse
from importlib.util import find_spec


def main() -> None:
    """Read the options and tell the story."""
    parser = argparse.ArgumentParser(prog="python -m examples.llm", description=__doc__)
    parser.add_argument("--bucket", help="your own bucket, such as s3://bucket; default: one in memory")
    parser.add_argument("--endpoint", help="endpoint of an S3 bucket")
    parser.add_argument("--keep", action="store_true", help="leave what was written to your own bucket")
    parser.add_argument("--steps", type=int, default=120, help="steps of a training (default %(default)s)")
    given = parser.parse_args()
    if missing := [each for each in ("torch", "tokenizers", "rich") if find_spec(each) is None]:
        parser.error(f"{', '.join(missing)} is missing: pip install 'penstock[llm]'")
    from examples.llm.story import tell

    tell(bucket=given.bucket, endpoint=given.endpoint, steps=given.steps, keep=given.keep)


if __name__ == "__main__":
    main()
