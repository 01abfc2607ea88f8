"""Clips of video files, and datasets made of them: from ``VideoDataset.from_shards(urls)`` to a tensor of frames.

1. ``moov`` finds ``moov`` in an MP4 or MOV file by one or two ranges, and the fragments of a file that has some;
   ``boxes`` reads the tables of a video track, ``fragments`` those of its fragments, and ``audio_boxes`` those of an
   audio track, or of a WAV file, as packets.
2. ``frames`` keeps the tables of all files: ``open_videos(shards)`` reads many files at once through one source, and
   ``videos.table(file)`` has the arithmetic, all of it on arrays:
   ``table.nearest(seconds)`` → frames, and their distances from these times, for a tolerance;
   ``table.needs(frames)`` → the first sample to decode and the end, of each frame;
   ``table.pieces(firsts, stops)`` → the fewest ranges that cover all of them.
   With ``VideoFormat(audio=True)``, ``videos.audio`` has the tables of the audio tracks.
3. ``packets`` decodes frames from such ranges: ``decode_frames(table, HeldBytes(starts, parts), frames)``; ``audio``
   finds the packets of PCM frames, and decodes them.
4. ``reading`` has what any dataset of clips needs: ``ClipContents`` (its samples: subclass it), ``fit_order``,
   ``ClipRuns`` (neighbours that are read together) and ``ClipReading`` (reads runs ahead, and makes samples of them).
   The ranges of a run may be of several files.
   ``FileWindows`` are samples that are windows of single files.
5. ``frame_dataset`` has ``FrameDataset``, which indexes, slices and orders such samples: a subclass has ``contents``,
   ``_select_part(first, stop)`` and ``_make_sample(sample, held)``; ``FileDataset`` has these for ``FileWindows``.
6. ``dataset`` has ``VideoDataset`` and ``Clip``; ``small`` makes an MP4 file of a clip, for other decoders.
   ``audio_dataset`` has ``AudioDataset`` and ``AudioClip``.
7. ``saved`` writes the tables of all files to an index, and opens videos with it: ``open_indexed(shards, index)``.
"""
