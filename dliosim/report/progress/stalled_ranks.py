"""The report of a stalled job: the late ranks, the ranks that wait for them, and the next commands."""

from __future__ import annotations

from collections.abc import Sequence

from dliosim.measure.progress.stalled_ranks import JobStall, RankStatus, format_ranks
from dliosim.readable import count, seconds, size

#: The most lines of late ranks.
_MOST = 8

_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in uninterruptible sleep in the kernel",
    "Z": "ended, but its launcher has not noticed",
    "X": "ended",
    "": "gone: its process has ended",
    "R": "running, in no call",
    "S": "asleep",
    "c": "in a call",
    "?": "its process cannot be inspected by this user",
}


def stall_text(stall: JobStall) -> str:
    """Return the lines of a stall, without an end of line."""
    late, waiting = _group_ranks(stall.late_ranks), stall.waiting_ranks
    where, whose = ("", "ranks") if stall.is_whole_job else (f" on {stall.host}", "its ranks")
    quiet = seconds(stall.quiet, 2)
    lines = [f"stall: nothing has moved{where} for {quiet}: {whose} finished no step, chunk or call"]
    lines += [f"  late: {_late_line(group, stall.host)}" for group in late[:_MOST]]
    if len(late) > _MOST:
        rest = [one.rank for group in late[_MOST:] for one in group]
        lines.append(f"  late: {count(len(rest), 'rank')} more: {format_ranks(rest)}")
    for place in sorted({_wait_state(one) for one in waiting}):
        there = [one.rank for one in waiting if _wait_state(one) == place]
        lines.append(f"  {place}: {len(there)} of {count(stall.ranks, 'rank')} ({format_ranks(there)})")
    return "\n".join([*lines, *(f"  next: {text}" for text in _next_commands(stall))])


def recovery_text(quiet: float) -> str:
    """Return the line of a stall that is over."""
    return f"stall: the job moves again after {seconds(quiet, 2)}"


def _group_ranks(late: Sequence[RankStatus]) -> list[list[RankStatus]]:
    """Return late ranks with the same state as groups."""
    groups: dict[tuple[object, ...], list[RankStatus]] = {}
    for one in late:
        key = (one.phase, one.epoch, one.step, one.state, one.call, one.meeting, one.action, one.is_watched)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _late_line(group: Sequence[RankStatus], host: str) -> str:
    one = group[0]
    pids = ", ".join(str(each.pid) for each in group[:4]) + ", ..." * (len(group) > 4)
    who = f"rank{'s' * (len(group) > 1)} {format_ranks([each.rank for each in group])} on {host} (pid {pids})"
    where = [one.phase or "start"]
    if one.epoch:
        where.append(f"epoch {one.epoch}")
    if one.step:
        where.append(f"{count(one.step, 'step')} done")
    if one.done:
        where.append(f"{size(one.done, 3)} done")
    state = _STATES.get(one.state, f"in state {one.state}")
    if one.call:
        state += f": {one.call}" if one.is_watched or one.state in ("c", "D") else f"; last seen in {one.call}"
    if one.action:
        state += f"; inside {one.action}"
    if one.meeting:
        state += f"; it had reached {one.meeting}"
    return f"{who}, {', '.join(where)}: {state}, for {seconds(min(each.quiet for each in group), 2)}"


def _wait_state(one: RankStatus) -> str:
    if one.meeting:
        return f"waiting at {one.meeting}"
    return f"waiting inside {one.action}" if one.action else "neither arrived nor in a call"


def _next_commands(stall: JobStall) -> list[str]:
    """Return the commands for the first of the late ranks."""
    if stall.is_elsewhere or not stall.seen:
        return ["ranks on other nodes are late: check their output, and whether the nodes are up"]
    one = (stall.late_ranks or stall.seen)[0]
    if stopped := [one.pid] * (one.state == "T") + [*one.stopped_readers]:
        return [f"on {stall.host}: kill -CONT {' '.join(map(str, stopped))}"]
    if one.state in ("Z", "X", ""):
        return [f"on {stall.host}: check the kernel's log (dmesg) for why process {one.pid} ended"]
    if one.state == "D":
        return [
            f"on {stall.host}, as root: cat /proc/{one.pid}/stack",
            "check the kernel's log (dmesg) for its storage",
        ]
    return [f"on {stall.host}: gdb -p {one.pid} -batch -ex 'thread apply all bt'"]
