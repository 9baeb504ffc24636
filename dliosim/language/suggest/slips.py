"""Typing slips and habits of other languages: texts that a user may have meant by a phrase."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Final

from dliosim.language.syntax.parser import BITS
from dliosim.units import UNITS

MAX_LENGTH: Final = 80  # of a phrase that is mended
_MAX_TRIES: Final = 60  # texts that are tried for one mistake
_SHOWN: Final = 3  # texts that are shown

#: What says nothing in a pattern: it is taken away first.
_CLEAN: Final = (
    ("[\u201c\u201d\u201e\u00ab\u00bb]", '"'),
    ("[\u2018\u2019`\u00b4]", "'"),
    (r"(^|\s)\s*(//|/\*|--\s).*$", ""),
    (r"^\s*[:=]\s*", ""),
    (r"[;,\s]+$", ""),
    (r"^\(([\w.]+)\)$", r"\1"),
    (r"\s+", " "),
)
_NUMBER: Final = r"[0-9][0-9_]*(?:\.[0-9]+)?"
_AMOUNT: Final = re.compile(rf"\b{_NUMBER}(?: ?(?:[KMGTP]i?B|kB|B|ms|us|s)(?:/s)?\b)?|\$\w+")
#: Units of bare numbers, without a prefix first, so that no answer multiplies.
_BASE: Final = ("B", "s", "ms", "samples/s")
YES: Final = {"true", "yes", "on", "enabled", "enable"}
NO: Final = {"false", "no", "0", "off", "disabled", "disable", "none", "null", "read", "sequential", "write"}
#: Units for other words.
_UNITS: Final = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"), "msec": "ms",
    **dict.fromkeys(("usec", "\u00b5s", "\u03bcs"), "us"), **dict.fromkeys(("minute", "minutes", "mins"), "min"),
    **dict.fromkeys(("hour", "hours", "hr"), "h"), **dict.fromkeys(("byte", "bytes"), "B"), "percent": "%",
}  # fmt: skip
#: The words of the language for words of phrases.
_WORDS: Final = {
    "process": ("rank",), "processes": ("ranks",), "gpu": ("rank",), "gpus": ("ranks",), "iterations": ("steps",),
    "global": ("total", "globally"), "random": ("samples globally each epoch", "uniform"), "single": ("shared file",),
    "shared": ("shared file",),
    "mpiio": ("mpi-independent", "mpi-collective"), "mpi": ("mpi-independent", "mpi-collective"),
    "collective": ("mpi-collective",), "independent": ("mpi-independent",), "gaussian": ("normal",), "gz": ("gzip",),
    "tfrecords": ("tfrecord",), "webdataset": ("tar",), "numpy": ("npy", "npz"), "h5": ("hdf5",), "jpg": ("jpeg",),
    "float": ("float32",), "double": ("float64",), "half": ("float16",), "int": ("int32",), "float16": ("fp16",),
    "float32": ("fp32",), "bfloat16": ("bf16",), "au": ("utilization",), "bandwidth": ("throughput",),
    "iops": ("throughput",), "latency": ("p99",), "libaio": ("queued",), "io_uring": ("queued",), "psync": ("preadv",),
    "tp": ("tensor",), "pp": ("pipeline",), "dp": ("data",), "from": ("written by",), "direct": ("off",),
}  # fmt: skip


def clean(text: str) -> str:
    """Return a text without other languages' punctuation at its ends, and with straight quotes."""
    for pattern, plain in _CLEAN:
        text = re.sub(pattern, plain, text)
    return text.strip()


def mend(text: str, accepts: Callable[[str], bool], forms: Iterable[str] = ()) -> list[str]:
    """Return the accepted texts that differ from `text` by the fewest slips, at most three; none if no slip fits.

    `forms` are accepted phrases. Each slip is tried once, in the order of `_SLIPS`; it yields groups of texts, and the
    first group with an accepted text counts.
    """
    tried, forms = [clean(text)], tuple(forms)
    if len(tried[0]) > MAX_LENGTH or re.match("-[0-9]", tried[0]):  # a sign is never dropped
        return []
    if not tried[0] or (tried[0] != text and accepts(tried[0])):
        return tried if text and accepts(tried[0]) else []
    for slip in _SLIPS:
        made: list[str] = []
        for group in (group for one in tried for group in slip(one, forms)):
            new = [one for one in dict.fromkeys(group) if one not in (text, *tried, *made) and len(one) <= MAX_LENGTH]
            if good := [one for one in new[: _MAX_TRIES - len(made)] if accepts(one)]:
                return good[:_SHOWN]
            made += new
        tried = [*tried, *made][:_MAX_TRIES]
    return []


