"""The table of renamed directories: a name leads to one prefix, and a prefix belongs to one name."""

from penstock.checkpoint.torch_checkpointing.names import DirectoryPlace, DirectoryTable


def test_a_prefix_belongs_to_the_name_that_the_table_gives_it():
    table = DirectoryTable(directories={"step": DirectoryPlace("tmp/", "id"), "a/b": DirectoryPlace("c/")})
    assert table.find("step/x") == ("tmp/x", "x", DirectoryPlace("tmp/", "id"))
    assert (table.find("tmp"), table.find("tmp/x"), table.find("c/y")) == (None, None, None)
    assert table.find("tmp2").key == "tmp2"
    assert table.find("a/b").key == "c"
    moved = table.rename_directory("a", "z", DirectoryPlace("a/", "other"))
    assert moved.directories == {
        "step": DirectoryPlace("tmp/", "id"),
        "z/b": DirectoryPlace("c/"),
        "z": DirectoryPlace("a/", "other"),
    }
    assert moved.find("z/b/f").key == "c/f"
    assert moved.remove_directory("z").removed == ("c/", "a/")
    again = table.with_directory("tmp/inner")
    assert again.find("tmp/inner").key.startswith("tmp.")
    assert again.with_directory("tmp/inner") is again
