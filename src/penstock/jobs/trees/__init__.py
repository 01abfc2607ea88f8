"""Inputs of jobs: objects and trees that URLs name.

``selection`` resolves URLs and lists their objects; ``plan`` maps each object to its destination; ``guard`` refuses
what would be deleted or written by mistake; ``outcome`` is the result of each object. ``find`` searches and presigns.
"""
