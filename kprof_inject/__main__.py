"""``python -m kprof_inject``: the same program as the ``kprof-inject`` script."""

import os
import sys

if __name__ == "__main__":
    # ``python -m`` puts the current folder first, which may be a stranger's.
    if sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    from kprof_inject.cli.main import main

    main()
