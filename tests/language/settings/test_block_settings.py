"""Meaning of each setting, and the default where none is given."""

from __future__ import annotations

import pytest

from dliosim.model import (
    Access,
    Arrivals,
    Barrier,
    Cadence,
    Checkpoint,
    Compute,
    Distribution,
    DropCaches,
    Layout,
    Loop,
    Part,
    Pause,
    Prepare,
    Repeat,
    Restore,
    Save,
    Shuffle,
    Split,
    Stripe,
    Sync,
    Writers,
    constant,
)
from tests.language.conftest import DATA, Patterns


def test_a_loop_that_says_nothing_reads_once_inside_the_step_and_meets_at_a_barrier(patterns: Patterns) -> None:
    loop = patterns.loop("")
    assert loop == Loop("train", "train", "universe", Access(open="each sample"))
    assert loop.sync == Sync("barrier")
    assert loop.shard == "by sample"
    assert loop.last_batch == "drop"


@pytest.mark.parametrize(("line", "kind"), [("", "off"), ("sync barrier", "barrier")])
def test_ranks_that_answer_requests_do_not_wait_for_each_other_unless_set(
    line: str, kind: str, patterns: Patterns
) -> None:
    text = DATA + "infer {\n    read universe\n    requests 10 per rank every 2 ms\n    " + line + "\n}\n"
    (loop,) = patterns.workload(text).verbs
    assert isinstance(loop, Loop)
    assert loop.sync.kind == kind


def test_a_data_set_that_says_nothing_is_raw_with_a_file_per_sample_under_data(patterns: Patterns) -> None:
    dataset = patterns.dataset("samples 8\n    size 4 KiB")
    assert dataset.layout == Layout("file per sample", 8)
    assert (dataset.format, dataset.root, dataset.header, dataset.align, dataset.stripe) == ("raw", "data", 0, 1, None)
    assert dataset.size == constant(4096)


@pytest.mark.parametrize(
    ("phrase", "layout"),
    [
        ("file per sample", Layout("file per sample", 100)),
        ("file per sample in 10 folders", Layout("file per sample", 100, 10)),
        ("8 files", Layout("files", 8)),
        ("2 * $ranks files in 2 folders", Layout("files", 8, 2)),
        ("1 file", Layout("files", 1)),
        ("file per rank", Layout("file per rank", 4)),
        ("file per rank\n    prepared by 7 ranks", Layout("file per rank", 7)),
        ("shared file", Layout("shared file", 1)),
    ],
)
def test_layouts_are_resolved_to_a_number_of_files(patterns: Patterns, phrase: str, layout: Layout) -> None:
    assert patterns.dataset(f"samples 100\n    size 1 kB\n    layout {phrase}").layout == layout


@pytest.mark.parametrize(
    ("lines", "readers", "prefetch"),
    [
        ("", 0, 0),
        ("readers 4", 4, 2),
        ("prefetch 3 batches", 1, 3),
        ("readers 0", 0, 0),
        ("readers 2\n prefetch 1 batch", 2, 1),
        ("readers 0\n prefetch 2 batches", 0, 0),
    ],
)
def test_readers_and_prefetch_imply_each_other(patterns: Patterns, lines: str, readers: int, prefetch: int) -> None:
    access = patterns.loop(lines).access
    assert (access.readers, access.prefetch) == (readers, prefetch)


def test_files_stay_open_except_where_each_sample_has_its_own(patterns: Patterns) -> None:
    shared = DATA.replace("path", "layout shared file\n    path")
    assert patterns.loop("").access.open == "each sample"
    assert patterns.loop("", data=shared).access.open == "once"
    assert patterns.loop("open each epoch").access.open == "each epoch"


def test_every_access_setting_is_taken(patterns: Patterns) -> None:
    lines = "\n".join(
        [
            "api mpi-independent",
            "transfer 1 MiB",
            "readers 1 by sample",
            "prefetch 3 batches",
            "open once",
            "cache memory 2 GiB",
            'hint "a" = "b"',
            'hint "c" = "d e"',
        ]
    )
    assert patterns.loop(lines).access == Access(
        "mpi-independent", 1 << 20, 1, "sample", 3, "once", "memory", 2 << 30, hints=(("a", "b"), ("c", "d e"))
    )


