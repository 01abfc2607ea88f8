"""Adapters to other libraries' interfaces, one package each; the package docstring states limits, if there are any."""
