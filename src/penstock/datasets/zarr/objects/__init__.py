"""Where the objects of arrays lie, and what reads them."""
