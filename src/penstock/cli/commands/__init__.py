"""Implementations of the commands, without their shared parts."""
