"""Launches with records: the launcher, the buffers, and the thread that copies and writes them.

A launch passes through::

    launcher ─▶ launch_capture (its number) ─▶ planned_kernel (its build) ─▶ launch_capture (a RecordedLaunch)
        ─▶ launch_buffers ──lend, made──▶ copier (a thread) ──LaunchRecord──▶ capture.capture_files

No launch takes a lock, except to load or compile a kernel: a signal handler may launch in the middle of a launch, and a
forked child lacks its parent's threads.
"""
