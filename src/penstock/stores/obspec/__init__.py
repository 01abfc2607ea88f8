"""``obspec://``: stores of other libraries that have obspec's methods."""
