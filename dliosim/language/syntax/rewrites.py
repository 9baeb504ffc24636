"""Habits of other languages, and slips of typing, as changes of a text: what a user may have meant by a phrase."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Final

from dliosim.units import UNITS

MAX_LENGTH: Final = 80  # of a phrase that is rewritten
_MAX_TRIES: Final = 150  # texts that are tried for one mistake
_SHOWN: Final = 3  # texts that are shown

#: What says nothing in a pattern: it is taken away first.
_CLEAN: Final = (
    ("[\u201c\u201d\u201e\u00ab\u00bb]", '"'),
    ("[\u2018\u2019`\u00b4]", "'"),
    (r"(^|\s)\s*(//|/\*|--\s|;\s).*$", ""),
    (r"^\s*[:=]\s*", ""),
    (r"[;,\s]+$", ""),
    (r"^\(([\w.]+)\)$", r"\1"),
    (r"\s+", " "),
)
_NUMBER: Final = r"[0-9][0-9_]*(?:\.[0-9]+)?"
#: Units of bare numbers, without a prefix first, so that no cure multiplies.
_BASE: Final = ("B", "s", "ms", "B/s", "samples/s")
_UNIT: Final = r"(?:[KMGTP]i?B|kB|B|ms|us|s)(?:/s)?\b"
_AMOUNT: Final = re.compile(rf"\b{_NUMBER}(?: ?{_UNIT})?|\$\w+")
#: Units of networks, which count bits, and the unit that they are 125 of.
_BITS: Final = re.compile(r"(?i:([kmgtp])i?(?:bits?(?:/s|ps)?|bps))|([kKMGTP])i?b/s", re.ASCII)
_BELOW: Final = {"K": "B", "M": "kB", "G": "MB", "T": "GB", "P": "TB"}
_LETTERS: Final = {
    "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3,
    "thousand": 1000, "million": 1000**2, "billion": 1000**3,
}  # fmt: skip
_DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_YES: Final = {"true", "yes", "on", "enabled", "enable"}
NO: Final = {"false", "no", "0", "off", "disabled", "disable", "none", "null", "read", "sequential", "write"}
#: Words of a spread, and those that share something, by the names of their numbers.
_SPREAD: Final = r"(?:stdev|stddev|std(?:[ _]dev)?|sd|sigma|standard deviation)"
_SHARERS: Final = {
    **dict.fromkeys(("rank", "process", "gpu", "device", "accelerator"), "ranks"), "node": "nodes", "host": "nodes",
}  # fmt: skip
_TIMES: Final = {
    "s": "sec secs second seconds", "ms": "msec millisecond milliseconds", "us": "usec \u00b5s \u03bcs microseconds",
    "min": "minute minutes mins", "h": "hour hours hr", "B": "b byte bytes", "%": "percent",
}  # fmt: skip
_TIME_UNITS: Final = {word: unit for unit, words in _TIMES.items() for word in words.split()}
#: The words of the field for words of phrases.
_WORDS: Final = {
    "none": ("off",), "no": ("off",), "disabled": ("off",), "never": ("off",), "yes": ("on",), "enabled": ("on",),
    "process": ("rank",), "processes": ("ranks",), "proc": ("rank",), "gpu": ("rank",), "core": ("rank",),
    "iteration": ("step",), "iterations": ("steps",), "iters": ("steps",), "global": ("total", "globally"),
    "mpiio": ("mpi-independent", "mpi-collective"), "mpi-io": ("mpi-independent", "mpi-collective"),
    "mpi": ("mpi-independent", "mpi-collective"), "collective": ("mpi-collective",),
    "independent": ("mpi-independent",),
    "gaussian": ("normal",), "gauss": ("normal",), "tfrecords": ("tfrecord",), "h5": ("hdf5",), "jpg": ("jpeg",),
    "gz": ("gzip",), "zlib": ("gzip",), "zst": ("zstd",), "float": ("float32",), "double": ("float64",),
    "au": ("utilization",), "bandwidth": ("throughput",), "latency": ("p99",), "p95": ("p99",), "p999": ("p99",),
    "each": ("every",), "after": ("every",), "webdataset": ("tar",), "wds": ("tar",), "numpy": ("npy", "npz"),
    "binary": ("raw",), "megatron": ("indexed",), "half": ("float16",), "byte": ("uint8",), "int": ("int32",),
    "adamw": ("adam",), "libaio": ("queued",),
    "io_uring": ("queued",), "aio": ("queued",), "psync": ("preadv",), "sync": ("preadv",),
    "random": ("samples globally each epoch", "uniform"), "seed": ("samples globally each epoch",),
    "tp": ("tensor",), "pp": ("pipeline",), "dp": ("data",), "from": ("written by",),
    "single": ("shared",), "direct": ("off",), "float16": ("fp16",), "float32": ("fp32",), "bfloat16": ("bf16",),
}  # fmt: skip


def clean(text: str) -> str:
    """Return a text without the signs of other languages at its ends, and with straight quotes."""
    for pattern, plain in _CLEAN:
        text = re.sub(pattern, plain, text)
    return text.strip()


def rewrite(text: str, accepts: Callable[[str], bool], forms: Iterable[str] = ()) -> list[str]:
    """Return the accepted texts that differ from `text` by the fewest habits; at most three, all by the same habit.

    `forms` are phrases as they may be. No texts where none is accepted.
    """
    cleaned, forms = clean(text), tuple(forms)
    if not cleaned or len(cleaned) > MAX_LENGTH or re.match("-[0-9]", cleaned):  # a sign is never dropped
        return []
    if accepts(cleaned):
        return [cleaned]
    level, seen = [cleaned], {cleaned}
    while level and len(seen) < _MAX_TRIES:
        following: list[str] = []
        for changed in (changed for one in level for changed in _changes(one, forms)):
            made = [one for one in dict.fromkeys(changed) if one not in seen and len(one) <= MAX_LENGTH]
            seen.update(made)
            following += made
            if good := [one for one in made if accepts(one)]:
                return good[:_SHOWN]
            if len(seen) >= _MAX_TRIES:
                break
        level = following
    return _shorten(cleaned, accepts)


def _shorten(text: str, accepts: Callable[[str], bool]) -> list[str]:
    """Return the accepted text without the last words, which say nothing, or with another one for them."""
    text = re.sub(r",(?=\S)", ", ", text.strip("[]()"))
    words = text.split(" ")
    for count in range(len(words) - 1, 0, -1):
        kept = " ".join(words[:count]).rstrip(",;: ")
        if not re.fullmatch(r"[\w ,;.:-]*", text[len(kept) :]):
            break
        if accepts(kept):
            return [kept]
        if good := list(filter(accepts, _complete(kept, ()))):
            return good[:_SHOWN]
    return []


def _changes(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield what the text may mean by each habit, the most likely habit first."""
    if text.lower() in _YES:
        yield ("on",)
        yield [form for form in forms if form != "off"][:1]
    elif text.lower() in NO:
        yield ("off", "0")
    yield (re.sub(r"\biops\b(.*)$", r"throughput\1 samples/s", text),)
    yield (re.sub(r"\b([0-9]+(?:\.[0-9]+)?)[eE]\+?([0-9]{1,2})\b", _write_exponent, text),)
    yield (re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "_", text),)
    power = r"\b([0-9]{1,4}) ?(?:\*\*|\^) ?([0-9]{1,2})\b"
    yield (re.sub(power, lambda found: f"{int(found[1]) ** int(found[2]):_}", text),)
    yield (re.sub(r"\b([0-9]{1,4}) ?<< ?([0-9]{1,2})\b", lambda shift: f"{int(shift[1]) << int(shift[2]):_}", text),)
    yield (re.sub(rf"\b({_NUMBER}) ?([kKmMgG]i?|thousand|million|billion)\b", _write_count, text),)
    yield (re.sub(r"^(?:int|float|str|round)\((.*)\)$", r"\1", text),)
    yield (re.sub(r"\b0x[0-9a-fA-F]{1,15}\b", lambda number: f"{int(number[0], 16):_}", text),)
    compared = re.sub(r">=?|=>|==?|\b(?:more|greater|higher|better) than\b|\b(?:above|over)\b", "at least ", text)
    compared = re.sub(r"<=?|\b(?:less|lower|fewer) than\b|\b(?:below|under)\b", "at most ", compared)
    yield (re.sub(" +", " ", compared),)
    yield (re.sub(r"^(\w+) ?: ?\w+(?:\[\w+\])? ?= ?", r"\1 = ", text),)
    yield (re.sub(r" ?(?:\bper|/) ?(?:seconds?|secs?)\b", "/s", text),)
    yield (re.sub(rf"^({_NUMBER}) ?/s$", _write_arrivals, text),)
    yield (re.sub(rf"(\$\w+) ?({_UNIT})", r"\1 * 1 \2", text),)
    yield (re.sub(r"^\"?([\w.]+)\"? ?[:=] ?\"?([\w.]+)\"?$", r'"\1" = "\2"', text),)
    yield (re.sub(rf"^({_NUMBER}) ?([a-z]+),? (?:and )?({_NUMBER}) ?([a-z]+)$", _add_times, text),)
    yield (re.sub(r"^(\w+) ?: ", r"\1 ", text),)
    yield (re.sub(r"\b([a-z]+)[-= ]([0-9])", r"\1 \2", text),)
    yield (re.sub(rf"\b({_NUMBER}) ?(d|days?|w|weeks?|years?)\b", _write_hours, text),)
    yield _mend_draw(text)
    yield _mend_units(text)
    yield _round(text)
    yield _complete(text, forms)
    yield _draw_between(text)
    yield (re.sub(r"(?<![\w$.\"])[A-Za-z_]\w*\b(?!\()", _write_reference, text),)
    if name := re.match(r"[A-Za-z]\w*(?:-\w+)+(?= \")", text):  # a title stands behind it
        yield (name[0].replace("-", "_") + text[name.end() :],)
    if re.search(r"[A-Za-z][-_][A-Za-z]", text):
        yield (re.sub(r"(?<=[A-Za-z])[-_](?=[A-Za-z])", " ", text), _merge_words(text))
    yield (re.sub(r"\b([kMGTP]?B|[KMGTP]iB)$", r"\1/s", text),)
    yield (re.sub(r"[A-Za-z]+", lambda word: _write_digit(word[0]), text),)
    yield from _replace_words(text)
    yield (text.lstrip("."),)
    yield (re.sub(r"\b(?:the|an?|one|level) ", "", text),)
    yield (re.sub(r"^(?:checkpoint|dataset|data set|model|loop|the|an?) ", "", text),)
    yield (re.sub(r"[\"']", "", text),)
    if re.fullmatch(r"\"[\w -]+\"|[A-Za-z]\w*(?:-\w+)+", text):
        yield (re.sub(r"\W+", "_", text).strip("_"),)
    yield (re.sub(r"^(\w+)(?: ?:| as| to)? (.+)$", r"\1 = \2", text),)
    yield (re.sub(r"\b[a-z]+ ?= ?", "", text),)
    if re.fullmatch(r"'?[\w./*:-]+'?", text):
        yield (f'"{text.strip(chr(39)).rstrip("/")}"',)
    yield (re.sub(r"^[(\[](.*)[)\]]$", r"\1", text),)
    if re.search(r"[0-9] ?[xX\u00d7*,] ?[0-9$(]", text) and any(" x " in form for form in forms):
        yield (" x ".join(re.split(r" ?[xX\u00d7*,] ?", re.sub(r"[()\[\]]", "", text), maxsplit=32)),)
    yield (re.sub(r"(?<=[0-9)])(?<!\b0) ?[xX\u00d7](?: ?(?=[0-9$(])| (?=[A-Za-z]))", " * ", text),)
    yield from _fill(text, forms)
    yield from _insert(text, forms)
    yield from _spell(text, forms)
    yield (re.sub(r"^[$%@&{(]*([A-Za-z_]\w*)[%)}]*", r"$\1", text),)
    yield (text.lower(),)


