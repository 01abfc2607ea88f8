"""Copies of objects: ``evidence`` about needed copies, ``copy`` of one object, ``transfer`` of many for cp and mv."""
