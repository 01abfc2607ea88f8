"""LeRobot v3 datasets where they lie: from ``LeRobotDataset(url)`` to an item with its frames.

1. ``meta`` reads the description, the tasks, the statistics and the table of episodes, and checks what they name.
2. ``opening`` finds the files of the wanted episodes, reads the rows and the frame tables of the
   videos (``data/video/frames``), and finds the frame of each row by its time.
3. ``samples`` is the arithmetic: from a sample to its rows, by ``delta_timestamps``, and to the frames of each camera.
   A run of neighbouring samples is read as the byte ranges that their frames need in one video of each camera.
4. ``dataset`` reads runs ahead (``data/video/reading``), and makes the items, whose frames ``data/video/packets``
   decodes.
"""
