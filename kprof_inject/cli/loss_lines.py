"""What is said of launches that lack something, whatever is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.capture.origin import place_names
from kprof_inject.report.quantities import counted
from kprof_inject.timeline.timeline import Timeline

_MOST_LAUNCHES = 20


def loss_lines(timelines: Sequence[Timeline]) -> Iterator[str]:
    """A line for each launch of which records or CTAs are missing; of very many, for the first alone. They tell of the
    whole launch, also where a part of it was chosen."""
    names = place_names(timeline.launch.place for timeline in timelines)
    lacking = [(timeline, missing) for timeline in timelines if (missing := list(_missing(timeline)))]
    for timeline, missing in lacking[:_MOST_LAUNCHES]:
        launch = timeline.launch
        place = f"{names[launch.place]}: " if names[launch.place] else ""
        yield f"{place}{launch.kernel.name}, launch {launch.index}: {'; '.join(missing)}"
    if len(lacking) > _MOST_LAUNCHES:
        yield f"{len(lacking) - _MOST_LAUNCHES} more launch(es) lack something"


def _missing(timeline: Timeline) -> Iterator[str]:
    if timeline.records_lost:
        yield f"{timeline.records_lost} of {counted(timeline.records_written, 'record')} lost"
    if unpaired := int(timeline.open_starts.sum() + timeline.stray_ends.sum()):
        yield counted(unpaired, "unpaired record")
    if timeline.records_damaged:
        yield counted(timeline.records_damaged, "damaged record")
    if timeline.ctas_never_ran:
        yield f"{counted(timeline.ctas_never_ran, 'CTA')} never ran"
    if timeline.ctas_damaged:
        yield f"{counted(timeline.ctas_damaged, 'damaged CTA')} left out"
