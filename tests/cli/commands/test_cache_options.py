"""The commands over the cache: each has help with an example, and takes the cache by its options."""

from penstock.cli.commands.cache import app


def test_each_command_has_help_with_an_example():
    (added,) = app.registered_groups
    commands = {each.callback.__name__: each for each in added.typer_instance.registered_commands}
    assert [*commands] == ["ls", "warm", "verify", "clear"]
    assert all(f"penstock cache {name}" in each.epilog for name, each in commands.items())


def test_without_a_command_the_help_is_shown(penstock):
    done = penstock("cache")
    assert done.returncode == 2
    assert all(command in done.stdout + done.stderr for command in ("ls", "warm", "verify", "clear"))


def test_a_cache_is_named_in_one_way(penstock, tmp_path):
    done = penstock("cache", "ls", "--store", "no-such-profile", XDG_CONFIG_HOME=str(tmp_path))
    assert (done.returncode, "no profile 'no-such-profile'" in done.stderr) == (2, True)
    done = penstock("cache", "warm", "--store", "x", "--cache", str(tmp_path), "s3://bucket/a")
    assert (done.returncode, "--cache and --store" in done.stderr) == (2, True)
