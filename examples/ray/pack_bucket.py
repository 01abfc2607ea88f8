"""Pack the objects of a prefix into tar shards on a Ray cluster, then train from them; a killed run is continued.

python examples/ray/pack_bucket.py s3://bucket/photos/ s3://bucket/packed/ --job s3://bucket/jobs/pack/ --address auto
"""

import argparse

import penstock as ps


def main():
    """Pack, and open the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="prefix of the objects")
    parser.add_argument("dest", help="prefix for the shards")
    parser.add_argument("--job", required=True, help="folder for the records of parts")
    parser.add_argument("--samples", type=int, default=10_000, help="most samples of a shard")
    parser.add_argument("--address", default="auto", help="of the Ray cluster")
    options = parser.parse_args()
    # Each shard is a part: a worker writes it in one step, reads it back, and records it.
    catalog = ps.pack(
        options.source, options.dest, samples=options.samples, job=options.job, on=ps.Ray(address=options.address)
    )
    print(catalog)
    dataset = ps.MapDataset.from_catalog(f"{options.dest.rstrip('/')}/index.catalog")
    print(f"{len(dataset):,} samples, the first with {', '.join(dataset[0].fields)}")


if __name__ == "__main__":
    main()
