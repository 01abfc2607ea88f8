"""Compare a copy of a prefix with its source, on a Ray cluster; what failed is checked again by the same call.

python examples/ray/verify_bucket.py s3://bucket/train/ s3://bucket/copy/ --job s3://bucket/jobs/verify/ --address auto
"""

import argparse

import penstock as ps


def main():
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="prefix that has everything")
    parser.add_argument("copy", help="prefix that should have the same")
    parser.add_argument("--job", required=True, help="folder for the records of parts")
    parser.add_argument("--address", default="auto", help="of the Ray cluster")
    options = parser.parse_args()
    # Credentials are those of the machines: an environment, a role, or store="a profile".
    cluster = ps.Ray(address=options.address, cpus_per_part=0.5)
    try:
        done = ps.verify(options.copy, against=options.source, job=options.job, on=cluster)
    except ps.PenstockError as error:
        print(f"not equal: {error}")
        print(f"all failures: penstock jobs show {options.job}")
        raise SystemExit(1) from None
    print(f"{done.objects:,} objects are equal, {done.bytes:,} bytes in {done.parts:,} parts")


if __name__ == "__main__":
    main()
