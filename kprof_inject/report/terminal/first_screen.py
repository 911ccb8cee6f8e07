"""First screen of a launch on a terminal, which fits into 80 x 24."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from kprof_inject.analysis.advice import Advice
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import counted, percent, ratio, resolved_time, short_time
from kprof_inject.report.experiments import short_headline
from kprof_inject.report.facts import Answer, per_cta_text
from kprof_inject.report.terminal.evidence_tables import stalled_on, units_text
from kprof_inject.report.terminal.tables import (
    LEVEL_COLOURS,
    Column,
    Room,
    bars_for,
    limit_colour,
    lines_of_plain,
    print_plain,
    say,
    share_bars,
    shown,
)
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.tags import TagStatistics

_LABEL_WIDTH = 6
_GAP = "   "
_MAX_ADVICE = 2
_MAX_ROWS, _MIN_ROWS = 20, 4
_MAX_BAR_WIDTH = 100  # a wider bar shows nothing more
_MIN_SEGMENT = 0.005  # a smaller part of a CTA's time would need more room than it deserves
_MOVED = "!"  # marks scopes whose duration leaves out some of their instructions, or has others


def print_first_screen(answer: Answer, console: Console, room: Room | None = None) -> Room:
    """Print the first screen, and return what is left of the ``room``."""
    room = room or Room()
    rows, layouts = list(_rows(answer)), partial(_layouts, console=console)
    bar = _cta_bar(answer, console)
    table_lines = lines_of_plain(layouts(rows), console) if rows and room.lines is not None else 0
    lines = answer_lines(answer, console)
    if not room.holds(len(lines) + bool(bar) + table_lines):
        lines = answer_lines(answer, console, with_reasons=False)
    print_lines(lines, console)
    if bar:
        console.print(bar, crop=False)
    room = room.below(len(lines) + bool(bar))
    if rows:
        # For one table of a tag, and the number of the others.
        reserved = min(len(_tagged(answer)), 1) * (_MIN_TAG_LINES + 1)
        room = room.below(reserved)

        def lines_of(count: int) -> int:
            return lines_of_plain(layouts(_largest(rows, count)), console) + (count < len(rows))

        count = room.rows(min(len(rows), _MAX_ROWS), _MIN_ROWS, lines_of)
        print_plain(layouts(_largest(rows, count)), console)
        if count < len(rows):
            say(f"{counted(len(rows) - count, 'shorter row')} hidden; see report -v", console)
        room = room if room.lines is None else room.below(lines_of(count) - reserved)
        if any(row.is_moved for row in rows):
            say(f"{_MOVED} the compiler moved instructions across its records; see report -v", console)
            room = room.below(1)
    return print_tags(answer, console, room)


def print_answer(answer: Answer, console: Console) -> None:
    """Print what the first screen says without its tables and reasons, for a reader of all details."""
    print_lines(answer_lines(answer, console, with_reasons=False), console)
    if bar := _cta_bar(answer, console):
        console.print(bar, crop=False)


def answer_lines(answer: Answer, console: Console, *, with_reasons: bool = True) -> list[Text]:
    """Return the launch's title, its limit, the advice and its reasons, what was tried, and how far to trust it."""
    title = _joined_lines(list(_title(answer)), console.width)
    limit = [shown(answer.limit.answer, console, limit_colour(answer.limit, known="bold"))]
    advice = list(_advice_texts(answer.advice, console, with_reasons=with_reasons))
    units = units_text(answer.units)
    trust = answer.trust
    colour = LEVEL_COLOURS.get(trust.level, "yellow")
    return [
        *(shown(line, console) for line in title),
        *_labelled("LIMIT", limit, console),
        *(_labelled("UNITS", [shown(units, console)], console) if units else ()),
        *_labelled("TRY", advice, console),
        *(_labelled("TRIED", [shown(short_headline(answer.edits), console)], console) if answer.edits else ()),
        *_labelled("TRUST", [shown(f"{trust.level.value}: {trust.text}", console, colour)], console),
    ]


def print_lines(lines: Sequence[Text], console: Console) -> None:
    """Print texts that are wrapped already."""
    for line in lines:
        console.print(line, soft_wrap=True)


def _labelled(label: str, texts: Sequence[Text], console: Console) -> Iterator[Text]:
    width = max(console.width - _LABEL_WIDTH - 1, 1)
    lines = [line for text in texts for line in text.wrap(console, width)]
    for number, line in enumerate(lines):
        line.rstrip()
        yield Text.assemble((f"{'' if number else label:{_LABEL_WIDTH}} ", "bold"), line)


def _advice_texts(advice: Sequence[Advice], console: Console, *, with_reasons: bool) -> Iterator[Text]:
    if not advice:
        yield shown("no advice: no rule found anything to change; causal shows which part is critical", console)
    for item in advice[:_MAX_ADVICE]:
        worth = f" ({item.worth})" if item.worth else ""
        yield shown(item.text + worth, console, "yellow" if item.share is None else "")
        if item.reason and with_reasons:
            yield shown(item.reason, console, "dim")
    if len(advice) > _MAX_ADVICE:
        yield shown(f"{len(advice) - _MAX_ADVICE} more; see report -v", console, "dim")


