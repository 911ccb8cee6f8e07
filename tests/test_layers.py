"""Each rule on imports in ``pyproject.toml`` holds, and an import against it is noticed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract
from programs.child import REPO

AGAINST = {
    "imports point down": [
        ("pipeline.captures", "cli.console"),
        ("export.formats", "pipeline.captures"),
        ("report.notes", "api"),
        ("capture.model", "timeline.timeline"),
        ("ttgir.parser", "capture.schema"),
    ],
    "select and timeline meet in the scope table alone": [("timeline.timeline", "select.plan")],
    "a capture is opened from its schema up": [
        ("capture.schema", "capture.scopes"),
        ("capture.model", "capture.reader"),
    ],
    "a timeline is decoded step by step": [
        ("timeline.columns", "timeline.records"),
        ("timeline.clock", "timeline.timeline"),
        ("timeline.timeline", "timeline.axis"),
    ],
    "imports point down in the analysis": [
        ("analysis.interpreter.accesses", "analysis.limits.operation_work"),
        ("analysis.limits.limit", "analysis.findings.finding"),
        ("analysis.summary", "analysis.async_work.in_flight"),
        ("analysis.launch", "analysis.comparison.verdicts"),
    ],
    "imports point down in the reports": [
        ("report.terminal.tables", "report.diff.terminal"),
        ("report.html.data", "report.terminal.tables"),
        ("report.notes", "report.html.data"),
    ],
    "imports point down in the runtime": [
        ("runtime.devices.torch_device", "runtime.launch.triton_wrapping"),
        ("runtime.launch.launcher", "runtime.step"),
        ("runtime.launch.launch_capture", "runtime.worker.loaded_launch"),
        ("runtime.compiling.builds", "runtime.worker.loaded_launch"),
        ("runtime.faults", "runtime.devices.torch_device"),
    ],
    "a launch goes one way": [("runtime.launch.launch_buffers", "runtime.launch.launcher")],
    "no command imports a command": [("cli.profile", "cli.dump"), ("cli.demo", "cli.profile")],
    "a capture is read without the runtime": [("report.notes", "runtime.session")],
    "Triton and torch stay in the runtime": [("pipeline.programs", "triton"), ("cli.doctor", "torch")],
    "lark stays in the front end": [("insertion", "lark")],
    "click and rich stay in the command line and the reports": [
        ("pipeline.captures", "click"),
        ("pipeline.programs", "rich"),
        ("report.notes", "click"),
    ],
}
"""By a rule's name, imports that break it: who imports what."""

CONFIGURATION = read_configuration(str(REPO / "pyproject.toml"))
KINDS = {"layers": LayersContract, "forbidden": ForbiddenContract, "independence": IndependenceContract}


def contract(name: str) -> Contract:
    options: dict[str, Any] = next(one for one in CONFIGURATION["contracts_options"] if one["name"] == name)
    return KINDS[options["type"]](name, CONFIGURATION["session_options"], options)


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("kprof_inject", include_external_packages=True, cache_dir=None)


def test_each_rule_is_broken_here() -> None:
    assert {options["name"] for options in CONFIGURATION["contracts_options"]} == AGAINST.keys()


@pytest.mark.parametrize(
    ("rule", "importer", "imported"), [(rule, *pair) for rule, pairs in AGAINST.items() for pair in pairs]
)
def test_an_import_against_a_rule_is_noticed(
    imports: grimp.ImportGraph, rule: str, importer: str, imported: str
) -> None:
    """And so it is the import, not the rest of the package, that breaks it."""
    broken = deepcopy(imports)
    modules = [f"kprof_inject.{importer}", imported if imported in imports.modules else f"kprof_inject.{imported}"]
    assert set(modules) <= imports.modules
    broken.add_import(importer=modules[0], imported=modules[1])
    assert contract(rule).check(deepcopy(imports), verbose=False).kept
    assert not contract(rule).check(broken, verbose=False).kept
