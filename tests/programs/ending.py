"""Compiles a kernel, writes to stderr around it and its arguments to stdout, and ends as the last one says.

That is an exit code, ``raise``, ``kill``, or ``interrupt``: then as Ctrl-C at a terminal would have it.
"""

import os
import signal
import sys

from kernels import compile_for_h200, scale, with_records

os.write(sys.stderr.fileno(), b"begins\n")
with_records(compile_for_h200(scale, 4))
os.write(sys.stderr.fileno(), b"ends\n")
# No line end, and past Python's buffer: nobody may add to this or change it.
os.write(sys.stdout.fileno(), " ".join(sys.argv[1:]).encode())

ending = sys.argv[-1]
if ending == "raise":
    raise ValueError("the program's own fault")
if ending == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "interrupt":
    os.killpg(0, signal.SIGINT)
    signal.pause()
sys.exit(int(ending))
