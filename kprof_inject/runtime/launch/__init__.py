"""A launch with records: the launcher that makes it, the buffer that it writes to, and the way of that to disk.

One object, ``RecordedLaunch``, goes through all of it::

    launcher ──number, begin──▶ launch_capture ──lend──▶ launch_buffers, last_launches
        └──launched──▶ the owner of its buffer ──put──▶ copier (a thread) ──LaunchRecord──▶ capture.writer

Nothing that a launch does takes a lock (see ``lock_free``).
"""
