"""Texts to type: what a user may have meant by a phrase with slips or habits of other languages, and lines with it."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

from dliosim.language.source import COMMAND_LINE, SourceText, Span
from dliosim.language.syntax.parser import BITS
from dliosim.units import UNITS

MAX_LENGTH: Final = 80  # of a phrase that is mended
_MAX_TRIES: Final = 60  # texts that are tried for one mistake

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
_WORD: Final = re.compile(r"[a-z]\w*")
NO: Final = {"false", "no", "0", "off", "disabled", "disable", "none", "null", "read", "sequential", "write"}
#: Units for other words.
_UNITS: Final = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "usec": "us", "\u00b5s": "us",
    "\u03bcs": "us", "minute": "min", "minutes": "min", "mins": "min", "hour": "h", "hours": "h", "hr": "h",
    "byte": "B", "bytes": "B", "percent": "%", "m": "min | ms | MiB | MB",
}  # fmt: skip
#: The words of the language for words of phrases, the most likely first.
_WORDS: Final = {
    "process": "rank", "processes": "ranks", "gpu": "rank", "gpus": "ranks", "iterations": "steps",
    "global": "total | globally", "random": "samples globally each epoch | uniform", "single": "shared file",
    "shared": "shared file", "mpiio": "mpi-independent | mpi-collective", "mpi": "mpi-independent | mpi-collective",
    "collective": "mpi-collective", "independent": "mpi-independent", "gaussian": "normal", "gz": "gzip",
    "tfrecords": "tfrecord", "webdataset": "tar", "numpy": "npy | npz", "h5": "hdf5", "jpg": "jpeg", "float": "float32",
    "double": "float64", "half": "float16", "int": "int32", "float16": "fp16", "float32": "fp32", "bfloat16": "bf16",
    "au": "utilization", "bandwidth": "throughput", "iops": "throughput", "latency": "p99", "libaio": "queued",
    "io_uring": "queued", "psync": "preadv", "tp": "tensor", "pp": "pipeline", "dp": "data", "from": "written by",
    "direct": "off",
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
                return good[:3]
            made += new
        tried = [*tried, *made][:_MAX_TRIES]
    return []


def _mend_switch(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    if text.lower() in ("true", "yes", "on", "enabled", "enable"):
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
    if BITS.fullmatch(word):
        return []
    if word in _UNITS:
        return _UNITS[word].split(" | ")
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
        others = _WORDS[key].split(" | ") if key in _WORDS else ()
        made = [re.sub(rf"\b{re.escape(word)}\b", better, text) for better in others]
        yield [re.sub(r"\b([a-z]\w*) \1\b", r"\1", one) for one in made]  # `latency p99` says it twice
    yield (re.sub(r"[A-Za-z]\w*", lambda word: _WORDS.get(word[0].lower(), word[0]).partition(" | ")[0], text),)


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
    yield from ((re.sub(pattern, plain, text),) for pattern, plain in _SIGNS)
    if name := re.match(r"\"[\w -]+\"$|[A-Za-z]\w*(?:-\w+)+", text):
        yield (re.sub(r"\W+", "_", name[0]).strip("_") + text[name.end() :],)


_SIGNS: Final = (
    (r"^[(\[](.*)[)\]]$", r"\1"),
    (r"(?<=\w) ?: ", " "),
    (r"(?<!,) until\b", ", until"),
    (r"\b([a-z]+)[-=] ?(?=[0-9])", r"\1 "),
    (r"(?<=[A-Za-z])[-_](?=[A-Za-z])", " "),
    (r"^\"?([\w.]+)\"? ?[:=] ?\"?([\w.]+)\"?$", r'"\1" = "\2"'),
    (r"^([A-Za-z_]\w*)(?: ?:| as| to)? ([^=]+)$", r"\1 = \2"),
)


def _complete(text: str, forms: tuple[str, ...]) -> Iterator[Iterable[str]]:
    """Yield a text with a unit, or a form with its numbers."""
    if bare := re.search(rf"(?:^| )({_NUMBER})$", text):
        share = float(bare[1].replace("_", ""))
        yield (f"{text[: bare.start(1)]}{share * (100 if share < 1 else 1):g} %",)
    yield _fill_amounts(text, forms)
    # Units without a prefix come first, so that no answer multiplies.
    yield [f"{text} {unit}" for unit in ("B", "s", "ms", "samples/s") if bare]


def _fill_amounts(text: str, forms: tuple[str, ...]) -> Iterator[str]:
    """Yield forms that have all words of the text, in its order, and as many numbers, with the numbers of the text."""
    amounts, words = _AMOUNT.findall(text), _WORD.findall(_AMOUNT.sub("", text))
    for form in forms if amounts and re.fullmatch(r"[\w $%./:*-]+", text, re.ASCII) else ():
        known = iter(_WORD.findall(_AMOUNT.sub("", form)))
        same = len(_AMOUNT.findall(form)) == len(amounts) and all(word in known for word in words)
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


def write_all(lines: Sequence[str]) -> str:
    """Return `LINE`, `LINE` or `LINE`, with singular units after 1."""
    quoted = [f"`{write_singular(line)}`" for line in dict.fromkeys(lines)]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]


def write_singular(text: str) -> str:
    """Return a text with singular units after 1."""
    return re.sub(r"(?<![\w.])1 (batch(?=es)|rank|step|epoch|file|folder|target|sample)e?s\b", r"1 \1", text)


def write_line(place: Span, text: str) -> str:
    """Return the line of a place with another text there, or the `-D` with another value."""
    line, column = place.source.position(place.start)
    whole = place.source.line(line)
    before, after = whole[: column - 1], whole[column - 1 + place.end - place.start :]
    if place.source.name == COMMAND_LINE:
        option, _, name = before.strip().partition(" ")
        return f"{option} {quote_pair(name.rstrip('='), text)}"
    after = re.match(r'(?:[^#"]|"[^"]*")*', after)[0] if after else ""  # type: ignore[index]  # it matches nothing, too
    return " ".join(f"{before} {text}{after}".split()) if before.strip() or after.strip() else text


def quote_pair(name: str, value: str) -> str:
    """Return NAME=VALUE quoted for a shell."""
    return f'"{name}={value}"' if " " in name and not set(value) & {'"', "$"} else f"{name}={quote_value(value)}"


def quote_value(value: str) -> str:
    """Return a value quoted for a shell."""
    if '"' in value or "$" in value:
        return shlex.quote(value)
    return f'"{value}"' if re.search(r"[^\w.%/:-]", value) else value


def fill_names(text: str, source: SourceText) -> str:
    """Return a text with a pattern's names and phrases in place of the words in capitals; unknown ones stay."""
    found = re.search(r"^\s*(?:layout|num_files\w*)\s*[:=]?\s*(\d+)", source.text, re.MULTILINE)
    text = text.replace("FILES", found[1] if found else "64").replace("FILE", source.file or "FILE")
    found = re.search(r"^\s*shape\s+([^#\n{}]*?)\s*(?:\bof\b.*)?$", source.text, re.MULTILINE)
    text = text.replace("SHAPE", found[1] if found else "224 x 224 x 3")
    for kind in ("dataset", "checkpoint", "access"):
        names = re.findall(rf"^\s*{kind}\s+([A-Za-z_]\w*)(?![\w-])[^\n{{#]*\n?\s*{{", source.text, re.MULTILINE)
        for word, name in zip((kind.upper(), f"OTHER_{kind.upper()}"), names, strict=False):
            text = re.sub(rf"\b{word}\b", name, text)
    return text
