"""Models, checkpoints of tensors, saving in the background and restores by other splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dliosim.language.blocks.checkpoints import measure_model
from dliosim.language.compile import compile_pattern
from dliosim.language.unparse import explain_pattern
from dliosim.model import (
    Background,
    Cadence,
    Checkpoint,
    Job,
    Loop,
    Pace,
    Part,
    Restore,
    Split,
    Stripe,
    Transformer,
    Writers,
)
from dliosim.model.transformer import parts_of
from tests.examples import examples
from tests.language.conftest import DATA, Patterns

MODEL = """
model llama transformer {
    layers      4
    hidden      64
    ffn         128
    heads       8
    vocabulary  1000
}
"""


def saved(patterns: Patterns, lines: str, *overrides: tuple[str, str], ranks: int = 4, nodes: int = 1) -> Checkpoint:
    text = (
        f'{MODEL}checkpoint c {{\n{lines}\npath "c"\n}}\ncheckpoint m {{\nmodel llama\npath "m"\n}}\nsave c\nsave m\n'
    )
    return patterns.workload(text, *overrides, ranks=ranks, nodes=nodes).checkpoint("c")


def restored(patterns: Patterns, lines: str, *overrides: tuple[str, str], ranks: int = 4) -> Restore:
    text = f'{MODEL}checkpoint c {{\nmodel llama\npath "c"\n}}\nrestore c {{\n{lines}\n}}\n'
    verb = patterns.workload(text, *overrides, ranks=ranks).verbs[0]
    assert isinstance(verb, Restore)
    return verb


# ---- models -------------------------------------------------------------------------------------------------------


def test_a_model_that_says_only_its_shape_is_bf16_with_adam_and_zero_1(patterns: Patterns) -> None:
    assert saved(patterns, "model llama").model == Transformer(
        "llama", 4, 64, 128, 8, 8, 1000, "bf16", "adam", "fp32", 1
    )


@pytest.mark.parametrize("name", ["", "gpt "])
def test_a_model_may_be_described_where_it_is_saved(patterns: Patterns, name: str) -> None:
    lines = MODEL.replace("llama ", name)
    workload = patterns.workload(f'checkpoint c {{{lines}path "c"\n}}\nsave c\n')
    model = workload.checkpoint("c").model
    assert model is not None
    assert replace(model, name="llama") == saved(patterns, "model llama").model
    assert model.name == (name.strip() or "transformer")


def test_a_model_made_from_another_has_its_lines_then_its_own(patterns: Patterns) -> None:
    text = (
        f"{MODEL}model copy from llama {{\n kv_heads 2\n weights fp16\n optimizer sgd fp64\n zero 3\n scale 7\n}}\n"
        'checkpoint c {\n model copy\n path "c"\n}\nsave c\n'
    )
    overridden = patterns.workload(text, ("llama.layers", "6"), ("copy.zero", "0")).checkpoint("c").model
    assert overridden == Transformer("copy", 6, 64, 128, 8, 2, 1000, "fp16", "sgd", "fp64", 0, 7)


def test_a_model_of_an_included_file_is_one_of_this_file(patterns: Patterns) -> None:
    patterns.file("models.dlio", MODEL)
    workload = patterns.workload('include "models.dlio"\ncheckpoint c {\n model llama\n path "c"\n}\nsave c\n')
    assert workload.checkpoint("c").model is not None


def test_a_file_that_extends_another_changes_settings_of_its_model(patterns: Patterns) -> None:
    patterns.file("base.dlio", f'workload base\n{MODEL}checkpoint c {{\n model llama\n path "c"\n}}\nsave c\n')
    workload = patterns.workload('extends "base.dlio"\nmodel llama transformer {\n layers 5\n}\n')
    model = workload.checkpoint("c").model
    assert model is not None
    assert (model.layers, model.hidden) == (5, 64)


@given(
    model=st.builds(
        Transformer,
        name=st.just("m"),
        layers=st.integers(1, 9),
        hidden=st.integers(8, 99),
        ffn=st.integers(1, 99),
        heads=st.integers(1, 8),
        kv_heads=st.integers(1, 8),
        vocabulary=st.integers(1, 999),
        weights=st.sampled_from(["bf16", "fp32", "fp8"]),
        optimizer=st.sampled_from(["adam", "sgd", "none"]),
        zero=st.integers(0, 3),
        scale=st.sampled_from([1, 3, 1000]),
    ),
    stages=st.integers(1, 9),
)
def test_the_parts_of_a_model_are_counted_without_making_them(model: Transformer, stages: int) -> None:
    parts = parts_of(model, Split(2, min(stages, model.layers), 3))
    assert measure_model(model) == (len(parts), sum(part.size for part in parts))


# ---- checkpoints --------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_says_no_more_is_data_parallel_and_blocks(patterns: Patterns) -> None:
    found = saved(patterns, "part w 1 MB total")
    assert (found.parallel, found.split(4)) == (None, Split(1, 1, 4))
    assert (found.pieces, found.replicas, found.commit, found.metadata, found.folder) == (
        "by tensor", "once", "rename", False, 0,
    )  # fmt: skip
    assert found.background is found.serialize is found.drain is found.partner is found.stripe is None


@pytest.mark.parametrize(
    "phrase, ranks, split",
    [
        ("tensor 2 pipeline 3 data 4", 24, Split(2, 3, 4)),
        ("tensor 4", 4, Split(4, 1, 1)),
        ("tensor 2 pipeline 3 data 4 order tp-pp-dp", 24, Split(2, 3, 4, order="tp-pp-dp")),
        ("tensor 2 pipeline 3 data 4 order tp-dp-pp", 24, Split(2, 3, 4)),
        ("tensor 2 pipeline 3 data 4 order tp-pp-dp subset", 7, Split(2, 3, 4, 7, "tp-pp-dp")),
        ("tensor 2 data 3 order tp-pp-dp", 6, Split(2, 1, 3)),
        ("pipeline 4", 4, Split(1, 4, 1)),
        ("data $ranks", 3, Split(1, 1, 3)),
        ("tensor 2 data $ranks / 2", 6, Split(2, 1, 3)),
        ("tensor 8 pipeline 2 data 2 subset", 5, Split(8, 2, 2, 5)),
        ("tensor 4 subset", 4, Split(4, 1, 1)),
    ],
)
def test_ranks_are_split_as_parallel_says(patterns: Patterns, phrase: str, ranks: int, split: Split) -> None:
    assert saved(patterns, f"part w 1 MB total\nparallel {phrase}", ranks=ranks).parallel == split


@pytest.mark.parametrize(
    "phrase, part",
    [
        ("w 30 kB total", Part("w", 30_000, "total")),
        ("w 16 kB per rank", Part("w", 16_000, "per rank")),
        ("w 30 kB whole on stage 1", Part("w", 30_000, "whole", stage=1)),
        ("w 6 x 10 of bf16 split by rows on stage 1", Part("w", 120, "rows", 20, 2, 1)),
        ("w 6 x 10 of fp32 split by columns on stage 0", Part("w", 240, "columns", 40, 4)),
        ("w 6 x 2 x 5 of fp8 whole on stage 1", Part("w", 60, "whole", 10, 1, 1)),
        ("w 6 of fp32 split by rows on stage 0", Part("w", 24, "rows", 4, 4)),
        ("w 6 of fp32 split by columns on stage 0", Part("w", 24, "columns", 24, 4)),
        ("w 6 of fp32 whole on stage 0", Part("w", 24, "whole", 24, 4)),
        ("w $tensor x $data of fp32 whole on stage $pipeline - 1", Part("w", 24, "whole", 12, 4, 1)),
        ("w 1 kB * $tensor * $ranks total", Part("w", 24_000, "total")),
    ],
)
def test_a_part_is_bytes_or_a_tensor(patterns: Patterns, phrase: str, part: Part) -> None:
    assert saved(patterns, f"part {phrase}\nparallel tensor 2 pipeline 2 data 3", ranks=12).parts == (part,)


def test_a_parameter_may_use_the_split_of_the_checkpoint_that_uses_it(patterns: Patterns) -> None:
    text = """
        param each = 1 MB * $tensor
        checkpoint a {
            part      w $each total
            parallel  tensor 4
            path      "a"
        }
        checkpoint b {
            part      w $each total
            parallel  tensor 2 data 2
            path      "b"
        }
        save a
        save b
    """
    sizes = [checkpoint.parts[0].size for checkpoint in patterns.workload(text).checkpoints]
    assert sizes == [4_000_000, 2_000_000]


def test_a_parameter_called_as_an_axis_is_what_its_file_says(patterns: Patterns) -> None:
    text = 'param data = 7\ncheckpoint c {\n part w 1 MB * $data total\n parallel data 4\n path "c"\n}\nsave c\n'
    assert patterns.workload(text).checkpoint("c").parts[0].size == 7_000_000


def test_how_it_is_written_and_completed(patterns: Patterns) -> None:
    lines = """
        part       w 1 MB total
        writers    one per node
        replicas   dealt
        pieces     whole
        folder     per node
        stripe     1 MiB over 4 targets
        metadata   on
        commit     metadata
        serialize  300 ms
        drain to   archive
        partner    3 ranks
    """
    found = saved(patterns, lines, ranks=6, nodes=2)
    assert (found.writers, found.folder) == (Writers("one per", 3), 3)
    assert (found.replicas, found.pieces, found.metadata, found.commit) == ("dealt", "whole", True, "metadata")
    assert (found.stripe, found.serialize) == (Stripe(1 << 20, 4), Pace(seconds=0.3))
    assert (found.drain, found.partner) == ("archive", 3)
    overridden = saved(patterns, lines, ("c.folder", "per rank"), ("c.serialize", "2 GB/s"), ("c.commit", "none"))
    assert (overridden.folder, overridden.serialize, overridden.commit) == (1, Pace(bytes_per_second=2e9), "none")


@pytest.mark.parametrize(
    "lines, background",
    [
        ("async off", None),
        ("async on", Background()),
        ("async on\nstaging memory\nin flight 3", Background(None, False, 3)),
        ("async on\nstaging 20 GB/s", Background(Pace(None, 20e9))),
        ("async on\nstaging 300 ms", Background(Pace(0.3))),
        ("async on\nstaging simulated", Background(None, True)),
        ("async on\nstaging simulated 4 GB / 2 s", Background(Pace(None, 2e9), True)),
    ],
)
def test_a_save_continues_in_the_background_as_it_says(patterns: Patterns, lines: str, background: Background) -> None:
    assert saved(patterns, f"part w 1 MB total\n{lines}").background == background


@pytest.mark.parametrize(
    "phrase, seconds", [("30 s", 30.0), ("2 min", 120.0), ("$often", 1.5), ("1 GB / 2 GB/s", 0.5), ("$often * 2", 3.0)]
)
def test_a_loop_saves_every_so_much_time(patterns: Patterns, phrase: str, seconds: float) -> None:
    more = 'param often = 1.5 s\ncheckpoint c {\n part w 1 MB total\n path "c"\n}\n'
    text = (
        f"{more}{DATA}prepare universe\ntrain {{\n read universe\n compute $often\n checkpoint c every {phrase}\n}}\n"
    )
    loop = patterns.workload(text).verbs[-1]
    assert isinstance(loop, Loop)
    assert loop.checkpoints == (Cadence("c", "seconds", seconds=seconds),)


def test_two_lines_with_a_time_for_one_checkpoint_are_one_too_many(patterns: Patterns) -> None:
    more = 'checkpoint c {\n part w 1 MB total\n path "c"\n}\n'
    lines = "checkpoint c every 30 s\n checkpoint c every 2 min\n checkpoint c every 2 steps"
    assert patterns.codes(f"{more}{DATA}prepare universe\ntrain {{\n read universe\n {lines}\n}}\n") == ["E102"]


# ---- restores -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines, verb",
    [
        ("", Restore("c")),
        ("written by 8 ranks", Restore("c", Split(1, 1, 8))),
        ("written by tensor 8 pipeline 4 data 2", Restore("c", Split(8, 4, 2))),
        ("written by tensor 2 pipeline 3 data 2 order tp-pp-dp", Restore("c", Split(2, 3, 2, 0, "tp-pp-dp"))),
        ("reads own part once without sending", Restore("c", once=True, sent=False)),
        ("reads everything once without sending", Restore("c", everything=True, once=True, sent=False)),
        ("written by data 8\nparallel tensor 2 data 2", Restore("c", Split(1, 1, 8), Split(2, 1, 2))),
        ("parallel tensor 2 data 4 subset", Restore("c", None, Split(2, 1, 4, 4))),
        ("written by data 8 subset 4\nparallel data 8 subset", Restore("c", Split(1, 1, 8, 4), Split(1, 1, 8, 4))),
        ("written by data 8 subset 8", Restore("c", Split(1, 1, 8))),
        ("shifted by 8 ranks\nreads own part once", Restore("c", shift=8, once=True)),
        ("reads everything", Restore("c", everything=True)),
        ("reads everything once", Restore("c", everything=True, once=True)),
    ],
)
def test_a_restore_reads_what_it_says(patterns: Patterns, lines: str, verb: Restore) -> None:
    assert restored(patterns, lines) == verb


def test_an_override_changes_every_restore_or_those_of_one_checkpoint(patterns: Patterns) -> None:
    text = (
        'checkpoint a {\n part w 1 MB total\n path "a"\n}\ncheckpoint b {\n part w 1 MB total\n path "b"\n}\n'
        "restore a written by 8 ranks\nrepeat 2 { restore b }\n"
    )
    overrides = (("restore.shifted by", "1 rank"), ("restore a.written by", "16 ranks"))
    first, second = patterns.workload(text, *overrides).verbs
    assert first == Restore("a", Split(1, 1, 16), shift=1)
    assert second.body == (Restore("b", shift=1),)  # type: ignore[union-attr]


# ---- what cannot be together ---------------------------------------------------------------------------------------

FLUSHED = """
checkpoint c {
    part     w 1 MB total
    writers  all ranks into shared file
    api      mpi-independent
    async    on
    path     "c"
}
"""
READS = "train {\n read universe\n api mpi-independent\n}\n"


@pytest.mark.parametrize(
    "verbs, overrides, codes",
    [
        (f"save c\n{READS}", (), ["E219"]),
        (f"repeat 2 {{\n{READS}save c\n}}\n", (), ["E219"]),
        (f"{READS}save c\n", (), []),
        (f"repeat 1 {{\n{READS}save c\n}}\n", (), []),
        (f"save c\n{READS}", (("train.api", "posix"),), []),
        (f"save c\n{READS}", (("c.api", "posix"),), []),
        (f"save c\n{READS}", (("c.async", "off"),), []),
        (f"save c\n{READS}", (("c.writers", "into file per rank"),), []),
        ("save c\nsave c\nrestore c\n", (), []),
        ("save c\nprepare universe afresh { api mpi-independent }\n", (), ["E219"]),
        ("train {\n read universe\n checkpoint c at end\n evaluate every 1 epoch {\n  read universe\n"
         "  api mpi-independent\n }\n}\n", (), ["E219"]),
    ],
)  # fmt: skip
def test_a_flush_by_mpi_io_goes_with_no_other_call_of_mpi_io(
    patterns: Patterns, verbs: str, overrides: tuple[tuple[str, str], ...], codes: list[str]
) -> None:
    text = f"{DATA}{FLUSHED}prepare universe\n{verbs}"
    if codes:
        assert patterns.codes(text, *overrides) == codes
    else:
        patterns.workload(text, *overrides)


def test_a_state_over_two_to_the_62_is_refused_for_each_split_that_is_used(patterns: Patterns) -> None:
    text = 'checkpoint c {\n part w 1 PB per rank\n path "c"\n}\n'
    patterns.workload(f"{text}restore c written by 4096 ranks\n")
    assert patterns.codes(f"{text}restore c written by 8192 ranks\n") == ["E113"]
    assert patterns.codes(f"{text}restore c {{ written by tensor 4096 data 4 }}\n") == ["E113"]


# ---- written out again --------------------------------------------------------------------------------------------

choices = {
    "writers": ("into file per rank", "one per node", "one per 2 ranks", "rank 1"),
    "replicas": ("once", "dealt", "all"),
    "pieces": ("by tensor", "whole"),
    "folder": ("off", "per rank", "per node"),
    "stripe": ("1 MiB over 4 targets",),
    "metadata": ("on",),
    "commit": ("rename", "metadata", "none"),
    "serialize": ("300 ms", "2 GB/s", "1 GB / 3 s", "1 s / 3", "0 s"),
    "async": ("on",),
    "staging": ("memory", "20 GB/s", "7 ms", "simulated", "simulated 20 GB / 7 s"),
    "in flight": ("1", "2"),
    "drain to": ("other",),
    "partner": ("1 rank", "3 ranks"),
    "parallel": ("tensor 2 pipeline 2", "data 4", "tensor 2 pipeline 2 data 3 subset"),
    "model": ("llama",),
}
needed = {"staging": ("async",), "in flight": ("async",)}
parts = st.sets(
    st.sampled_from(["a 1 MB total", "b 3 B per rank", "c 3 x 5 x 2 of fp16 whole on stage 0",
                     "d 7 of int64 split by rows on stage 0", "e 7 of fp8 split by columns on stage 0",
                     "f 5 kB whole on stage 0", "g 7 of int8 whole on stage 0"]),
    min_size=1,
)  # fmt: skip
restores = st.lists(
    st.sampled_from(["", "written by 8 ranks", "written by tensor 2 data 3", "shifted by 5 ranks",
                     "reads everything", "reads own part once", "parallel tensor 2 data 2"]),
    max_size=3,
)  # fmt: skip


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    chosen=st.fixed_dictionaries({}, optional={head: st.sampled_from(some) for head, some in choices.items()}),
    parts=parts,
    restores=restores,
)
def test_what_is_explained_is_the_same_workload(
    tmp_path: Path, chosen: dict[str, str], parts: set[str], restores: list[str]
) -> None:
    for head, others in needed.items():
        if head in chosen:
            chosen |= {other: choices[other][0] for other in others}
    if chosen.get("writers") == "rank 1":
        chosen.pop("folder", None)
    lines = [f"{head} {phrase}" for head, phrase in chosen.items()] + [f"part {part}" for part in sorted(parts)]
    body = "\n".join(['path "c"', *lines])
    verbs = ["save c"] + [
        f"restore c {{\n{line}\n}}" for line in restores if "subset" not in chosen.get("parallel", "")
    ]
    path = tmp_path / "main.dlio"
    path.write_text(
        "\n".join(["dlio 1", "workload w", MODEL, f"checkpoint c {{\n{body}\n}}", *verbs]), encoding="utf-8"
    )
    workload = compile_pattern(path, [], Job(4, 2))[0]
    again = tmp_path / "again.dlio"
    again.write_text(explain_pattern(path, [], Job(4, 2)), encoding="utf-8")
    assert compile_pattern(again, [], Job(4, 2))[0].digest() == workload.digest()


def test_each_line_about_one_checkpoint_is_explained_by_its_own_place(patterns: Patterns) -> None:
    text = f'checkpoint c {{\n part w 1 MB total\n path "c"\n}}\n{DATA}prepare universe\ntrain {{\n read universe\n'
    path = patterns.file("main.dlio", f"workload w\n{text} checkpoint c every 2 steps\n checkpoint c every 2 min\n}}\n")
    lines = [line.split() for line in explain_pattern(path, [], Job(4)).splitlines() if line.startswith("    check")]
    places = [int(line[-1].rpartition(":")[2]) for line in lines]
    assert [line[3:5] for line in lines] == [["2", "steps"], ["120", "s"]]
    assert places[1] == places[0] + 1
