"""Other libraries' names over Penstock: change the import, and the program reads and writes through Penstock.

Each package is named after the library that it stands for and has its public classes, arguments and exceptions. Its
docstring says what differs. Nothing in Penstock depends on these packages.
"""
