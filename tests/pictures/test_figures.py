"""Pictures hold what the data say: their artists' data read back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from dliosim.measure.figures.declaration import TimeSpread
from dliosim.measure.results.machine import FileSystem
from dliosim.measure.results.run_summary import Answer, RestorePhase, Spread
from dliosim.pictures import comparisons, reads, scaling, time_breakdown
from dliosim.pictures.captions import describe_picture
from dliosim.pictures.catalogue import (
    Picture,
    TimeScales,
    comparison_gallery,
    files_gallery,
    loop_gallery,
    runs_gallery,
    time_scales,
)
from dliosim.pictures.style import PARTS, READS, apply_style, render_figure
from dliosim.readable import size
from dliosim.report.reader.load import LoopResult, SavedComparison, SavedRun, load_results
from dliosim.report.reader.results import ComparisonResult
from tests.pictures.sample import SAMPLE, write_comparison, write_run
from tests.report.sample import change


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    directory = tmp_path_factory.mktemp("run")
    write_run(directory, ranks=3, steps=20, epochs=4)
    (found,) = load_results([str(directory)], with_arrays=True)
    assert isinstance(found, SavedRun)
    return found


@pytest.fixture
def loop(saved: SavedRun) -> LoopResult:
    return saved.loops[0]


@pytest.fixture
def compared(tmp_path: Path) -> ComparisonResult:
    write_comparison(tmp_path)
    (found,) = load_results([str(tmp_path)], with_arrays=True)
    assert isinstance(found, SavedComparison)
    return found.comparison


#: What a curve of bandwidth needs besides its epochs.
ALL: Any = {"ranks": 3, "rates": {}}

#: No axis is longer than what it shows.
OWN = TimeScales()


def answer_of(loop: LoopResult) -> Answer:
    assert loop.answer is not None
    return loop.answer


def rates_of(loop: LoopResult) -> dict[int, float | None]:
    return {epoch.epoch: epoch.bytes_per_second for epoch in loop.epochs}


def picture_of(saved: SavedRun, loop: LoopResult, name: str, scales: TimeScales = OWN) -> Picture:
    return next(one for one in loop_gallery(saved, loop, scales).pictures if one.name == name)


def boxes(figure: Figure, colour: str) -> list[tuple[float, float, float, float]]:
    """Begin, end, low and high of the bars of a colour in the first axes, in their units."""
    shapes = [shape for shape in figure.axes[0].patches if shape.get_facecolor() == to_rgba(colour)]
    found = [box for shape in shapes for box in shape.get_path().vertices.reshape(-1, 5, 2)]
    return [(one[:, 0].min(), one[:, 0].max(), one[:, 1].min(), one[:, 1].max()) for one in found]


def test_a_rank_timeline_has_a_bar_from_begin_to_end_of_each_part(loop: LoopResult) -> None:
    epoch = loop.timeline[0]
    with apply_style():
        figure = time_breakdown.rank_timeline(epoch)
    computes = boxes(figure, PARTS["compute"])
    assert len(computes) == 3 * 20
    wanted = {(row, *epoch.window_ns[row, step, 2:4] * 1e-6) for row in range(3) for step in range(20)}
    drawn = {(int(low), begin, end) for begin, end, low, _ in computes}
    for row, begin, end in wanted:
        assert any(row == r and begin == pytest.approx(b) and end == pytest.approx(e) for r, b, e in drawn)
    assert len(boxes(figure, PARTS["checkpoint"])) == 3
    assert len(boxes(figure, READS)) == len(epoch.reads_ns)
    low, high = zip(*((one[2] % 1, one[3] % 1) for one in boxes(figure, READS)), strict=True)
    assert min(low) > max(one[3] % 1 for one in computes)
    assert max(high) < 1


def test_the_time_before_compute_is_drawn_as_what_most_of_it_was(saved: SavedRun, loop: LoopResult) -> None:
    def gap_of(loop: LoopResult) -> str:
        picture = next(
            one for one in loop_gallery(saved, loop, time_scales([loop])).pictures if one.name == "timeline-epoch-1"
        )
        with apply_style():
            figure = picture.draw()
        (found,) = (part for part in ("tool", "processing") if boxes(figure, PARTS[part]))
        return found

    decoded = TimeSpread(1.0, 1.0, 1.0)
    assert gap_of(loop) == "tool"
    epochs = tuple(replace(epoch, processing_seconds=decoded) for epoch in loop.epochs)
    assert gap_of(replace(loop, epochs=epochs)) == "processing"


def test_decoding_in_the_steps_has_its_share_of_the_time_of_each_rank(loop: LoopResult) -> None:
    processing = loop.rank_times["tool_ns"] // 2
    times = loop.rank_times | {"processing_ns": processing, "tool_ns": loop.rank_times["tool_ns"] - processing}
    with apply_style():
        figure = time_breakdown.time_by_rank(times)
    heights = [
        bar.get_height() for bar in figure.axes[0].patches if bar.get_facecolor() == to_rgba(PARTS["processing"])
    ]
    unit = 1e3 if "(ms)" in figure.axes[0].get_ylabel() else 1.0
    assert heights == pytest.approx(processing.sum(axis=0) * 1e-9 * unit)


def test_steps_that_a_rank_did_not_do_leave_no_bar(loop: LoopResult) -> None:
    epoch = loop.timeline[0]
    window = epoch.window_ns.copy()
    window[1, 5:] = -1
    with apply_style():
        figure = time_breakdown.rank_timeline(replace(epoch, window_ns=window))
    assert sum(1 < one[2] < 2 for one in boxes(figure, PARTS["compute"])) == 5
    assert figure.axes[0].get_xlim()[0] == 0


def test_of_many_ranks_the_slowest_the_fastest_and_even_ones_are_shown(loop: LoopResult) -> None:
    epoch = loop.timeline[0]
    own = np.arange(100)[::-1] * 1000  # the first are the slowest
    window = np.zeros((100, 1, 6), np.int64)
    window[:, :, 2:] = own[:, None, None]
    many = replace(epoch, ranks=np.arange(100), window_ns=window)
    rows = list(time_breakdown.select_rows(many))
    assert len(rows) == 32
    assert rows == sorted(set(rows))
    assert set(range(8)) <= set(rows)
    assert set(range(92, 100)) <= set(rows)
    assert max(np.diff(rows)) <= 6
    assert "Of 100 ranks 32 are shown" in time_breakdown.step_text(many)
    with apply_style():
        names = [label.get_text() for label in time_breakdown.rank_timeline(many).axes[0].get_yticklabels()]
    assert names[:2] == ["slow 0", "slow 1"]
    assert names[-1] == "fast 99"


def test_bandwidth_is_bytes_by_time_and_next_to_it_the_rate_of_each_epoch(loop: LoopResult) -> None:
    with apply_style():
        figure = reads.bandwidth_over_time(loop.timeline, 3, rates_of(loop))
    axes = figure.axes[0]
    stairs = [patch.get_data() for patch in axes.patches][::2]
    assert len(stairs) == 4
    for one in stairs:
        # Edges are ms here or s there: of the axis's unit.
        unit = 1e-3 if "(ms)" in axes.get_xlabel() else 1.0
        assert (one.values * np.diff(one.edges) * unit).sum() == pytest.approx(3 * 20 * 4 * SAMPLE)
    means = [line.get_segments()[0][0, 1] for line in axes.collections]
    assert means == [epoch.bytes_per_second for epoch in loop.epochs]
    assert axes.get_ylim()[0] == 0


def test_saves_have_no_room_on_the_axis_of_time_but_a_line_and_their_length(loop: LoopResult) -> None:
    for draw in (reads.bandwidth_map, reads.latency_over_time, partial(reads.bandwidth_over_time, **ALL)):
        with apply_style():
            figure = draw(loop.timeline)
        lines = [line for line in figure.axes[0].lines if to_rgba(line.get_color()) == to_rgba(PARTS["checkpoint"])]
        assert len(lines) == 4  # each epoch saves for 40 ms after its step 16
        (name,) = [text.get_text() for text in figure.legends[0].get_texts() if "left out" in text.get_text()]
        assert name.startswith("4 saves, 1")
        whole = sum(epoch.seconds for epoch in loop.timeline)
        unit = 1e3 if "(ms)" in figure.axes[0].get_xlabel() else 1.0
        assert 0.1 < whole - figure.axes[0].get_xlim()[1] / unit <= 0.16
        assert "without saves" in figure.axes[0].get_xlabel()


def test_captions_say_how_saves_are_drawn_where_there_are_any(saved: SavedRun, loop: LoopResult) -> None:
    unsaved = tuple(replace(one, checkpoint_ns=np.zeros_like(one.checkpoint_ns)) for one in loop.timeline)
    for name in ("bandwidth-over-time", "bandwidth-by-rank", "latency-over-time"):
        assert "upright pink line" in picture_of(saved, loop, name).caption
        assert "upright pink line" not in picture_of(saved, replace(loop, timeline=unsaved), name).caption


def test_reads_during_a_save_stay_in_the_picture(loop: LoopResult) -> None:
    epoch = loop.timeline[0]
    busy = replace(epoch, bytes=np.where(epoch.checkpoint_ns > 0, SAMPLE, epoch.bytes))
    with apply_style():
        axes = reads.bandwidth_over_time([busy], 3, {}).axes[0]
    assert len(axes.patches[0].get_data().values) == busy.bin_count


def test_a_peak_of_an_epoch_that_does_not_count_is_marked_and_not_on_the_scale(loop: LoopResult) -> None:
    first, *others = loop.timeline
    peaks = [replace(epoch, bytes=epoch.bytes * 50) for epoch in others]
    with apply_style():
        alone = reads.bandwidth_over_time([first], 3, {}, counted=[1]).axes[0]
        axes = reads.bandwidth_over_time([first, *peaks], 3, {}, counted=[1]).axes[0]
    assert axes.get_ylim() == alone.get_ylim()
    (marks,) = [line.get_xdata() for line in axes.lines if line.get_marker() == "^" and len(line.get_xdata())]
    higher = [patch.get_data() for patch in axes.patches[::2]]
    assert len(marks) == sum((one.values > axes.get_ylim()[1]).sum() for one in higher) > 0
    names = [text.get_text() for text in axes.get_figure(root=True).legends[0].get_texts()]
    assert any(name.startswith("higher, up to ") for name in names)


def test_the_rate_that_a_loop_needs_is_a_line_with_its_figure(saved: SavedRun, loop: LoopResult) -> None:
    greatest = max((epoch.bytes.sum(axis=0) / (epoch.bin_ns * 1e-9)).max() for epoch in loop.timeline)
    for needs, is_drawn in ((greatest * 0.5, True), (greatest * 2, True), (greatest * 20, False)):
        answer = replace(answer_of(loop), needs_bytes_per_second=Spread(needs, needs, needs))
        with apply_style():
            figure = picture_of(saved, replace(loop, answer=answer), "bandwidth-over-time").draw()
        axes = figure.axes[0]
        levels = [line.get_ydata()[0] for line in axes.lines if list(line.get_ydata()) == [needs, needs]]
        assert levels == [needs] * is_drawn
        texts = [*axes.texts, *figure.legends[0].get_texts()]
        (note,) = (text.get_text() for text in texts if text.get_text().startswith("needs"))
        assert size(needs, 3) in note and ("far above" in note) is not is_drawn
        assert not is_drawn or axes.get_ylim()[1] > needs


def test_epochs_that_are_left_out_have_a_mark_and_are_named(saved: SavedRun, loop: LoopResult) -> None:
    some = replace(loop, timeline=(loop.timeline[0], loop.timeline[-1]))
    for found, marks in ((loop, 0), (some, 2)):
        picture = picture_of(saved, found, "bandwidth-over-time")
        assert ("The mark // stands for epochs 2 and 3" in picture.caption) is bool(marks)
        with apply_style():
            texts = [text.get_text() for text in picture.draw().axes[0].texts]
        assert texts.count("//") == marks


def test_loops_that_are_compared_have_axes_of_time_of_one_length(saved: SavedRun, loop: LoopResult) -> None:
    longer = tuple(replace(epoch, bin_ns=2 * epoch.bin_ns) for epoch in loop.timeline)
    slow = replace(loop, timeline=longer, rank_times={name: 3 * rows for name, rows in loop.rank_times.items()})
    scales = time_scales([loop, slow])
    for name in ("bandwidth-over-time", "bandwidth-by-rank", "latency-over-time"):
        with apply_style():
            ends = {picture_of(saved, one, name, scales).draw().axes[0].get_xlim() for one in (loop, slow)}
        assert len(ends) == 1
    with apply_style():
        ends = {picture_of(saved, one, "time-by-rank", scales).draw().axes[0].get_ylim() for one in (loop, slow)}
        spans = [picture_of(saved, loop, f"timeline-epoch-{number}", scales).draw() for number in (1, 4)]
    assert len(ends) == 1
    lengths = [np.ptp(one.axes[0].get_xlim()) for one in spans]
    assert lengths[0] == pytest.approx(lengths[1])


def test_saves_and_restores_are_columns_of_their_parts_on_one_scale(saved: SavedRun) -> None:
    saves = saved.run.saves
    restores = [RestorePhase("model", "restore", 0.5, verb=saves[0].verb, resident_share=share) for share in (0.0, 1.0)]
    (picture,) = files_gallery(replace(saved, run=replace(saved.run, phases=(*saves, *restores)))).pictures
    with apply_style():
        figure = picture.draw()
    above, below = figure.axes[:2], figure.axes[2:]
    for axes, group in zip(above, (saves, restores), strict=True):
        tops = [0.0] * len(group)
        for bar in axes.patches:
            number = round(bar.get_x() + bar.get_width() / 2) - 1
            tops[number] = max(tops[number], bar.get_y() + bar.get_height())
        assert tops == pytest.approx([phase.verb.seconds * 1e3 for phase in group])
    for axes, group in zip(below, (saves, restores), strict=True):
        assert axes.lines[0].get_ydata().tolist() == [phase.verb.bytes_per_second for phase in group]
    hollow = [line for line in below[1].lines if line.get_markerfacecolor() == "white"]
    assert [len(line.get_xdata()) for line in hollow] == [1]
    assert len({axes.get_ylim() for axes in above}) == 1


def test_long_names_of_restores_leave_room_for_their_columns(saved: SavedRun, recwarn: pytest.WarningsRecorder) -> None:
    (save, *_) = saved.run.saves
    names = [f"state by pipeline {i} and tensor 4, of another split" for i in range(3)]
    restores = [RestorePhase(name, "restore", 0.5, verb=save.verb, resident_share=0.0) for name in names]
    (picture,) = files_gallery(replace(saved, run=replace(saved.run, phases=tuple(restores)))).pictures
    with apply_style():
        figure = picture.draw()
        figure.canvas.draw()
    assert [str(one.message) for one in recwarn] == []
    edges = [axes.get_window_extent() for axes in figure.axes[:3]]
    assert all(one.width > 100 for one in edges) and edges[-1].x1 <= figure.bbox.x1


def test_the_map_of_bandwidth_has_a_row_a_rank(loop: LoopResult) -> None:
    with apply_style():
        figure = reads.bandwidth_map(loop.timeline)
    meshes = figure.axes[0].collections
    for mesh, epoch in zip(meshes, loop.timeline, strict=True):
        rates = mesh.get_array()
        held = np.ma.getmaskarray(rates)
        content = epoch.bytes[:, : epoch.bin_count]
        assert rates.shape[0] == 3
        np.testing.assert_allclose(np.sort((rates * epoch.bin_ns * 1e-9)[~held]), np.sort(content[content > 0]))
        assert mesh.get_clim() == meshes[0].get_clim()


def test_a_curve_of_latencies_falls_by_the_share_of_each_bucket() -> None:
    edges, above = reads.tail_shares(np.array([[4_000_000, 1], [1_000_000, 6], [2_000_000, 3]]))
    assert edges == pytest.approx([1e-3, 2e-3, 4e-3])
    assert above == pytest.approx([0.4, 0.1, 0.0])


def test_dots_on_a_curve_of_latencies_are_its_quantiles(loop: LoopResult) -> None:
    counts = np.array([[1_000_000, 600], [2_000_000, 385], [4_000_000, 10], [8_000_000, 5]])
    with apply_style():
        figure = reads.latency_distribution([replace(loop.timeline[0], batch_latency=counts)])
    dots = [line.get_xydata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [tuple(dot) for dot in dots] == [pytest.approx((1e-3, 0.5)), pytest.approx((4e-3, 0.01))]


def test_few_latencies_have_both_quantiles_as_well(loop: LoopResult) -> None:
    counts = np.array([[1_000_000, 6], [2_000_000, 3], [8_000_000, 1]])
    with apply_style():
        axes = reads.latency_distribution([replace(loop.timeline[0], batch_latency=counts)]).axes[0]
    dots = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert [tuple(dot) for dot in dots] == [pytest.approx((1e-3, 0.5)), pytest.approx((8e-3, 0.01))]
    assert axes.get_ylim()[0] < 0.01
    assert [text.get_text() for text in axes.texts] == ["p50", "p99"]


def test_latency_over_time_has_the_longest_of_each_stretch(loop: LoopResult) -> None:
    with apply_style():
        figure = reads.latency_over_time(loop.timeline)
    axes = figure.axes[0]
    highest = max(line.get_ydata().max() for line in axes.lines if len(line.get_ydata()) > 2)
    assert highest == pytest.approx(max(epoch.batch_latency_max_ns.max() for epoch in loop.timeline) * 1e-9)
    assert axes.get_yscale() == "log"


def test_offsets_are_those_of_the_first_and_the_last_recorded_epoch(loop: LoopResult) -> None:
    with apply_style():
        figure = reads.offsets_over_steps(loop.timeline)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["epoch 1", "epoch 4"]
    for axes, epoch in zip(figure.axes, (loop.timeline[0], loop.timeline[-1]), strict=True):
        dots = np.concatenate([one.get_path().vertices[::2] for one in axes.patches])
        assert sorted(dots[:, 1]) == sorted(epoch.offsets[:, 3])
        assert sorted(np.round(dots[:, 0])) == sorted(epoch.offsets[:, 1])


def test_dots_of_several_files_stand_in_the_row_of_their_file(loop: LoopResult) -> None:
    rows = np.array([[0, 0, 0, 0], [0, 1, 2, 500], [0, 2, 2, 1000]])
    with apply_style():
        figure = reads.offsets_over_steps([replace(loop.timeline[0], offsets=rows)])
    heights = figure.axes[0].patches[0].get_path().vertices[::2, 1]
    assert np.floor(heights).tolist() == [0, 2, 2]
    assert heights[1] < heights[2]


def test_columns_of_time_add_up_to_the_wall_time_of_the_epochs_that_count(saved: SavedRun, loop: LoopResult) -> None:
    some = replace(loop, answer=replace(answer_of(loop), epochs=(2, 3)))
    picture = picture_of(saved, some, "time-by-rank")
    with apply_style():
        axes = picture.draw().axes[0]
    tops: dict[int, float] = {}
    for bar in axes.patches:
        rank = round(bar.get_x() + bar.get_width() / 2)
        tops[rank] = max(tops.get(rank, 0.0), bar.get_y() + bar.get_height())
    unit = 1e3 if "(ms)" in axes.get_ylabel() else 1.0
    walls = sum(times[1:3].sum(axis=0) for times in loop.rank_times.values()) * 1e-9 * unit
    assert [tops[rank] for rank in range(3)] == pytest.approx(walls.tolist())
    assert {tuple(bar.get_facecolor()) for bar in axes.patches} <= {to_rgba(colour) for colour in PARTS.values()}


def test_utilization_of_storage_alone_stands_next_to_that_with_all_waits_and_the_goal(loop: LoopResult) -> None:
    shares = (1.0, 1.0, 0.5, 0.0)
    epochs = [
        change(epoch, storage_utilization=0.5 + epoch.epoch / 10, storage_amplification=share)
        for epoch, share in zip(loop.epochs, shares, strict=True)
    ]
    answer = replace(answer_of(loop), verdict="does not feed", source="device", epochs=(1, 2), goal=0.85)
    with apply_style():
        figure = time_breakdown.utilization_by_epoch(epochs, answer, True)
    axes = figure.axes[0]
    drawn = {str(line.get_label()): line.get_ydata() for line in axes.lines}
    np.testing.assert_equal(drawn["storage-limited"], [0.6, 0.7, np.nan, np.nan])
    assert list(axes.lines[0].get_ydata()) == [epoch.utilization for epoch in epochs]
    assert [0.85, 0.85] in [list(line.get_ydata()) for line in axes.lines]
    assert axes.get_ylim()[0] == 0
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1\n60.0 %", "2\n70.0 %", "3\nmixed", "4\nmemory"]
    assert [text.get_text() for text in axes.texts] == ["goal\n85 %"]
    assert "with all waits (not to be trusted)" in [text.get_text() for text in figure.legends[0].get_texts()]
    with apply_style():
        undecided = time_breakdown.utilization_by_epoch(epochs, replace(answer, verdict="cannot say"), True)
    legend = [text.get_text() for text in undecided.legends[0].get_texts()]
    assert "storage-limited, decides nothing" in legend


def bottom_and_top(axes: Axes, text: Text) -> tuple[float, float]:
    """Return begin and end of a text on the y axis, in its units."""
    axes.get_figure(root=True).canvas.draw()
    edges = text.get_window_extent().get_points()
    low, high = axes.transData.inverted().transform(edges)[:, 1]
    return low, high


@pytest.mark.parametrize("busy", [0.02, 0.5, 0.9, 1.0])
def test_figures_of_utilization_stand_where_no_line_crosses_them(loop: LoopResult, busy: float) -> None:
    epochs = [replace(epoch, utilization=busy, storage_utilization=busy) for epoch in loop.epochs]
    with apply_style():
        axes = time_breakdown.utilization_by_epoch(epochs, answer_of(loop), True).axes[0]
        spans = [bottom_and_top(axes, text) for text in axes.get_xticklabels()]
        (goal,) = axes.texts
        axes.get_figure(root=True).canvas.draw()
    assert len(spans) == len(epochs)
    assert all(high < 0 for _, high in spans)
    assert goal.get_window_extent().x0 > axes.get_window_extent().x1


def test_what_is_said_about_bandwidth_stands_above_its_curves(loop: LoopResult) -> None:
    with apply_style():
        axes = reads.bandwidth_over_time(loop.timeline, 3, rates_of(loop)).axes[0]
        spans = [bottom_and_top(axes, text) for text in axes.texts if text.get_text().endswith("B/s")]
    assert len(spans) == len(loop.timeline)
    assert all(low > axes.get_ylim()[1] for low, _ in spans)


def test_legends_of_latencies_stand_outside_of_the_axes(loop: LoopResult) -> None:
    for draw in (reads.latency_distribution, reads.latency_over_time):
        with apply_style():
            figure = draw(loop.timeline)
            figure.canvas.draw()
        (legend,) = figure.legends
        assert all(axes.get_legend() is None for axes in figure.axes)
        assert all(legend.get_window_extent().y0 > axes.get_window_extent().y1 for axes in figure.axes)


def test_without_utilization_there_are_rates(saved: SavedRun, loop: LoopResult) -> None:
    epochs = tuple(replace(epoch, utilization=None) for epoch in loop.epochs)
    names = [one.name for one in loop_gallery(saved, replace(loop, epochs=epochs), OWN).pictures]
    assert "rate-by-epoch" in names
    assert "utilization-by-epoch" not in names
    with apply_style():
        axes = time_breakdown.rate_by_epoch(epochs).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [epoch.bytes_per_second for epoch in epochs]
    assert axes.get_ylim()[0] == 0


def test_ratios_have_their_intervals_on_an_axis_that_is_even_about_1(compared: ComparisonResult) -> None:
    with apply_style():
        axes = comparisons.forest_plot(compared).axes[0]
    spans = [line.get_xdata().tolist() for line in axes.lines[1:] if len(line.get_xdata()) == 2]
    assert spans == [[one.ratio_low, one.ratio_high] for one in compared.variants]
    low, high = axes.get_xlim()
    assert low * high == pytest.approx(1)
    assert high > 1.81
    said = [text.get_text() for text in axes.texts]
    assert said[0] == "reference"
    assert said[-1] == "1.62 (1.44 to 1.81), faster"


def test_captions_say_what_is_drawn(compared: ComparisonResult) -> None:
    assert "Grey is the tool's own time" in describe_picture("timeline-epoch-{epoch}", epoch=1)[1]
    title, caption = describe_picture("ratios", "First.", **comparisons.caption_words(compared))
    assert (title, caption[:23]) == ("Ratios to the reference", "First. How to read it: ")
    assert "more than once in five times" in caption and "{" not in caption


def test_long_labels_of_variants_stand_whole_and_have_no_numbers(compared: ComparisonResult) -> None:
    labels = [f"api=mpi-collective, hints=two-phase, {i} aggregators, buffer 16 MiB" for i in range(5)]
    variants = tuple(replace(one, label=label) for one, label in zip(compared.variants, labels, strict=True))
    with apply_style():
        axes = comparisons.forest_plot(replace(compared, variants=variants, reference=labels[0])).axes[0]
    shown = [tick.get_text().replace("\n", " ") for tick in axes.get_yticklabels()]
    assert shown == labels


def test_pairs_have_their_ratios_and_what_was_not_run(compared: ComparisonResult) -> None:
    with apply_style():
        axes = comparisons.ratio_matrix(compared).axes[0]
    ratios = np.asarray(axes.images[0].get_array().filled(np.nan))
    np.testing.assert_allclose(ratios, [[1.0, 0.81], [1.02, 0.74], [1.62, np.nan]])
    said = {tuple(map(round, text.get_position())): text.get_text() for text in axes.texts}
    assert said[(0, 0)].startswith("1 (reference)")
    assert said[(0, 1)].startswith("(1.02)")
    assert said[(1, 2)] == "not run"


def test_one_varied_name_has_no_map_of_pairs(compared: ComparisonResult) -> None:
    alone = replace(compared, varied=compared.varied[:1])
    assert [one.name for one in comparison_gallery(alone).pictures] == ["ratios"]
    nothing = replace(compared, variants=tuple(replace(one, ratio=None) for one in compared.variants))
    assert comparison_gallery(nothing).pictures == ()
    assert "No variant has a ratio" in comparison_gallery(nothing).left_out[0]


def rated(ranks: int, rate: float, doubtful: bool = False) -> scaling.LoopRate:
    return scaling.LoopRate(f"on {ranks}", "series", ranks, rate, (rate * 0.9, rate * 1.1), {"compute": 1.0}, doubtful)


def test_scaling_says_the_share_of_ideal_and_hollows_what_is_doubtful() -> None:
    with apply_style():
        axes = scaling.scaling_curve([rated(8, 480e6), rated(2, 200e6), rated(16, 500e6, doubtful=True)], True).axes[0]
    assert [text.get_text() for text in axes.texts] == ["60 %", "31 %?"]
    ideal, line = axes.lines[0], axes.lines[1]
    assert list(ideal.get_xdata()) == [2, 16]
    assert list(ideal.get_ydata()) == [200e6, 1600e6]
    assert list(line.get_xdata()) == [2, 8, 16]
    faces = [one.get_markerfacecolor() for one in axes.lines if one.get_marker() == "o"]
    assert [face == "white" for face in faces] == [False, False, True]


def test_utilization_over_ranks_has_intervals_and_the_goal() -> None:
    spreads = {1: Spread(0.99, 0.98, 1.0), 8: Spread(0.5, 0.4, 0.6), 4: Spread(0.91, 0.89, 0.93)}
    points = [scaling.BusyPoint("series", ranks, busy, 0.8) for ranks, busy in spreads.items()]
    with apply_style():
        axes = scaling.utilization_curve(points).axes[0]
    line, *bars, goal = [one for one in axes.lines if one.get_marker() != "o"]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 4, 8], [0.99, 0.91, 0.5])
    assert [list(one.get_ydata()) for one in bars] == [[0.98, 1.0], [0.89, 0.93], [0.4, 0.6]]
    assert set(goal.get_ydata()) == {0.8}


@pytest.mark.parametrize(("most", "scale"), [(8, "linear"), (64, "log")])
def test_many_more_ranks_than_the_fewest_have_a_logarithmic_axis(most: int, scale: str) -> None:
    points = [scaling.BusyPoint("series", ranks, Spread(0.9, 0.9, 0.9), 0.8) for ranks in (1, most)]
    with apply_style():
        assert scaling.utilization_curve(points).axes[0].get_xscale() == scale


def study(saved: SavedRun, ranks: int, **changed: object) -> SavedRun:
    return replace(saved, run=replace(saved.run, ranks=ranks, **changed))  # type: ignore[arg-type]


def test_a_scaling_curve_joins_only_what_is_the_same_study(saved: SavedRun) -> None:
    given = {"overrides": (("files", "64"), ("epochs", "2"))}
    turned = {"overrides": (("epochs", "2"), ("files", "64"))}
    tmpfs, lustre = (replace(saved.run.environment, file_systems=(FileSystem("data", "/d", kind),)) for kind in KINDS)
    for one, other, are_joined in (
        (given, turned, True),
        (given, {"overrides": (("files", "100"), ("epochs", "2"))}, False),
        ({}, {"pattern": "dlio 1\n"}, False),
        ({}, {"verify": True}, False),
        ({}, {"null": True}, False),
        ({"environment": tmpfs}, {"environment": tmpfs}, True),
        ({"environment": tmpfs}, {"environment": lustre}, False),
    ):
        found = runs_gallery([study(saved, 2, **one), study(saved, 4, **other)], "train")
        assert [picture.name for picture in found.pictures[1:]] == ["scaling", "busy"] * are_joined, (one, other)
        assert ["Rate over ranks is left out" in line for line in found.left_out] == [True] * (not are_joined)


KINDS = ("tmpfs", "lustre")


def test_a_scaling_curve_names_its_studies_by_what_differs_and_says_what_is_left_out(saved: SavedRun) -> None:
    runs = [study(saved, ranks, overrides=(("files", files),)) for files in ("64", "100") for ranks in (2, 4)]
    alone = replace(study(saved, 8, verify=True), label="checked")
    picture = runs_gallery([*runs, alone], "train").pictures[1]
    assert "Left out, as nothing here can be joined with them: checked." in picture.caption
    with apply_style():
        axes = picture.draw().axes[0]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["cosmoflow: train, posix, files=64", "cosmoflow: train, posix, files=100", "ideal", "needs"]
    assert axes.get_xlim()[1] < 8


def test_a_share_of_an_ideal_that_is_doubtful_is_marked() -> None:
    with apply_style():
        axes = scaling.scaling_curve([rated(2, 100e6, doubtful=True), rated(4, 200e6)], True).axes[0]
    assert [text.get_text() for text in axes.texts] == ["?", "100 %?"]


def test_results_of_one_number_of_ranks_have_no_scaling_curve(saved: SavedRun) -> None:
    names = [one.name for one in runs_gallery([saved, replace(saved, label="again")], "train").pictures]
    assert names == ["side-by-side"]
    assert runs_gallery([saved], "train").pictures == ()


def test_pictures_whose_file_is_missing_are_left_out_with_the_reason(saved: SavedRun, loop: LoopResult) -> None:
    without = replace(saved, missing=("ranks.h5", "timeline.h5"))
    found = loop_gallery(without, replace(loop, timeline=(), rank_times={}), OWN)
    assert [one.name for one in found.pictures] == ["utilization-by-epoch"]
    assert "there is no ranks.h5" in found.left_out[0]
    assert "there is no timeline.h5" in found.left_out[1]


def test_a_run_without_io_has_no_bandwidth(saved: SavedRun, loop: LoopResult) -> None:
    found = loop_gallery(replace(saved, run=replace(saved.run, null=True)), loop, OWN)
    assert not any("bandwidth" in one.name for one in found.pictures)
    assert found.left_out == ("Bandwidth is left out: nothing was read (--null).",)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_drawn_twice_has_the_same_bytes(loop: LoopResult, kind: str) -> None:
    def once() -> bytes:
        with apply_style():
            return render_figure(reads.latency_distribution(loop.timeline), kind)  # type: ignore[arg-type]

    assert once() == once()
    assert b"Matplotlib v" not in once()


@pytest.mark.parametrize(("ranks", "count", "epochs"), [(1, 1, 1), (1, 3, 2), (70, 2, 1)])
def test_few_steps_and_many_ranks_draw_without_a_warning(
    tmp_path: Path, ranks: int, count: int, epochs: int, recwarn: pytest.WarningsRecorder
) -> None:
    write_run(tmp_path, ranks=ranks, steps=count, epochs=epochs)
    (found,) = load_results([str(tmp_path)], with_arrays=True)
    assert isinstance(found, SavedRun)
    for one in loop_gallery(found, found.loops[0], OWN).pictures:
        with apply_style():
            render_figure(one.draw(), "svg")
    assert [str(one.message) for one in recwarn] == []
