"""Commands for objects, one by one or many at once: list, find, read, copy, delete, sign."""