def _mend_switch(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    if text.lower() in YES:
        yield from (("on",), [form for form in forms if form != "off"][:1])
    elif text.lower() in NO:
        yield ("off", "0")


def _mend_number(text: str, _: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text with `1_000_000` for `1,000,000`, `1e6` and `1M`."""
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "_", text)
    yield (re.sub(rf"\b({_NUMBER})(?:[eE]\+?([0-9]{{1,2}})| ?([kKM]))\b", _write_number, text),)


def _write_number(found: re.Match[str]) -> str:
    power = int(found[2] or (6 if found[3] == "M" else 3))
    value = Fraction(found[1].replace("_", "")) * 10**power
    return f"{int(value):_}" if value.denominator == 1 else found[0]


def _mend_comparison(text: str, _: tuple[str, ...]) -> Iterator[Iterable[str]]:
    text = re.sub(r" ?(?:>=?|\b(?:more|greater|higher) than\b|\babove\b|\bover\b) ?", " at least ", text)
    yield (re.sub(r" ?(?:<=?|\b(?:less|lower|fewer) than\b|\bbelow\b|\bunder\b) ?", " at most ", text),)


def _mend_unit(text: str, _: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text with a unit for a word that is none."""
    text = re.sub(r" ?(?:\bper|/) ?(?:seconds?|secs?)\b", "/s", text)
    yield (text,)
    yield (re.sub(r"(?<![A-Za-z])([kMGTP]?B|[KMGTP]iB)$", r"\1/s", text),)
    for found in re.finditer(rf"({_NUMBER}) ?([A-Za-z\u00b5\u03bc%][A-Za-z\u00b5\u03bc/]*)", text):
        yield [f"{text[: found.start()]}{found[1]} {unit}{text[found.end() :]}" for unit in list_units(found[2])]


def list_units(word: str) -> list[str]:
    """Return the units that a word may mean: one, or two if it may be a power of 10 or of 2."""
    if word == "m":
        return ["min", "ms", "MiB", "MB"]
    if BITS.fullmatch(word):
        return []
    if word in _UNITS:
        return [_UNITS[word]]
    per_second = re.fullmatch(r"(.*?)(?:/s|ps)", word)
    if per_second and word not in UNITS:
        return [f"{unit}/s" for unit in list_units(per_second[1]) if f"{unit}/s" in UNITS]
    word = re.sub(r"^([kmgt])(?:ilo|ega|iga|era)bytes?$", r"\1b", word, flags=re.IGNORECASE)
    found = re.fullmatch(r"([kmgtp])(i?)(?:b(?:ytes?)?)?", word, re.IGNORECASE | re.ASCII)
    if found is None or word in UNITS:
        return [word] if word in UNITS else ["samples/s"] if word.startswith(("sample", "image")) else []
    letter = found[1].upper()
    units = [f"{letter}iB"] if found[2] else [f"{'k' if letter == 'K' else letter}B", f"{letter}iB"]
    return units[::-1] if len(word) == 1 else units  # a letter alone is as fio and IOR count


def _mend_words(text: str, _: tuple[str, ...]) -> Iterator[Iterable[str]]:
    for word in re.findall(r"[A-Za-z][\w-]*", text)[:8] if '"' not in text else ():
        key = word.lower().replace("mpi-io", "mpiio")
        made = [re.sub(rf"\b{re.escape(word)}\b", better, text) for better in _WORDS.get(key, ())]
        yield [re.sub(r"\b([a-z]\w*) \1\b", r"\1", one) for one in made]  # `latency p99` says it twice
    yield (re.sub(r"[A-Za-z]\w*", lambda word: _WORDS.get(word[0].lower(), (word[0],))[0], text),)


def _mend_reference(text: str, _: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text with `$name` for `{name}`, `${name}`, and for a bare name in an expression or alone."""
    yield (re.sub(r"\$?\{+ ?(\w+) ?\}+", r"$\1", text),)
    yield (re.sub(r"(?<![\w$.])([A-Za-z_]\w*)(?= ?[*/+])|(?<=[*/+] )([A-Za-z_]\w*)\b(?!\()", r"$\1\2", text),)
    yield (re.sub(r"^[A-Za-z_]\w*", r"$\g<0>", text),)


def _mend_product(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a shape for numbers in brackets, with commas or close to each `x`; a product for `x` elsewhere."""
    if any(" x " in form for form in forms) and re.search(r"[0-9] ?[xX\u00d7*,] ?[0-9$]", text):
        yield (" x ".join(re.split(r" ?[xX\u00d7*,] ?", re.sub(r"[()\[\]]", "", text), maxsplit=32)),)
    yield (re.sub(r"(?<=[0-9)])(?<!\b0) ?[xX\u00d7] ?(?=[0-9$(])", " * ", text),)


def _mend_signs(text: str, _: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text without quotes, with quotes, without signs between its words, and with other ones."""
    yield (re.sub(r"[\"']", "", text),)
    if re.fullmatch(r"'?[\w./*:-]+'?", text):
        yield (f'"{text.strip(chr(39)).rstrip("/")}"',)
    for pattern, plain in _SIGNS:
        yield (re.sub(pattern, plain, text),)
    if name := re.match(r"\"[\w -]+\"$|[A-Za-z]\w*(?:-\w+)+", text):
        yield (re.sub(r"\W+", "_", name[0]).strip("_") + text[name.end() :],)


_SIGNS: Final = (
    (r"^[(\[](.*)[)\]]$", r"\1"),
    (r"(?<=\w) ?: ", " "),
    (r"\b([a-z]+)[-=] ?(?=[0-9])", r"\1 "),
    (r"(?<=[A-Za-z])[-_](?=[A-Za-z])", " "),
    (r"^\"?([\w.]+)\"? ?[:=] ?\"?([\w.]+)\"?$", r'"\1" = "\2"'),
    (r"^([A-Za-z_]\w*)(?: ?:| as| to)? ([^=]+)$", r"\1 = \2"),
)


def _complete(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text with a unit, or a form with its numbers."""
    bare = re.search(rf"(?:^| )({_NUMBER})$", text)
    if bare:
        share = float(bare[1].replace("_", ""))
        yield (f"{text[: bare.start(1)]}{share * (100 if share < 1 else 1):g} %",)
    yield _fill_amounts(text, forms)
    yield [f"{text} {unit}" for unit in _BASE if bare]


def _fill_amounts(text: str, forms: tuple[str, ...]) -> Iterator[str]:
    """Yield the forms that have all words of the text and as many numbers, with the numbers of the text."""
    amounts, words = _AMOUNT.findall(text), set(re.findall(r"[a-z]+", _AMOUNT.sub("", text)))
    for form in forms if amounts and re.fullmatch(r"[\w $%./:*-]+", text, re.ASCII) else ():
        same = len(_AMOUNT.findall(form)) == len(amounts) and words <= set(re.findall(r"[a-z]+", form))
        if same and ("%" in form or "%" not in text):
            given = iter(amounts)
            yield _AMOUNT.sub(lambda _, given=given: next(given), form)  # type: ignore[misc]


def _spell(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text with words of the forms for words that are like them."""
    known = sorted({word for form in forms for word in re.findall(r"[a-z][a-z0-9-]+", form)})
    for word in re.findall(r"[A-Za-z][\w-]*", text)[:8]:
        near = difflib.get_close_matches(word[:64].lower(), known, n=1, cutoff=0.7)
        yield [re.sub(rf"\b{re.escape(word)}\b", one, text, count=1) for one in near]


#: The slips, the most likely first.
_SLIPS: Final = (
    _mend_switch, _mend_comparison, _mend_unit, _mend_number, _mend_words, _mend_signs, _mend_product, _spell,
    _complete, _mend_reference,
)  # fmt: skip
