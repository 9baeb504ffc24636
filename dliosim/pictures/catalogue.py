"""All pictures of results: names, captions, reasons why some are left out, and their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dliosim.measure.answers.answer import storage_rate
from dliosim.measure.answers.validity import doubt_of_core_waits, doubt_of_utilization
from dliosim.measure.figures import aggregate
from dliosim.measure.figures.epoch_summaries import EpochSummary
from dliosim.measure.results.run_summary import RestorePhase, SavePhase
from dliosim.pictures import comparisons, files, reads, scaling, time_breakdown
from dliosim.pictures.captions import describe_picture
from dliosim.pictures.epochs import align_epochs, bin_text, gap_text, saves_text
from dliosim.pictures.style import apply_style, render_figure
from dliosim.report.answer_sentences import sentence
from dliosim.report.files.results import write_atomic
from dliosim.report.phase_titles import group_phases, title_of
from dliosim.report.reader.arrays import Ints, RecordedEpoch
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun, loop_titles
from dliosim.report.reader.results import ComparisonResult

#: Of more results than this only pictures of all together are drawn: those of one take about a second.
MOST_DRAWN = 8

#: Sentence on pictures that are left out for that.
LEFT_OUT = (
    f"Pictures of each result are left out with more than {MOST_DRAWN} results; `dliosim report DIR --html page.html` "
    "draws those of one."
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that can be drawn while `style.apply_style` is active."""

    name: str  #: part of its file names
    title: str  #: heading above it
    caption: str  #: how to read it, and its formula
    draw: Callable[[], Figure]  #: function that draws it