def _write_exponent(number: re.Match[str]) -> str:
    value = Fraction(number[1]) * 10 ** int(number[2])
    return f"{int(value):_}" if value.denominator == 1 else number[0]


def _write_count(number: re.Match[str]) -> str:
    value = Fraction(number[1].replace("_", "")) * _LETTERS[number[2].lower()]
    return f"{int(value):_}" if value.denominator == 1 else number[0]


def _write_hours(days: re.Match[str]) -> str:
    """Return a number of days, weeks or years, which are no units, in hours."""
    hours = {"d": 24, "w": 168, "y": 8760}[days[2][0]]
    return f"{Decimal(days[1].replace('_', '')) * hours:f} h"


def add_shares(text: str) -> str:
    """Return what all ranks or nodes together have, where a text says what each has."""
    pattern = rf"({_NUMBER})((?: [a-z]+)?) (?:per|each) ({'|'.join(_SHARERS)})$"
    return re.sub(pattern, lambda share: f"{share[1]} * ${_SHARERS[share[3]]}{share[2]}", text)


def _add_times(times: re.Match[str]) -> str:
    """Return the sum of two times that are written side by side."""
    units = [_TIME_UNITS.get(unit, unit) for unit in (times[2], times[4])]
    return f"{times[1]} {units[0]} + {times[3]} {units[1]}"


