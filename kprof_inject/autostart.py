"""Profile programs started without ``kprof-inject`` (servers, notebooks and others) if ``KPROF_INJECT`` is set.

``kprof_inject_autostart.pth``, which is installed next to the package, imports this in each Python process that has
the variable. Nothing else of ours is loaded before the program imports Triton. The value is ``1`` or options of
``profile``.
"""

from __future__ import annotations

import atexit
import os
import sys

from kprof_inject.runtime.imports import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from kprof_inject.api import Profile
    from kprof_inject.cli.recording_options import AutostartOptions

VARIABLE = "KPROF_INJECT"
_NO_OPTIONS = "1"
_OFF = ("", "0")
# A copy of the name in ``runtime.session``, which must not be imported here.
_SESSION_VARIABLE = "KPROF_INJECT_SESSION"
_FOLDER_VARIABLE = "KPROF_INJECT_FOLDER"
"""Tells child processes the folder that relative workspaces start at, because the program may change its own."""
_folder = ""
_is_started = False  # Python may read the .pth file twice, because a folder can be on its path under two names


def start() -> None:
    """Profile this process from its import of Triton on, if the variable says so and no command profiles it already."""
    global _is_started, _folder
    if _is_started or os.environ.get(VARIABLE, "") in _OFF or os.environ.get(_SESSION_VARIABLE):
        return
    _is_started = True
    try:
        _folder = os.environ.get(_FOLDER_VARIABLE) or os.getcwd()
        os.environ[_FOLDER_VARIABLE] = _folder
    except OSError:  # the folder was removed, but the workspace may have an absolute path
        pass
    after_import({"triton": _begin})
    # Registered before anything of the program, so that it is called last.
    atexit.register(_end_of_process)


def _end_of_process() -> None:
    events = sys.modules.get("kprof_inject.runtime.process_events")
    if events is not None:
        events.end()


def _begin(triton: ModuleType) -> None:
    """Start the profile. Never raises, because the program must go on whatever is wrong."""
    from kprof_inject.errors import KprofError
    from kprof_inject.runtime import faults, process_events
    from kprof_inject.runtime.program import INDUCTOR_ENVIRONMENT

    try:
        from kprof_inject.cli.recording_options import read_options

        text = os.environ[VARIABLE]
        options = read_options("" if text == _NO_OPTIONS else text, VARIABLE)
        for name, value in INDUCTOR_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        profile, folder = _entered(options)
    except KprofError as error:
        faults.say(f"{VARIABLE}: not profiling: {error}")
        return
    except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
        faults.say(f"{VARIABLE}: not profiling: {faults.fault_of(error)}")
        return
    process_events.watch_for_the_end()
    pid = os.getpid()
    process_events.at_end(lambda: _end(profile, folder) if os.getpid() == pid else None)


def _entered(options: AutostartOptions) -> tuple[Profile, Path]:
    """Start a profile in the workspace that is named or, if another process has that, in one next to it.

    Raises ``KprofError`` if no workspace can be made there.
    """
    from pathlib import Path

    from kprof_inject.api import profile_as
    from kprof_inject.runtime import faults
    from kprof_inject.workspace_folder import WorkspaceInUseError

    named, selectors, style, recording = options
    workspace = Path(_folder, named)
    try:
        return profile_as(selectors, style, recording, workspace).entered_for(VARIABLE), workspace
    except WorkspaceInUseError as error:
        rank = os.environ.get("RANK", "")
        number = rank if rank.isdecimal() else os.getpid()
        folder = workspace.resolve().with_name(f"{workspace.resolve().name}-{number}")
        faults.say(f"{error.what}; this process writes to {folder}")
        return profile_as(selectors, style, recording, folder).entered_for(VARIABLE), folder


def _end(profile: Profile, folder: Path) -> None:
    from kprof_inject.errors import KprofError
    from kprof_inject.runtime import faults
    from kprof_inject.workspace_folder import workspace_argument

    try:
        profile.__exit__(None, None, None)
        for name, reason in profile.left_alone.items():
            faults.say(f"{name} ran without records: {reason}")
        if profile.timelines:
            faults.write_stderr(f"{profile.report()}\n".encode())
            argument = workspace_argument(folder)
            faults.say(f"more: kprof-inject report{argument} -v; timeline: kprof-inject trace{argument} --open")
        elif others := profile.passed_over:
            faults.say(f"no launch was recorded: --kernel does not match {', '.join(others)}")
    except KprofError as error:
        faults.say(f"{VARIABLE}: {error}")
