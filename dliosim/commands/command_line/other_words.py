"""The other words of the field, and of other tools, for commands, options and their values."""

from __future__ import annotations

from typing import Final

from dliosim.errors import install_hint

#: Other words for commands.
OTHER_COMMANDS: Final = {
    "run": "simulate, start, execute, exec, train, training, bench, benchmark, launch, prepare, generate, workload, "
    "datagen, submit, go, infer, save, restore",
    "check": "validate, lint, parse, test, configview, syntax",
    "plan": "estimate, predict, datasize, forecast, size, dryrun, dry-run, plan-only, count, preview",
    "report": "results, result, plot, view, html, png, page, csv-report, reportgen, summary, pictures",
    "analyze": "analyse, diagnose, insights, darshan, drishti, dfanalyzer, profile, why",
    "trace": "export, perfetto, timeline, dxt, tracing",
    "explain": "info, describe, doc, docs, man, show, cat, print, what, resolve",
    "compare": "diff, versus, vs, tune, sweep, ab",
    "verify": "fsck, scrub, checksum",
    "patterns": "list, ls, examples, workloads, models, catalogue",
    "--help": "help, usage, h, ?",
    "--version": "version, v, V",
}
#: First of two words for a command of MLPerf Storage's program, as in `training datagen`.
BEFORE_COMMANDS: Final = ("training", "checkpointing", "reports")
#: What is no command, by what to do.
NO_COMMANDS: Final = {
    "data are files below --dir: write `rm -r dliosim-data`": "clean, cleanup, clear, remove, delete, rm, purge",
    f"{install_hint('report')}, or another extra": "install, init, setup",
}
#: Other words for options and arguments, of the commands that have them.
OPTIONS: Final = {
    "-D": "define, def, param, params, set, override, config, p, d, D, o, O",
    "--dir": "data-dir, data-folder, datadir, data, prefix, scratch, directory, dataset-path, data-path, path, "
    "checkpoint-folder, checkpoint-dir, root-dir, target, d",
    "--output": "out, o, outdir, output-dir, results-dir, result-dir, results, log-dir, output-folder, save",
    "--null": "no-io, dummy, noop, without-io",
    "--seed": "random-seed, s",
    "--html": "page, output-html, plot, plots, output, o, out",
    "--png": "pictures, figures, pdf, svg",
    "--json": "output-format, json-output, as-json",
    "--repeat": "repeats, repetitions, runs, iterations, trials",
    "--caches": "cache",
    "pattern": "pattern, workload, model, file, f, conf, input, script, benchmark, app",
    "place": "dir, directory, data-dir, path, root",
    "results": "dir, results, result, input",
    "--format": "fmt, form, as, type, to",
    "--part": "cut, steps, filter, select, only, time, times",
    "trace": "traces, log, file, dir, input, path, results, result",
    "traces": "trace, traces, log, logs, file, dir, input, path, pfw, darshan",
    "--explain": "insight, why, describe",
    "--from": "template, base, copy, example, like, source, extends",
    "--help": "usage, help, ?",
}
#: Other words for the values of options.
CHOICES: Final = {
    "perfetto": "json, chrome, pfw, dftracer, trace",
    "dxt": "txt, text, darshan",
    "parquet": "arrow, feather, pandas",
}
LAUNCHERS: Final = ("mpiexec", "mpirun", "srun")
#: Options that are those of launchers, by what they say; and options that are needed nowhere.
KINDS: Final = {
    "ranks": "n, np, ranks, nprocs, nproc, num-procs, ntasks, processes, num-processes, nranks, num-ranks, world-size, "
    "num-accelerators, num-client-hosts, nproc-per-node, num-gpus, gpus, numjobs, j",
    "of a node": "ppn, npernode, ntasks-per-node, ranks-per-node, procs-per-node, tasks-per-node, gpus-per-node",
    "nodes": "nodes, nnodes, num-nodes, N",
    "hosts": "hosts, host, hostfile, machinefile",
    "srun": "partition, account, mem, cpus-per-task, c, job-name, qos, constraint, exclusive, time",
    "needless": "verbose, v, vv, quiet, q, debug, force, yes, y, k, w, r, color, progress, keep, "
    "client-host-memory-in-gb, allow-run-as-root",
}
#: Options of IOR and fio that are letters, by the words of settings.
LETTERS: Final = {
    "t": "transfer",
    "a": "api",
    "b": "size",
    "s": "samples",
    "e": "epochs",
    "i": "epochs",
    "B": "odirect",
    "C": "shift",
    "F": "file_per_process",
}


def find_name(word: str, table: dict[str, str]) -> str:
    """Return the name that a table has another word for; empty for none."""
    words = (word, word.lower() if len(word) > 1 else word)
    return next((name for name, others in table.items() if any(one in others.split(", ") for one in words)), "")