def _write_arrivals(rate: re.Match[str]) -> str:
    """Return the time from one request to the next, for a number of requests a second."""
    value = float(rate[1].replace("_", ""))
    return f"1 per rank every {1000 / value:g} ms" if value else rate[0]


def _draw_between(text: str) -> Iterator[str]:
    """Yield the distribution of a range, or of a mean and what is added or taken."""
    amount = rf"({_NUMBER}) ?({_UNIT})?"
    between = re.fullmatch(rf"(?:[a-z]+ )?\(?{amount} ?(?:to|and|-|\.\.|,) ?{amount}\)?", text)
    around = re.fullmatch(rf"(?:mean )?{amount},?(?: with)? ?(?:\+/?-|\u00b1|{_SPREAD}) ?{amount}", text)
    for name, found in (("uniform", between), ("normal", around)):
        if found:
            yield f"{name}({found[1]} {found[2] or found[4] or ''}, {found[3]} {found[4] or ''})".replace(" ,", ",")


def _mend_draw(text: str) -> Iterator[str]:
    """Yield a distribution with commas between its amounts, and with a unit for those that have none."""
    # A spread is often written as a share of the mean.
    share = re.search(rf"({_NUMBER}) ?({_UNIT})(.*?)({_NUMBER}) ?%", text)
    if share and re.search(rf"^[a-z]+\(|{_SPREAD}|\+/?-|\u00b1", text):
        spread = Decimal(share[1].replace("_", "")) * Decimal(share[4]) / 100
        yield f"{text[: share.start(4)]}{spread:f} {share[2]}{text[share.end() :]}"
    found = re.search(r"\b([a-z]+)\(([^()]*)\)(?: ?([A-Za-z]+(?:/s)?))?", text)
    amounts = re.findall(rf"({_NUMBER}) ?([A-Za-z]+(?:/s)?)?", found[2]) if found else []
    if found is None or not amounts or re.sub(r"[\w./,\s]", "", found[2]):
        return
    outside = found[3] if found[3] and list_units(found[3]) else ""
    end = found.end() if outside or not found[3] else found.end(2) + 1
    units = (outside or amounts[-1][1],)  # of all, where it is behind the last
    for unit in units if units[0] else ("", *_BASE):
        inside = ", ".join(f"{number} {own or unit}".strip() for number, own in amounts)
        yield f"{text[: found.start()]}{found[1]}({inside}){text[end:]}"


