"""Copies of objects: ``evidence`` that a copy is needed, ``copy`` of one object, ``transfer`` of many for cp and mv."""
