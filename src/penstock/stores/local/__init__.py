"""Local files as objects: regular files only, written aside and renamed, found in byte order."""
