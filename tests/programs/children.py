"""Has a child process compile a kernel. ``children.py METHOD``, where METHOD says how the child is started.

Prints the child's process id.
"""

import multiprocessing
import os
import subprocess
import sys

from kernels import compile_for_h200, scale


def compile_here():
    compile_for_h200(scale, 4)
    print(os.getpid(), flush=True)


def main(method):
    if method == "subprocess":
        subprocess.run([sys.executable, __file__, "here"], check=True)
    elif method == "here":
        compile_here()
    else:
        child = multiprocessing.get_context(method).Process(target=compile_here)
        child.start()
        child.join()
        sys.exit(child.exitcode)


if __name__ == "__main__":
    main(sys.argv[1])
