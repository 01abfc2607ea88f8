"""A key of a TOML file is found in its line."""

import tomllib

import pytest

from penstock.stores.profiles.files import key_lines, line_of

TEXT = '''# profiles.data
[profiles.data]   # [profiles.other]
url = "s3://bucket/"
read.ahead_items = 3

[profiles.data.options]
endpoint = """
region = "not here"
"""
"region" = 'eu'

[ profiles . "odd name" ]
url = "x"
options = { region = "us" }
'''


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        (("profiles", "data"), 2),
        (("profiles", "data", "url"), 3),
        (("profiles", "data", "read", "ahead_items"), 4),
        (("profiles", "data", "options"), 6),
        (("profiles", "data", "options", "endpoint"), 7),
        (("profiles", "data", "options", "region"), 10),
        (("profiles", "data", "options", "absent"), 6),
        (("profiles", "odd name", "url"), 13),
        (("profiles", "odd name", "options", "region"), 14),
        (("profiles", "nobody"), 2),
        (("nothing",), 0),
    ],
)
def test_the_line_of_a_key(keys, number):
    tomllib.loads(TEXT)  # it is TOML
    assert line_of(key_lines(TEXT), keys) == number