@pytest.mark.parametrize(
    ("line", "engine", "depth"),
    [
        ("", "preadv", 0),
        ("engine preadv", "preadv", 0),
        ("engine mmap", "mmap", 0),
        ("engine queued", "queued", 32),
        ("engine queued depth 2 * $ranks", "queued", 8),
    ],
)
def test_only_a_queue_has_a_depth(patterns: Patterns, line: str, engine: str, depth: int) -> None:
    access = patterns.loop(line).access
    assert (access.engine, access.depth) == (engine, depth)


def test_a_queue_holds_a_call_and_no_more_than_the_kernel_has_room_for(patterns: Patterns) -> None:
    for depth in (0, 32_769):
        text = f"{DATA}\ntrain {{\n read universe\n engine queued depth {depth}\n}}\n"
        assert patterns.codes(text) == ["E113"]


def test_a_hint_may_be_a_parameter(patterns: Patterns) -> None:
    more = 'param h = "a" = "b" "what it does"\nparam i = "c"="d"\n'
    lines = "api mpi-independent\nhint $h\nhint $i"
    assert patterns.loop(lines, more=more).access.hints == (("a", "b"), ("c", "d"))
    overrides = [("h", '"e" = "f"'), ("train.hint", '"c" = "g"')]
    assert patterns.loop(lines, *overrides, more=more).access.hints == (("e", "f"), ("c", "g"))


BUFFERING = (("romio_cb_read", "enable"), ("romio_cb_write", "enable"))
NO_BUFFERING = (("romio_cb_read", "disable"), ("romio_cb_write", "disable"))
NO_SIEVING = (("romio_ds_read", "disable"), ("romio_ds_write", "disable"))


@pytest.mark.parametrize(
    ("phrase", "name", "hints"),
    [
        ("library", "library", ()),
        ("two-phase", "two-phase", BUFFERING + NO_SIEVING),
        ("no-aggregation", "no-aggregation", NO_BUFFERING + NO_SIEVING),
        (
            "two-phase 3 aggregators",
            "two-phase",
            (*BUFFERING, *NO_SIEVING, ("cb_nodes", "3"), ("cb_config_list", "*:2")),
        ),
        ("two-phase buffer 1 MiB", "two-phase", (*BUFFERING, *NO_SIEVING, ("cb_buffer_size", "1048576"))),
    ],
)
def test_a_set_of_hints_is_its_pairs(
    phrase: str, name: str, hints: tuple[tuple[str, str], ...], patterns: Patterns
) -> None:
    text = DATA + "train {\n    read universe\n    api mpi-independent\n    hints " + phrase + "\n}\n"
    (loop,) = patterns.workload(text, nodes=2).verbs
    assert isinstance(loop, Loop)
    assert (loop.access.hint_set, loop.access.hints) == (name, hints)


def test_a_hint_takes_the_place_of_that_of_a_set(patterns: Patterns) -> None:
    lines = 'api mpi-independent\nhint "romio_ds_read" = "enable"\nhint "x" = "y"\nhints no-aggregation'
    hints = patterns.loop(lines).access.hints
    assert dict(hints) == {**dict(NO_BUFFERING), "romio_ds_read": "enable", "romio_ds_write": "disable", "x": "y"}
    assert hints[-1] == ("x", "y")


def test_what_writes_takes_a_set_of_hints(patterns: Patterns) -> None:
    text = DATA + "prepare universe {\n    api mpi-independent\n    hints two-phase\n}\n"
    text += 'checkpoint c {\n part w 1 MB total\n path "c"\n api mpi-independent\n hints no-aggregation\n}\nsave c\n'
    made = patterns.workload(text)
    assert isinstance(made.verbs[0], Prepare)
    assert made.verbs[0].access.hints == BUFFERING + NO_SIEVING
    assert made.checkpoint("c").access.hints == NO_BUFFERING + NO_SIEVING


@pytest.mark.parametrize(
    ("lines", "shuffle"),
    [
        ("samples globally each epoch", Shuffle("globally")),
        ("samples globally once", Shuffle("globally", samples_once=True)),
        ("samples within shard", Shuffle("within shard")),
        ("samples within buffer of 100 samples", Shuffle("within buffer", buffer=100)),
        ("files each epoch", Shuffle(files="globally")),
        ("files within shard once", Shuffle(files="within shard", files_once=True)),
        ("files globally\n    shuffle samples within shard", Shuffle("within shard", files="globally")),
        ("off", Shuffle()),
    ],
)
def test_shuffles(patterns: Patterns, lines: str, shuffle: Shuffle) -> None:
    assert patterns.loop(f"shuffle {lines}").shuffle == shuffle


