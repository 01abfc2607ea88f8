"""How a checkpoint of several objects becomes visible, and how one is removed."""
