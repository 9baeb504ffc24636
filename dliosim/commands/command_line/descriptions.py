"""Descriptions of commands: what `dliosim COMMAND --help` says above the options."""

from __future__ import annotations

from typing import Final

RUN: Final = """\
Prepares the data, trains, evaluates, infers, saves and restores as the pattern says, and prints what it measured.
Start it with mpiexec -n RANKS; without, it is a job of one rank.

  mpiexec -n 4 dliosim run cosmoflow -D train.readers=4
  mpiexec -n 4 dliosim run unet3d_h100.yaml      a workload file of DLIO
  mpiexec -n 4 dliosim run w.yaml ++workload.train.epochs=2      with its keys
"""

COMPARE: Final = """\
Which way is faster, by how much, and is the difference real? Prepares the data that the variants need, once each; runs
one uncounted pass of every variant; then runs blocks. In each block every variant runs once, in random order and from
the same state of the caches. Ratios are paired by block, with intervals that hold for all variants together.

  mpiexec -n 4 dliosim compare cosmoflow --vary api=posix,mpi-independent
  mpiexec -n 4 dliosim compare cosmoflow --vary train.readers=0,4
  mpiexec -n 4 dliosim compare cosmoflow --vary "layout=8 files,shared file"
  mpiexec -n 4 dliosim compare llama3_8b --vary api=posix,mpi-independent
"""

REPORT: Final = """\
Shows what runs measured, several of them side by side. It needs no MPI: run it where the results are, or where you are.

  dliosim report my-results                        the answer, and some tables
  dliosim report my-results --full                 all tables, epoch by epoch
  dliosim report my-results --json                 the answer, for scripts
  dliosim report on-2 on-4 --html page.html        a scaling curve, and each run
  dliosim report my-results --png pictures         pictures, as PNG and SVG

Pictures show steps and reads by rank, bandwidth and latency over time, the distribution of latencies, the order of
offsets, where each rank's time went, utilization by epoch, and for comparisons ratios with their intervals. They need
matplotlib: pip install '.[report]' (in a checkout of dliosim).
docs/report.md says how to read each.
"""

ANALYZE: Final = """\
Why is a job slow? Says it in words, with the figure, its threshold and what to
try; then where the time went. Reads the trace of a run (`dliosim run --trace`),
a Darshan log, or DFTracer's files. It needs no MPI.

  dliosim analyze my-results                       a run of dliosim
  dliosim analyze app.darshan                      a job of your own, by Darshan
  dliosim analyze traces                           a folder of .pfw.gz: one job
  dliosim analyze traces/*.pfw.gz                  the same: files of one job
  dliosim analyze before after                     two jobs: what changed
  dliosim analyze logs/*.darshan                   three or more: a row for each
  dliosim analyze --explain unoverlapped-io        what an insight means

Each folder and each .darshan log is a job; files of DFTracer (.pfw, .pfw.gz) on
one line are the processes of one job: to compare two, name their folders.
docs/analyze.md leads from a trace to a changed setting.
"""

TRACE: Final = """\
Gives the events of a trace to other programs, all or a part. It needs no MPI.

  dliosim trace export my-results                  for https://ui.perfetto.dev
  dliosim trace export my-results --part "steps 1 to 100, ranks 0 to 7"
  dliosim trace export my-results --part "from 1 s to 2 s"
  dliosim trace export my-results --format csv -o - | head
  dliosim trace export my-results --format parquet -o events.parquet
  dliosim trace export app.darshan --format dxt    Darshan's DXT as text

perfetto is the form of DFTracer's version 1: dftracer-utils and `dliosim
analyze` read it, too; names that end in .gz are compressed. dxt has reads and
writes by POSIX and MPI-IO alone. Nothing is ever overwritten.
docs/analyze.md says what each form has.
"""

VERIFY: Final = """\
Are the data on storage still what was written? Reads every byte of the data sets and checkpoints below DIR, names each
file that is wrong, and says what to do. Nothing is changed. Ranks share the work: start it with mpiexec -n RANKS where
there is much.

  dliosim verify dliosim-data                                all that is there
  dliosim verify dliosim-data/train/0b5e8c7f92d14a36         one data set
  dliosim verify dliosim-data/state/63f0a1b7c2d94e58/000004  one checkpoint
  mpiexec -n 8 dliosim verify data && sbatch job             if all is right

Checkpoints are compared with the sizes and CRC-32 of their manifests, data sets with bytes that are made again from
the description in theirs. Files of others (`from files`) have no manifest, and are passed over: see
docs/running.md#verifying-data.
Exit status: 0 all are right, 1 some are not, 2 there is nothing to verify.
"""

IMPORT: Final = """\
Writes the pattern that a workload file of DLIO or MLPerf Storage asks for. Each line names the key that it came from;
what became no line is said on stderr: keys that DLIO itself never reads, keys without effect on I/O, keys that no
version has, and what is only approximately so. `run`, `plan`, `check` and `compare` take such a file as it is, too.

  dliosim import unet3d_h100.yaml -o unet3d.dlio     what the file asks for
  dliosim import unet3d_h100.yaml --as-run           what DLIO really does
  mpiexec -n 4 dliosim run unet3d_h100.yaml          import and run
"""
