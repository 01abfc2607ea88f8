"""Integer arithmetic only: the sample at each position of an epoch, and the positions of each rank and worker."""
