"""The steps that the command line and the Python API call; each turns one plain value into the next.

A step prints nothing. A step that reports progress takes ``say``.
"""

from collections.abc import Callable

Say = Callable[[str], None]  # A function that shows a line of progress to the user