def test_batches_are_counted_per_rank(patterns: Patterns) -> None:
    assert patterns.loop("batch 8 per rank").batch == 8
    assert patterns.loop("batch 8 total").batch == 2


def test_the_rest_of_a_loop(patterns: Patterns) -> None:
    more = 'checkpoint model {\n part w 1 MB total\n path "c"\n}\n'
    lines = "\n".join(
        [
            "epochs 6",
            "steps 9",
            "for 2 min",
            "shard by block",
            "last batch pad",
            "shifted by 1 rank",
            "compute normal(10 ms, 1 ms) clipped to 1 ms and 1 s busy",
            "sync allreduce 1 MB every 2 steps",
            "checkpoint model every 2 epochs",
            "checkpoint model every 3 steps",
            "checkpoint model at end",
            "evaluate every 2 epochs {",
            "read universe",
            "last batch keep",
            "}",
            "evaluate check every epoch {",
            "read universe",
            "}",
        ]
    )
    loop = patterns.loop(lines, more=more)
    assert (loop.epochs, loop.steps, loop.seconds, loop.shard, loop.last_batch, loop.shift) == (
        6,
        9,
        120.0,
        "by block",
        "pad",
        1,
    )
    assert loop.compute == Compute(Distribution("normal", (0.01, 0.001), 0.001, 1.0), busy=True)
    assert loop.sync == Sync("allreduce", 1_000_000, 2)
    assert loop.checkpoints == (Cadence("model", "epochs", 2), Cadence("model", "steps", 3), Cadence("model", "end"))
    assert [(each.every, each.loop.name, each.loop.last_batch) for each in loop.evaluations] == [
        (2, "evaluate", "keep"),
        (1, "check", "drop"),
    ]
    assert loop.evaluations[0].loop.epochs == 1


def test_an_evaluation_inherits_nothing(patterns: Patterns) -> None:
    loop = patterns.loop("batch 8 per rank\nreaders 4\nevaluate every epoch {\nread universe\n}")
    assert loop.evaluations[0].loop == Loop("evaluate", "evaluate", "universe", Access(open="each sample"))


def test_verbs_in_order(patterns: Patterns) -> None:
    text = (
        DATA
        + """
        checkpoint model {
            part w 1 MB total
            path "c"
        }
        prepare universe afresh
        barrier
        drop  caches
        repeat 2 * $ranks {
            pause exponential(1 s)
            save model
            repeat 2 { restore model written by 8 ranks }
        }
        infer {
            read     universe
            requests 10 per rank every 2 ms
        }
        restore model
    """
    )
    verbs = patterns.workload(text).verbs
    assert isinstance(verbs[0], Prepare)
    assert verbs[0].afresh
    assert verbs[1:4] == (
        Barrier(),
        DropCaches(),
        Repeat(
            8,
            (Pause(Distribution("exponential", (1.0,))), Save("model"), Repeat(2, (Restore("model", Split(1, 1, 8)),))),
        ),
    )
    assert isinstance(verbs[4], Loop)
    assert verbs[4].arrivals == Arrivals(10, constant(0.002))
    assert verbs[5] == Restore("model")


def test_writing_is_done_in_calls_of_4_mib_and_ends_with_fsync(patterns: Patterns) -> None:
    verb = patterns.workload(DATA + "prepare universe").verbs[0]
    assert verb == Prepare("universe", Access(transfer=4 << 20), afresh=False, fsync=True)


def test_checkpoints(patterns: Patterns) -> None:
    text = """
        seed 7
        access fast {
            api mpi-independent
            readers 4
            transfer 1 MB
        }
        checkpoint model with fast {
            part weights 100 MB total
            part rng     16 kB per rank
            writers one per 2 ranks
            transfer 2 MB
            fsync off
            keep 3
            path "a//b/./c"
            root local
        }
        save model
    """
    assert patterns.workload(text).checkpoint("model") == Checkpoint(
        "model",
        7,
        (Part("weights", 100_000_000, "total"), Part("rng", 16_000, "per rank")),
        Writers("one per", 2),
        Access("mpi-independent", 2_000_000),
        "a/b/c",
        "local",
        fsync=False,
        keep=3,
    )