def _write_reference(word: re.Match[str]) -> str:
    """Return a bare name of a sum or a product as that of a parameter."""
    before, after = word.string[: word.start()].rstrip(), word.string[word.end() :].lstrip()
    in_sum = before[-1:] in tuple("*/+-(,") or (not before and after[:1] in tuple("*/+-"))
    return f"${word[0]}" if in_sum else word[0]


def _merge_words(text: str) -> str:
    """Return a text with spaces for hyphens, the words of the language for others, and none of them twice."""
    words = re.sub(r"(?<=[A-Za-z])[-_](?=[A-Za-z])", " ", text).split(" ")
    made = [_WORDS.get(word.lower(), (word,))[0] for word in words]
    return " ".join(word for word, before in zip(made, ["", *made], strict=False) if word != before)


def _round(text: str) -> Iterator[str]:
    """Yield the whole numbers next to a fraction; of an expression, the functions that round it."""
    number = re.fullmatch(rf"({_NUMBER})(.*)", text)
    if number and not re.search(r"[*/+()]", text):
        value = Fraction(number[1].replace("_", ""))
        yield from (f"{int(one)}{number[2]}" for one in (value // 1, value // 1 + 1) if one)
    elif re.search(r" ?[*/] ?", text):
        yield from (f"floor({text})", f"ceil({text})")


def _write_digit(word: str) -> str:
    return str(_DIGITS.index(word.lower())) if word.lower() in _DIGITS else word


def _mend_units(text: str) -> Iterator[str]:
    """Yield the text with a unit for one that is not known."""
    found = re.search(rf"({_NUMBER}) ?([A-Za-z\u00b5\u03bc%][A-Za-z\u00b5\u03bc/]*)", text)
    if found is None or (found[2] in UNITS and found[2] != "m"):
        return
    before, after = text[: found.start()], text[found.end() :]
    bits = _BITS.fullmatch(found[2])
    if bits:
        letter = (bits[1] or bits[2] or "").upper()
        per_second = "/s" if re.search(r"s$", found[2]) and not re.search(r"bits$", found[2]) else ""
        yield f"{before}{Decimal(found[1].replace('_', '')) * 125:f} {_BELOW[letter]}{per_second}{after}"
    for unit in () if bits else list_units(found[2]):
        yield f"{before}{found[1]} {unit}{after}"


def _complete(text: str, forms: tuple[str, ...]) -> Iterator[str]:
    """Yield the text with what is missing behind its number: the last word of a form, or a unit."""
    bare = re.search(rf"(?:^| )({_NUMBER}|\$\w+)$", text)
    if bare is None:
        return
    if bare[0] == text:
        yield from _fill_amounts(text, forms)
    value = 1.0 if bare[1].startswith("$") else float(bare[1].replace("_", ""))
    if value < 1:
        yield f"{text[: bare.start(1)]}{value * 100:g} %"
    ends = dict.fromkeys(form.split(" ")[-1] for form in forms if " " in form)
    yield from (f"{text} {end}" for end in ends if end not in UNITS)
    if not bare[1].startswith("$"):
        yield from (f"{text} {unit}" for unit in (*["%"][: value >= 1], *_BASE))


def list_units(word: str) -> list[str]:
    """Return the units that a word for one may mean: one, or two where it is both a power of 10 and of 2."""
    if word == "m":
        return ["min", "ms", "MiB", "MB"]
    if word in _TIME_UNITS:
        return [_TIME_UNITS[word]]
    per_second = re.fullmatch(r"(.*?)(?:/ ?(?:s|sec|secs|second|seconds)|ps)", word, re.IGNORECASE)
    if per_second:
        return [f"{unit}/s" for unit in list_units(per_second[1]) if f"{unit}/s" in UNITS]
    if word in UNITS:
        return [word]
    word = re.sub(r"^([kmgt])(?:ilo|ega|iga|era)bytes?$", r"\1b", word, flags=re.IGNORECASE)
    found = re.fullmatch(r"([kmgtp])(i?)(?:b(?:ytes?)?)?", word, re.IGNORECASE | re.ASCII)
    if found is None:
        return ["samples/s"] if word.lower().startswith(("sample", "image")) else []
    letter = found[1].upper()
    if len(word) == 1:  # as fio and IOR count
        return [f"{letter}iB", f"{'k' if letter == 'K' else letter}B"]
    return [f"{letter}iB"] if found[2] else [f"{'k' if letter == 'K' else letter}B", f"{letter}iB"]


def _replace_words(text: str) -> Iterator[Iterable[str]]:
    for word in re.findall(r"[A-Za-z][\w-]*", text)[:8]:
        made = [re.sub(rf"\b{re.escape(word)}\b", better, text) for better in _WORDS.get(word.lower(), ())]
        yield [re.sub(r"\b([a-z]\w*) \1\b", r"\1", one) for one in made]  # `latency p99` says it twice
    yield (re.sub(r"[A-Za-z][\w-]*", lambda word: _WORDS.get(word[0].lower(), (word[0],))[0], text),)


def _fill(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield forms with the numbers of the text, and the text with the last or first words of a form."""
    yield _fill_amounts(text, forms)
    for form in forms:
        words = form.split(" ")
        for cut in range(len(words) - 1, 0, -1):
            yield (f"{text} {' '.join(words[cut:])}",) if words[cut] not in UNITS else ()
        for cut in range(1, len(words)):
            yield (f"{' '.join(words[:cut])} {text}",)


def _fill_amounts(text: str, forms: tuple[str, ...]) -> Iterator[str]:
    """Yield the forms that have all words of the text and as many numbers, with the numbers of the text."""
    amounts = _AMOUNT.findall(text)
    words = set(re.findall(r"[a-z]+", _AMOUNT.sub("", text)))
    plain = re.fullmatch(r"[\w $%./:*-]+", text, re.ASCII)
    for form in forms if amounts and plain else ():
        if "%" in text and "%" not in form:
            continue
        if len(_AMOUNT.findall(form)) == len(amounts) and words <= set(re.findall(r"[a-z]+", form)):
            given = iter(amounts)
            yield _AMOUNT.sub(lambda _, given=given: next(given), form)  # type: ignore[misc]


def _insert(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield the text with a word that all forms of its kind have inside, and which it lacks."""
    given = set(text.split(" "))
    inner = dict.fromkeys(word for form in forms for word in form.split(" ")[1:-1] if re.fullmatch("[a-z]{2,}|=", word))
    gaps = [gap.start() for gap in re.finditer(" ", text)][-4:]
    for word in [word for word in inner if word not in given][:4]:
        yield [f"{text[:gap]} {word}{text[gap:]}" for gap in reversed(gaps)]


def _spell(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield the text with words of the forms for words that are like them."""
    known = sorted({word for form in forms for word in re.findall(r"[a-z][a-z0-9-]+", form)})
    for word in re.findall(r"[A-Za-z][\w-]*", text)[:8]:
        near = difflib.get_close_matches(word[:64].lower(), known, n=1, cutoff=0.6)
        yield [re.sub(rf"\b{re.escape(word)}\b", one, text, count=1) for one in near]
