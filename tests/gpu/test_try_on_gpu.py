"""Edits on a device: what is known to be badly chosen is found, and results stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_support import EXAMPLES, Kprof

JSON = "--json"


def found_in(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed[printed.index('{\n "schema"') :])["kernels"]
    return found


def test_more_stages_make_an_unpipelined_matmul_faster(kprof: Kprof) -> None:
    ended = kprof("try", JSON, "--", str(EXAMPLES / "matmul.py"), "--num-stages", "1")
    (found,) = [one for one in found_in(ended.stdout) if one["record"]["name"] == "matmul_kernel"]
    print(found["headline"])
    assert found["apply"]["options"]["num_stages"] > 1
    assert found["apply"]["gain"]["won"] > 0.2


@pytest.mark.parametrize(
    ("example", "edits"),
    [
        ("matmul", ["maxnreg=128", "env=DISABLE_LLVM_OPT=disable-lsr"]),
        ("softmax", ["loop_stages=3"]),
        ("attention", ["loop_stages=2", "program_order=reversed"]),
    ],
)
def test_edits_keep_results(kprof: Kprof, example: str, edits: list[str]) -> None:
    """An edit may be impossible, but none that is compiled may fail to launch, or change results."""
    wanted = [word for edit in edits for word in ("--edit", edit)]
    ended = kprof("try", JSON, *wanted, "--", str(EXAMPLES / f"{example}.py"))
    for found in found_in(ended.stdout):
        for one in found["record"]["tried"]:
            print(example, one["edits"], one["outcome"], one["gain"], one["results"], one["refusal"])
            assert one["outcome"] != "refused" or "it has no" in one["refusal"] or "known switch" in one["refusal"]
