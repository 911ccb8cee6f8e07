"""The steps, each from one plain value to the next: what the command line and the Python API call.

A step prints nothing. One that has something to say while it works is given ``say``.
"""