def _make_picture(key: str, draw: Callable[[], Figure], /, *before: str, **words: object) -> Picture:
    """Return a picture with its title and its caption."""
    return Picture(key.format(**words), *describe_picture(key, *before, **words), draw)


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures of a result."""

    pictures: tuple[Picture, ...]  #: pictures in their order
    left_out: tuple[str, ...]  #: sentences on pictures that are left out


@dataclass(frozen=True, slots=True)
class TimeScales:
    """The longest times of loops that are compared, which all time axes cover; s."""

    epochs: float = 0.0  #: recorded epochs together, without saves
    steps: float = 0.0  #: first steps of an epoch
    ranks: float = 0.0  #: epochs that count, of one rank


def draws_each(results: Sequence[object]) -> bool:
    """Return whether pictures of each result are drawn, not only those of all results together."""
    return len(results) <= MOST_DRAWN


def time_scales(loops: Sequence[LoopResult]) -> TimeScales:
    """Return the longest times of some loops."""
    spans = [
        time_breakdown.window_span(epoch) for loop in loops for epoch in loop.timeline if (epoch.window_ns >= 0).any()
    ]
    ranks = [np.sum([*times.values()], axis=(0, 1)).max() * 1e-9 for loop in loops if (times := _answer_times(loop))]
    return TimeScales(
        epochs=max((place.end for loop in loops for place in align_epochs(loop.timeline)[-1:]), default=0.0),
        steps=max((end - begin for begin, end in spans), default=0.0),
        ranks=max(ranks, default=0.0),
    )


def scales_by_title(runs: Sequence[SavedRun]) -> dict[str, TimeScales]:
    """Return the scales of the loops of each title, over several runs."""
    return {
        title: time_scales([loop for saved in runs for loop in saved.loops if loop.title == title])
        for title in loop_titles(runs)
    }


def loop_gallery(saved: SavedRun, loop: LoopResult, scales: TimeScales) -> Gallery:
    """Return the pictures of one loop of a run, with time axes of these lengths."""
    notes: list[str] = []
    pictures = list(_epoch_pictures(saved, loop))
    if loop.rank_times:
        draw = partial(time_breakdown.time_by_rank, _answer_times(loop), scales.ranks)
        pictures.append(_make_picture("time-by-rank", draw))
    else:
        notes.append("The time of each rank is left out: there is no ranks.h5 next to results.json.")
    recorded = [epoch for epoch in loop.timeline if epoch.bin_count and len(epoch.ranks)]
    if recorded:
        pictures += _timeline_pictures(saved, loop, recorded, scales)
        if saved.run.null:
            notes.append("Bandwidth is left out: nothing was read (--null).")
    else:
        missing = "timeline.h5" in saved.missing
        why = "there is no timeline.h5 next to results.json" if missing else "timeline.h5 has no epoch of this loop"
        notes.append(f"All pictures over time, of offsets and of the distribution of latencies are left out: {why}.")
    return Gallery(tuple(pictures), tuple(notes))


def files_gallery(saved: SavedRun) -> Gallery:
    """Return the picture of saves and restores of a run."""
    phases = [phase for phase in saved.run.files if isinstance(phase, (SavePhase, RestorePhase)) and phase.verb.seconds]
    groups = group_phases(phases)
    if not groups or saved.run.null:
        return Gallery((), ())
    picture = _make_picture("saves-and-restores", partial(files.times_and_rates, groups[: files.MOST_GROUPS]))
    others = ", ".join(title_of(group[0]) for group in groups[files.MOST_GROUPS :])
    return Gallery((picture,), (f"Left out, as there is no room for them: {others}.",) if others else ())


def comparison_gallery(found: ComparisonResult) -> Gallery:
    """Return the pictures of a comparison."""
    if not comparisons.variants_with_ratio(found):
        return Gallery((), ("No variant has a ratio to the reference, so that there is nothing to show.",))
    words = comparisons.caption_words(found)
    pictures = [_make_picture("ratios", partial(comparisons.forest_plot, found), **words)]
    if comparisons.has_ratio_matrix(found):
        names = " and ".join(one.name for one in found.varied)
        pictures.append(_make_picture("pairs", partial(comparisons.ratio_matrix, found), names=names, **words))
    return Gallery(tuple(pictures), ())


def runs_gallery(runs: Sequence[SavedRun], title: str) -> Gallery:
    """Return the pictures of one loop, by its title, over several runs."""
    pairs = [(saved, loop) for saved in runs for loop in saved.loops if loop.title == title]
    in_bytes = all(aggregate.bytes_per_second(loop.epochs) is not None for _, loop in pairs)
    named = zip(pairs, scaling.study_names(pairs), strict=True)
    rates = ((saved, loop, _loop_rate(saved, loop, study, in_bytes)) for (saved, loop), study in named)
    rated = [(saved, loop, one) for saved, loop, one in rates if one is not None]
    if len(rated) < 2:
        return Gallery((), ())
    bars = partial(scaling.rate_bars, [one for _, _, one in rated], in_bytes)
    pictures = [_make_picture("side-by-side", bars, title=title)]
    joined = [one for _, _, one in rated if one.study]
    if joined:
        others = ", ".join(one.label for _, _, one in rated if not one.study)
        alone = f"Left out, as nothing here can be joined with them: {others}." if others else ""
        draw = partial(scaling.scaling_curve, joined, in_bytes)
        pictures.append(_make_picture("scaling", draw, scaling.RULE, alone, title=title))
        busy = [
            scaling.BusyPoint(one.study, saved.run.ranks, answer.storage_utilization, answer.goal, one.is_doubtful)
            for saved, loop, one in rated
            if one.study and (answer := loop.answer) is not None and answer.storage_utilization is not None
        ]
        if busy:
            pictures.append(_make_picture("busy", partial(scaling.utilization_curve, busy), title=title))
    elif len({one.ranks for _, _, one in rated}) > 1:
        return Gallery(tuple(pictures), (f"Rate over ranks is left out: no two results can be joined. {scaling.RULE}",))
    return Gallery(tuple(pictures), ())


def draw_pictures(pictures: Sequence[Picture]) -> Iterator[tuple[Picture, Figure]]:
    """Yield each picture with its figure; render it before the next one is drawn."""
    for picture in pictures:
        with apply_style():
            yield picture, picture.draw()


def _epoch_pictures(saved: SavedRun, loop: LoopResult) -> Iterator[Picture]:
    if all(epoch.utilization is not None for epoch in loop.epochs):
        doubt = doubt_of_utilization(saved.run, loop.phases, loop.answer)
        draw = partial(time_breakdown.utilization_by_epoch, loop.epochs, loop.answer, bool(doubt))
        why = f"The squares are not to be trusted: {sentence(doubt)}." if doubt else ""
        yield _make_picture("utilization-by-epoch", draw, why)
    elif len(loop.epochs) > 1:
        yield _make_picture("rate-by-epoch", partial(time_breakdown.rate_by_epoch, loop.epochs))


def _answer_times(loop: LoopResult) -> dict[str, Ints]:
    """Return the times of each rank in the epochs that count, (epochs, ranks) each."""
    rows = [epoch.epoch - 1 for epoch in loop.answer_epochs]
    return {name: times[rows] for name, times in loop.rank_times.items()}


def _timeline_pictures(
    saved: SavedRun, loop: LoopResult, recorded: Sequence[RecordedEpoch], scales: TimeScales
) -> Iterator[Picture]:
    ranks, saves = saved.run.ranks, saves_text(recorded)
    shown = " ".join(filter(None, [gap_text(recorded, len(loop.epochs)), saves, bin_text(recorded)]))
    rate = _rate_for_goal(loop)
    with_steps = [epoch for epoch in recorded if (epoch.window_ns >= 0).any()]
    for epoch in with_steps[:1] + with_steps[1:][-1:]:
        figures = loop.epochs[epoch.epoch - 1]
        # timeline.h5 has decoding and tool as one span: the larger part gives its name.
        gap = "processing" if figures.processing_seconds.mean > figures.tool_seconds.mean else "tool"
        draw = partial(time_breakdown.rank_timeline, epoch, gap, scales.steps)
        yield _make_picture("timeline-epoch-{epoch}", draw, time_breakdown.step_text(epoch), epoch=epoch.epoch)
    # Without I/O, steps are still recorded with their bytes, but bandwidth would have no meaning.
    if not saved.run.null and any(epoch.bytes.any() for epoch in recorded):
        rates = {epoch.epoch: _rate_of_asked_bytes(epoch) for epoch in loop.epochs}
        counted = [epoch.epoch for epoch in loop.answer_epochs]
        over_time = partial(reads.bandwidth_over_time, recorded, ranks, rates, rate, scales.epochs, counted)
        yield _make_picture("bandwidth-over-time", over_time, shown)
        if ranks > 1:
            by_rank = partial(reads.bandwidth_map, recorded, rate and rate / ranks, scales.epochs, counted)
            yield _make_picture("bandwidth-by-rank", by_rank, shown)
    with_latencies = [one for one in recorded if one.batch_latency[:, 1].any() or one.call_latency[:, 1].any()]
    if with_latencies:
        yield _make_picture("latency-distribution", partial(reads.latency_distribution, with_latencies))
    if any(epoch.batch_latency_max_ns.any() for epoch in recorded):
        draw = partial(reads.latency_over_time, recorded, scales.epochs)
        yield _make_picture("latency-over-time", draw, reads.longest_wait_text(recorded, ranks), saves)
    if reads.select_epochs(recorded):
        draw = partial(reads.offsets_over_steps, recorded)
        yield _make_picture("offsets-over-steps", draw, reads.offset_text(recorded))


def _rate_of_asked_bytes(epoch: EpochSummary) -> float | None:
    """Return the rate that an epoch was given as its answer has it, but of all bytes asked; in bytes/s."""
    given = storage_rate(epoch)
    return given and given * epoch.bytes / epoch.bytes_once


def _rate_for_goal(loop: LoopResult) -> float | None:
    """Return the rate of bytes asked that a loop needs, in bytes/s; the answer counts bytes once a node."""
    needs = loop.answer.needs_bytes_per_second if loop.answer else None
    once = sum(epoch.bytes_once for epoch in loop.answer_epochs)
    return needs.mean * sum(epoch.bytes for epoch in loop.answer_epochs) / once if needs and once else None


def _loop_rate(saved: SavedRun, loop: LoopResult, study: str, in_bytes: bool) -> scaling.LoopRate | None:
    """Return the rate of a loop; None if its time is 0, so that there is no rate."""
    epochs, answer = loop.answer_epochs, loop.answer
    rate = aggregate.bytes_per_second(epochs) if in_bytes else aggregate.samples_per_second(epochs)
    of_epochs = [epoch.bytes_per_second if in_bytes else epoch.samples_per_second for epoch in epochs]
    if not rate:
        return None
    waited = doubt_of_core_waits(saved.run.environment, loop.phases, answer)
    return scaling.LoopRate(
        label=saved.label,
        study=study,
        ranks=saved.run.ranks,
        rate=rate,
        epochs=tuple(one for one in of_epochs if one is not None),
        shares=aggregate.time_shares(epochs),
        is_doubtful=bool(waited) or (answer is not None and not answer.from_storage),
        needs=_rate_for_goal(loop) if in_bytes else None,
    )


_LONGEST_PART = 40


def write_pictures(results: Sequence[SavedRun | SavedComparison], directory: Path) -> tuple[list[str], list[str]]:
    """Write `result-loop-picture.png` and `.svg` into a directory; return names, and sentences on pictures left out.

    The directory is created if it does not exist. Files of these names are replaced, each whole or not at all. Raises
    OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    left_out: list[str] = []
    for parts, gallery in _galleries(results):
        left_out += [f"{' '.join(parts)}: {line}" for line in gallery.left_out]
        for picture, figure in draw_pictures(gallery.pictures):
            name = _free_name("-".join(map(_file_part, (*parts, picture.name))), names)
            names.append(name)
            for kind in ("png", "svg"):
                write_atomic(directory / f"{name}.{kind}", render_figure(figure, kind))
    return names, left_out


def _galleries(results: Sequence[SavedRun | SavedComparison]) -> Iterator[tuple[tuple[str, ...], Gallery]]:
    runs = [one for one in results if isinstance(one, SavedRun)]
    for title in loop_titles(runs):
        yield ("all", title), runs_gallery(runs, title)
    if not draws_each(results):
        yield ("all",), Gallery((), (LEFT_OUT,))
        return
    scales = scales_by_title(runs)
    for one in results:
        name = Path(one.place).absolute().name
        if isinstance(one, SavedRun):
            for loop in one.loops:
                yield (name, loop.title), loop_gallery(one, loop, scales[loop.title])
            yield (name,), files_gallery(one)
        else:
            yield (name,), comparison_gallery(one.comparison)


def _file_part(text: str) -> str:
    """Return a text as part of a file's name: small letters, digits and hyphens."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_PART] or "unnamed"


def _free_name(name: str, names: Sequence[str]) -> str:
    later = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], later) if one not in names)
