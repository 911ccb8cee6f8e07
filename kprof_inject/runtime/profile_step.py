"""The step of a program that runs only once: dump each kernel when it is compiled, and record its launches."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from kprof_inject.runtime import run_step
from kprof_inject.runtime.compiling.planned_kernel import RunStep
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.dump_step import DumpStep
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.triton_wrapping import Load
from kprof_inject.runtime.process_events import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.run_step import PlansMadeNow, TorchTracer, inserter_of
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import DumpedKernel


def install(session: Session, report: ProcessReport) -> None:
    """Install the step. Called once, right after the import of Triton."""
    dump = DumpStep(session, report)

    def make(device: Device, capture: LaunchCapture, trace: TorchTracer | None) -> RunStep:
        return _ProfileStep(
            session, report, device, capture, PlansMadeNow(session, report, inserter_of(session), trace), dump
        )

    run_step.install_recording(session, report, make)
    at_end(dump.finish)


class _ProfileStep(RunStep):
    """Run step that also times the kernels that get no records."""

    def __init__(
        self,
        session: Session,
        report: ProcessReport,
        device: Device,
        capture: LaunchCapture,
        plans: PlansMadeNow,
        dump: DumpStep,
    ) -> None:
        super().__init__(session, report, device, capture, plans)
        self._dump = dump

    def takes_part(self, variant: DumpedKernel) -> bool:
        return fnmatchcase(variant.name, self.session.recording.kernel)

    def load_unplanned(self, variant: DumpedKernel, kernel: Any, load: Load) -> None:
        self._dump.load(variant.variant, kernel, load)
        self.save_launch_of(kernel, variant)
