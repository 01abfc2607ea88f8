"""Drop-in replacements for other libraries: change the import, and the program uses Penstock to read and write.

Each package has the name, the public classes, the arguments and the exceptions of the library that it replaces. Its
docstring lists the differences. Nothing in Penstock depends on these packages.
"""
