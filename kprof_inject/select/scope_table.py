"""The scope table: the JSON that tells the decoder and the reports what each record name means."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kprof_inject.select.plan import Plan
from kprof_inject.ttgir.locations import SourcePoint

SCOPE_TABLE_VERSION = 1


def scope_table(plan: Plan) -> dict[str, Any]:
    """The plan's scopes as JSON values; ``docs/capture-format.md`` describes every key. Those of partitions are there
    only if the kernel has some."""
    partitions = [asdict(partition) for partition in plan.partitions]
    return {
        "version": SCOPE_TABLE_VERSION,
        "kernel": plan.kernel,
        **({"partitions": partitions} if partitions else {}),
        "scopes": [
            {
                "record": scope.record,
                "name": scope.name,
                "kind": scope.site.kind,
                "label": scope.site.label,
                "selector": scope.selector,
                "function": scope.site.function,
                "source": _point(scope.site.source),
                "called_from": [_point(point) for point in scope.site.called_from],
                "parent": scope.parent,
                **({"partition": scope.partition} if partitions else {}),
                "crosses": list(scope.crosses),
                "block": scope.site.block,
                "operations": scope.site.operations,
                "other_operations": scope.site.other_operations,
            }
            for scope in plan.scopes
        ],
    }


def _point(point: SourcePoint | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {"file": point.file, "line": point.line, "column": point.column}