@pytest.mark.parametrize(
    ("phrase", "writers"),
    [
        ("all ranks into shared file", Writers("shared file")),
        ("all ranks into file per rank", Writers("file per rank")),
        ("into file per rank", Writers("file per rank")),
        ("rank 3", Writers("rank", 3)),
    ],
)
def test_writers(patterns: Patterns, phrase: str, writers: Writers) -> None:
    text = f'checkpoint model {{\npart w 1 MB total\npath "c"\nwriters {phrase}\n}}\nsave model'
    assert patterns.workload(text).checkpoint("model").writers == writers


def test_the_rest_of_a_data_set(patterns: Patterns) -> None:
    lines = "samples 8\n size 1 kB\n header 512 B\n align 4 KiB\n stripe 1 MiB over 8 targets\n root local\n format raw"
    dataset = patterns.dataset(lines)
    assert (dataset.header, dataset.align, dataset.stripe, dataset.root) == (512, 4096, Stripe(1 << 20, 8), "local")


def test_loops_are_named_by_their_word_and_a_number(patterns: Patterns) -> None:
    one = "{\n read universe\n}\n"
    workload = patterns.workload(
        f"{DATA}train {one} train {one} train main {one} infer {one} repeat 2 {{\ntrain {one}\n}}\n"
    )
    names = [verb.name for verb in workload.verbs if isinstance(verb, Loop)]
    assert names == ["train", "train2", "main", "infer"]
    assert isinstance(workload.verbs[-1], Repeat)
    assert [verb.name for verb in workload.verbs[-1].body if isinstance(verb, Loop)] == ["train3"]


def test_expectations_are_numbers_in_base_units(patterns: Patterns) -> None:
    text = DATA + (
        "train { read universe }\nexpect utilization at least 70 %\nexpect p99 of train at most 40 ms\n"
        "expect throughput of train at least 2 GB/s\n"
    )
    found = [
        (each.figure, each.loop, each.bound, each.value, each.unit) for each in patterns.workload(text).expectations
    ]
    assert found == [
        ("utilization", "train", "at least", 0.7, "ratio"),
        ("p99", "train", "at most", 0.04, "s"),
        ("throughput", "train", "at least", 2e9, "B/s"),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("throughput at least  200 MB/s", "throughput of train at least 200 MB/s"),
        ("throughput of train at least 0.2 GB/s", "throughput of train at least 0.2 GB/s"),
        ("throughput at least 1_000 samples/s", "throughput of train at least 1_000 samples/s"),
        ("throughput at least 2 * $rate", "throughput of train at least 400 MB/s"),
        ("throughput at least $rate / 3", "throughput of train at least 66666666.666666664 B/s"),
        ("p99 at most $rate * 2 ms / $rate", "p99 of train at most 2 ms"),
        ("utilization at least 90.5%", "utilization of train at least 90.5%"),
    ],
)
def test_an_expectation_is_shown_as_it_was_written(patterns: Patterns, line: str, text: str) -> None:
    body = f"param rate = 200 MB/s\n{DATA}train {{ read universe }}\nexpect "
    first = patterns.workload(body + line)
    assert [each.text for each in first.expectations] == [text]
    # And what is shown can be written again.
    again = patterns.workload(body + text)
    assert [each.value for each in again.expectations] == [each.value for each in first.expectations]


def test_however_a_bound_is_spelled_the_digest_is_the_same(patterns: Patterns) -> None:
    body = f"{DATA}train {{ read universe }}\nexpect throughput at least "
    digests = [patterns.workload(body + rate).digest() for rate in ("200 MB/s", "0.2 GB/s", "201 MB/s")]
    assert digests[0] == digests[1] != digests[2]


def test_throughput_may_be_expected_in_bytes_and_in_samples(patterns: Patterns) -> None:
    text = (
        f"{DATA}train {{ read universe }}\nexpect throughput at least 1 GB/s\nexpect throughput at least 9 samples/s\n"
    )
    assert [each.unit for each in patterns.workload(text).expectations] == ["B/s", "samples/s"]
    assert patterns.codes(text + "expect throughput of train at least 2 GB/s\n") == ["E102"]


def test_only_what_verbs_use_is_in_the_workload(patterns: Patterns) -> None:
    text = DATA + 'dataset spare from universe {\n path "spare"\n}\n train {\n read universe\n}\n'
    assert [dataset.name for dataset in patterns.workload(text).datasets] == ["universe"]
