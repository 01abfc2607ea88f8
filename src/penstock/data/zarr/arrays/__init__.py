"""Arrays of a dataset: from a URL, a mapping or an open array to the location of each object.

1. ``opening`` finds the arrays, by the documents that ``format`` reads; ``foreign`` takes those that a program opened.
2. ``series`` makes one array of several stores.
3. ``stored``: where the objects of each array are, and how its values are decoded.
"""