def _title(answer: Answer) -> Iterator[str]:
    place = f"{answer.place_name}: " if answer.place_name else ""
    yield f"{place}{answer.title} #{answer.launch}{' (last replay of a CUDA graph)' if answer.graph else ''}"
    if answer.ctas:
        # This launch's own time by its CTAs if the kernel was not timed.
        span = f"span {short_time(answer.duration_ns)}{'' if answer.is_foreign else ' with records'}"
        yield answer.run_times_text or span
    slots = f" in {counted(answer.waves.slots_per_sm * answer.waves.sms, 'slot')}" if answer.waves else ""
    recorded = f" ({answer.recorded_ctas} recorded)" if answer.recorded_ctas < answer.ctas else ""
    yield f"{counted(answer.ctas, answer.cta_name)}{recorded}{slots}, {counted(answer.warps, answer.warp_name)}"
    name = answer.device_name.removeprefix("NVIDIA ") or "SMs"
    nominal = "" if answer.nominal_mhz is None else f" of {answer.nominal_mhz:.0f}"
    if answer.is_foreign:
        yield "timed by the globaltimer"
    elif answer.clock_source != ClockSource.FITTED:
        yield f"{name} at an assumed {answer.clock_mhz:.0f} MHz"
    else:
        yield f"{name} at {answer.clock_mhz:.0f}{nominal} MHz"


def _joined_lines(parts: Sequence[str], width: int) -> Iterator[str]:
    line = parts[0]
    for part in parts[1:]:
        if len(line) + len(_GAP) + len(part) > width:
            yield line
            line = f"  {part}"
        else:
            line += _GAP + part
    yield line


def _cta_bar(summary: LaunchSummary, console: Console) -> Text:
    # How loops and records split a CTA's time; the shares refer to the same time as those of the table.
    phases = summary.phases
    if phases is None:
        return Text()
    is_one_loop = phases.first_loop == phases.last_loop
    loops = summary.scopes[phases.first_loop].distinct_name if is_one_loop else "loops"
    times_ns = {
        "before": phases.before_ns,
        loops: phases.loops_ns,
        # The rest is time between several loops; with one loop, the wait of a warp that left it for the other warps.
        "wait" if is_one_loop else "between": phases.rest_ns,
        "after": phases.after_ns,
        "records": phases.records_ns,
    }
    shares = {name: time_ns / phases.whole_ns for name, time_ns in times_ns.items()}
    texts = {name: f" {name} {percent(share)} " for name, share in shares.items() if share >= _MIN_SEGMENT}
    median = f"{_GAP}{short_time(summary.ending.cta_ns)} median" if summary.ending else ""
    # The table's shares refer to all warps, or to those of a partition.
    part = phases.whole_ns / max(summary.warp_time_ns, 1)
    basis = "" if part == 1 else f"{_GAP}in {percent(part)} of the warps"
    width = min(console.width, _MAX_BAR_WIDTH) - _LABEL_WIDTH - len("  ") - len(texts)
    text_width = sum(map(len, texts.values()))
    suffixes = (basis + median, basis)
    suffix = next((suffix for suffix in suffixes if text_width + len(suffix) <= width), "")
    room = width - len(suffix)
    widths = {name: max(round(room * shares[name]), len(text)) for name, text in texts.items()}
    widest = max(widths, key=lambda name: widths[name])
    widths[widest] += room - sum(widths.values())
    fill = bars_for(console).inner
    segments = [text.center(widths[name], fill if name == loops else " ") for name, text in texts.items()]
    bar = shown(f"{'CTA':{_LABEL_WIDTH}} |{'|'.join(segments)}|{suffix}", console)
    if is_one_loop:
        colours = scope_colours(scope.kind for scope in summary.scopes)
        bar.highlight_regex(f"{re.escape(fill)}+", colours[phases.first_loop].rgb)
    return bar


class _Row(Struct, frozen=True):
    name: str
    source: str = ""
    per_cta: str = ""
    share: float | None = None
    own_share: float = 0.0
    p50: str = ""
    p99: str = ""
    stalled_on: str = ""
    is_moved: bool = False
    style: str = ""
    colour: str = ""


