"""Plain HTTP(S), read only: any web server's files as objects, and index pages as listings."""

from penstock.drivers.web.driver import Web

__all__ = ["Web"]
