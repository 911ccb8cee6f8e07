"""Runs cases until it is stopped: SEED FIRST MEGABYTES. One line of JSON before each case and one behind it."""

from __future__ import annotations

import json
import resource
import sys
import traceback
from itertools import count
from typing import Any

from cases import corpus, make_case, refusal_of


def main() -> None:
    seed, first, megabytes = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    files = corpus()
    for number in count(first):
        say(number=number)
        case = make_case(seed, number, files)
        try:
            refusal = refusal_of(case)
        except Exception:  # noqa: BLE001 - whatever it is, this is what we look for
            say(finding=traceback.format_exc(limit=-8))
        else:
            say(refusal=refusal.what if refusal else None)


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
