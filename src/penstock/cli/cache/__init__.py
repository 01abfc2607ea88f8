"""``penstock cache``: what is kept on this machine, and what fills it ahead of a training."""
