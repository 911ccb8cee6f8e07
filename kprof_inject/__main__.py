"""``python -m kprof_inject``: the same program as the ``kprof-inject`` script."""

from kprof_inject.cli.main import main

if __name__ == "__main__":
    main()
