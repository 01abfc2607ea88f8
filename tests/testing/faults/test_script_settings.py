"""Settings travel to the server's process, and without any say S3 on a port of its own."""

import pickle

from penstock.testing.faults import Settings


def test_settings_survive_pickling_and_default_to_s3():
    settings = Settings(dialect="gcs", tokens=("a",), least_part_bytes=1)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert (Settings().dialect, Settings().port, Settings().conditions) == ("s3", 0, "heeded")
