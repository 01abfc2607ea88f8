"""Resources that the processes of a machine share: connections, memory for reading ahead, a store's request rate.

1. ``member`` maps a file that all processes of the user share, and declares in its row the needs of this process.
2. ``table`` is the format of that file: a row for each process, and the rates of stores.
3. A few times a second ``member`` reads all rows, and computes this process's share.
4. ``rate`` learns the rate that a store accepts from its refusals; ``fetch/fetcher`` (``Pace``) spreads requests by it.
5. ``live`` holds descriptions of running loops, which ``penstock top`` shows.
"""
