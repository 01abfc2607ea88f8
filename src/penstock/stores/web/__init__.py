"""Plain HTTP(S), read only: files of any web server as objects, and index pages as listings."""
