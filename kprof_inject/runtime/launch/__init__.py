"""Launches with records: the launcher, the buffers, and the thread that saves them.

One object, ``RecordedLaunch``, passes through all parts::

    launcher ──number, begin──▶ launch_capture ──lend──▶ launch_buffers
        └──launched──▶ the owner of its buffer ──put──▶ copier (a thread) ──LaunchRecord──▶ capture.capture_files

No part of the launch path takes a lock: a signal handler may launch in the middle of a launch, and a forked child lacks
its parent's threads.
"""