def _rows(answer: Answer) -> Iterator[_Row]:
    colours = scope_colours(scope.kind for scope in answer.scopes)
    for partition, indices in answer.trees():
        if partition:
            yield _Row(partition.title, share=1.0 if partition.whole_ns else None, style="bold")
        for index in indices:
            scope = answer.scopes[index]
            if not scope.count:
                continue
            indent = ("  " if partition else "") + "  " * scope.depth
            is_moved = bool(answer.moves.get(scope.record))
            mark, colour = f" {_MOVED}" if is_moved else "", colours[index].rgb
            p50, p99 = "", ""
            if scope.p50_ns is not None:
                p50, p99 = (resolved_time(ns, answer.resolution_ns) for ns in (scope.p50_ns, scope.p99_ns))
            yield _Row(
                name=f"{indent}{scope.title}{mark}",
                source=without_folders(scope.source),
                per_cta=per_cta_text(scope, answer),
                share=scope.share,
                own_share=scope.self_share,
                p50=p50,
                p99=p99,
                stalled_on=stalled_on(answer.stalls, index) if answer.stalls else "",
                is_moved=is_moved,
                colour=colour,
            )
            if scope.between_iterations_ns is not None and scope.share is not None and scope.total_ns:
                name = f"{indent}  between iterations{mark}"
                per_cta = short_time(scope.between_iterations_ns / answer.warps_in_ctas(scope))
                yield _Row(name, "", per_cta, scope.self_share, scope.self_share, is_moved=is_moved, colour=colour)


def _largest(rows: Sequence[_Row], count: int) -> list[_Row]:
    ranked = sorted(range(len(rows)), key=lambda number: -(rows[number].share or 0.0))
    return [rows[number] for number in sorted(ranked[:count])]


def _layouts(rows: Sequence[_Row], console: Console) -> list[list[Column]]:
    # With less room, first the bars become narrower, then they go, as the shares show the same; at last the columns
    # that other reports have.
    styles = [row.style for row in rows]
    scope = Column("scope", [row.name for row in rows], styles, name=True)
    names = [scope, Column("source", [row.source for row in rows], name=True)]
    shares = [
        Column("per CTA", [row.per_cta for row in rows]),
        Column("share", ["" if row.share is None else percent(row.share) for row in rows]),
    ]
    times = [Column("p50", [row.p50 for row in rows]), Column("p99", [row.p99 for row in rows])]
    drawn = share_bars([(row.share or 0.0, row.own_share) for row in rows], [row.colour for row in rows], console)
    stalls = Column("stalled on", [row.stalled_on for row in rows], left=True)
    if any(stalls.cells):
        return [
            *([*names, *shares, drawing, *times, stalls] for drawing in drawn),
            [*names, *shares, *times, stalls],
            [*names, *shares, stalls],
            [scope, *shares, stalls],
            [scope, *shares],
        ]
    return [
        *([*names, *shares, drawing, *times] for drawing in drawn),
        [*names, *shares, *times],
        [scope, *shares, *times],
        [scope, *shares],
    ]


_MAX_TAG_ROWS, _MIN_TAG_ROWS = 8, 2
_MAX_TAG_TABLES = 2
_MIN_TAG_LINES = 1 + _MIN_TAG_ROWS + 1  # the titles, the minimum number of rows, and the line on those left out


def print_tags(summary: LaunchSummary, console: Console, room: Room | None = None) -> Room:
    """Print a table for each of the first tags, and return what is left of the ``room``."""
    room = room or Room()
    hidden = _tagged(summary)
    for scope, tag in hidden[:_MAX_TAG_TABLES]:
        if not room.holds(_MIN_TAG_LINES):
            break
        room = _print_tag(scope, tag, console, room)
        hidden = hidden[1:]
    if hidden:
        scope, tag = hidden[0]
        say(f"{counted(len(hidden), 'tag')} hidden, such as {scope} by {tag.name}; see report -v", console)
        room = room.below(1)
    return room


def print_all_tags(summary: LaunchSummary, console: Console) -> None:
    """Print a table for each tag."""
    for scope, tag in _tagged(summary):
        _print_tag(scope, tag, console, Room())


def _tagged(summary: LaunchSummary) -> list[tuple[str, TagStatistics]]:
    return [(scope.distinct_name, tag) for scope in summary.scopes for tag in scope.tags]


def _print_tag(scope: str, tag: TagStatistics, console: Console, room: Room) -> Room:
    count = room.rows(min(len(tag.values), _MAX_TAG_ROWS), min(len(tag.values), _MIN_TAG_ROWS), lambda rows: rows + 2)
    if count:
        rows = tag.values[:count]
        columns = [
            Column(f"{scope} by {tag.name}", [str(row.value) for row in rows], name=True),
            Column("count", [str(row.count) for row in rows]),
            Column("total", [short_time(row.total_ns) for row in rows]),
            Column("p50", [short_time(row.p50_ns) for row in rows]),
            Column("vs. others", ["-" if row.times_others is None else ratio(row.times_others) for row in rows]),
        ]
        print_plain([columns], console)
        room = room.below(1 + count)
    left_out = [f"{counted(tag.distinct - count, 'shorter value')} hidden"] if tag.distinct > count else []
    left_out += [f"{counted(tag.unknown, 'value')} unknown"] if tag.unknown else []
    if left_out:
        say(f"{scope} by {tag.name}: {', '.join(left_out)}", console)
        room = room.below(1)
    return room
