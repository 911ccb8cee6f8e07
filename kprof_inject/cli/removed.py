"""Commands and options that are gone, and what to use instead; until 1.0, an error says so."""

from __future__ import annotations

COMMANDS = {
    "compare": "profile twice, into two workspaces; then kprof-inject diff A B",
    "explain": "use kprof-inject report --json --budget N",
    "help": "use kprof-inject --help, or COMMAND --help",
    "launch": "kprof-inject report NAME.launch repeats a saved launch; profile, try and causal take one, too",
    "view": "use kprof-inject trace --open",
    "watch": "profile now and then, and compare two profiles with kprof-inject diff",
}
"""What to use instead of a command, by its name."""

OPTIONS: dict[tuple[str, str], str] = {
    ("dump", "--sample-program"): "profile samples why warps wait, kernel by kernel",
    ("profile", "--sample-program"): "profile samples why warps wait, kernel by kernel",
    ("report", "--ncu"): "profile reads the counters itself",
    ("trace", "--into"): "use profile --torch-profiler",
    **{(name, "--buffer-units"): "buffers of CuTe are not read" for name in ("diff", "report", "trace")},
    ("causal", "--no-replay"): "leave it out: causal repeats saved launches",
    ("causal", "--replay-in-program"): "leave it out: causal repeats saved launches",
    **{(name, "--buffer"): "use --buffer-type" for name in ("profile", "run")},
    **{(name, "--buffer-bytes"): "use --buffer-size" for name in ("profile", "run")},
    **{(name, "--clock"): "use --clock32, or leave it out" for name in ("profile", "run")},
    **{(name, "--no-replay"): "use --replay none" for name in ("profile", "run")},
    ("profile", "--replay-in-program"): "use --replay N, which repeats saved launches",
    ("profile", "--two-runs"): "use kprof-inject dump, insert and run",
    ("run", "--replay-in-program"): "use --replay N, which repeats saved launches",
    ("try", "--bounds"): "try measures edits alone",
    ("try", "--no-bounds"): "leave it out: try measures edits alone",
}
"""What to use instead of an option, by the names of the command and of the option."""
