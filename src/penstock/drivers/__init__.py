"""One file per dialect: verbs become exchanges, foreign errors become ours. Nothing here sends anything."""
