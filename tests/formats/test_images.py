from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.contract_tests import build_framed, check_damage, check_framed, random_contents, write_framed
from dliosim.formats.images import CONTENT, MOST_PIXELS, SMALLEST, Jpeg, Png
from dliosim.formats.protocols import Framed, Ints
from dliosim.model import Chunk, Compression, Dataset, Distribution, Layout, Shape, constant
from tests.examples import examples

Image = pytest.importorskip("PIL.Image")

BOTH = pytest.mark.parametrize("form", [Jpeg, Png], ids=["jpeg", "png"])


def dataset(size: Distribution | None = None, **changed: object) -> Dataset:
    described = {"name": "d", "seed": 3, "samples": 4, "layout": Layout("file per sample", 4), "path": "d"}
    return Dataset(size=size or constant(4096), **{**described, **changed})  # type: ignore[arg-type]


def made(form: type[Framed], size: int, sample: int = 0) -> bytes:
    return build_framed(form(dataset()), np.array([size]), sample)


@BOTH
@pytest.mark.parametrize("size", [SMALLEST, SMALLEST + 1, 1499, 4096, 10_007, 115_000, 700_001])
def test_a_file_of_any_size_is_planned_and_holds_its_contents(form: type[Framed], size: int, tmp_path: Path) -> None:
    check_framed(form(dataset()), np.array([size]), tmp_path / "image")


@BOTH
@settings(max_examples=examples(25))
@given(size=st.integers(SMALLEST, 30_000), sample=st.integers(0, 1 << 40))
def test_every_file_has_its_size_and_pillow_verifies_and_loads_it(form: type[Framed], size: int, sample: int) -> None:
    whole = made(form, size, sample)
    assert len(whole) == size
    with Image.open(io.BytesIO(whole)) as image:
        assert image.format == form.name.upper()
        image.verify()
    with Image.open(io.BytesIO(whole)) as image:
        image.load()
        assert image.mode == "RGB"


@BOTH
def test_most_of_a_file_is_image_and_it_has_as_many_bytes_a_pixel_as_photographs(form: type[Framed]) -> None:
    lowest, highest = (0.4, 0.7) if form is Jpeg else (1.3, 3.0)
    for size in (10_000, 115_000, 1_000_000):
        whole = made(form, size)
        with Image.open(io.BytesIO(whole)) as image:
            width, height = image.size
            if form is Jpeg:
                padding = sum(len(data) + 4 for marker, data in image.applist if marker == "COM")
            else:
                image.load()
                ((kind, data),) = image.private_chunks
                assert kind == b"dlIo"
                padding = len(data) + 12
        assert 0.9 <= 1 - padding / size <= 0.99
        assert lowest <= size / (width * height) <= highest


@BOTH
def test_contents_are_where_the_file_formats_say(form: type[Framed]) -> None:
    whole = made(form, 5000, sample=7)
    begin = 6 if form is Jpeg else 41
    assert whole[begin : begin + CONTENT] == random_contents(dataset(), 7, CONTENT).tobytes()
    if form is Jpeg:
        with Image.open(io.BytesIO(whole)) as image:
            assert image.applist[0][0] == "COM"
            assert image.applist[0][1][:CONTENT] == whole[6:70]


@BOTH
def test_a_file_depends_on_its_contents_and_size_alone(form: type[Framed]) -> None:
    before = made(form, 9000, sample=5)
    sizes = np.array([4000, 9000, 2000])
    starts = np.array([3, 4010, 20_000])
    out = bytearray(30_000)
    at = form(dataset()).content(sizes)[0]
    for row, sample in enumerate((4, 5, 6)):
        begin = int(starts[row] + at[row])
        out[begin : begin + CONTENT] = random_contents(dataset(), sample, CONTENT).tobytes()
    form(dataset()).frame(np.array([4, 5, 6]), sizes, starts, memoryview(out))
    assert bytes(out[4010:13_010]) == before
    assert not any(out[:3]) and not any(out[4003:4010]) and not any(out[13_010:20_000]) and not any(out[22_000:])
    assert made(form, 9000, sample=6) != before


@BOTH
def test_padding_does_not_compress(form: type[Framed]) -> None:
    whole = made(form, 100_000)
    assert len(zlib.compress(whole, 9)) > 0.97 * len(whole)


def test_padding_of_a_jpeg_that_needs_many_segments_leaves_none_too_short() -> None:
    image = b"\xff\xd8" + b"image" + b"\xff\xd9"
    for padding in [68, 65_537, 65_538, 65_539, 65_541, 131_074, 131_075, 400_000]:
        file = memoryview(bytearray(padding + len(image)))
        Jpeg(dataset())._assemble(file, image, memoryview(bytes([7]) * padding))
        at, segments = 2, 0
        while file[at : at + 2] == b"\xff\xfe":
            length = int.from_bytes(file[at + 2 : at + 4], "big")
            assert length >= 2
            at, segments = at + 2 + length, segments + 1
        assert at == 2 + padding
        assert segments == -(-padding // 65_537)
        assert bytes(file[at:]) == image[2:]


@BOTH
def test_sizes_below_the_smallest_are_an_error_wherever_they_turn_up(form: type[Framed]) -> None:
    sizes: Ints = np.array([5000, SMALLEST - 1])
    with pytest.raises(ExecutionError, match=r"1023 bytes: the smallest has 1024"):
        form(dataset()).content(sizes)
    with pytest.raises(ExecutionError, match="smallest"):
        form(dataset()).frame(np.arange(2), sizes, np.array([0, 5000]), memoryview(bytearray(6023)))


@BOTH
@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"layout": Layout("files", 3)}, "layout"),
        ({"layout": Layout("shared file", 1)}, "layout"),
        ({"shape": Shape((64, 64), "uint8")}, "shape"),
        ({"parts": 2}, "parts"),
        ({"chunk": Chunk(1, "samples")}, "chunk"),
        ({"compress": Compression("gzip", 1)}, "compress"),
        ({"compressible": 2.0}, "compressible"),
        ({"header": 1}, "header"),
        ({"align": 512}, "align"),
        ({"size": constant(SMALLEST - 1)}, "size"),
        ({"size": constant(1 << 27)}, "size"),
        ({"size": Distribution("lognormal", (1e5, 1e5))}, "size"),
        ({"size": Distribution("lognormal", (1e5, 1e5), 1000, 1e6)}, "size"),
        ({"size": Distribution("uniform", (1000, 1e6))}, "size"),
    ],
)
def test_what_an_image_file_cannot_be_is_refused(
    form: type[Jpeg | Png], changed: dict[str, object], setting: str
) -> None:
    refused = form(dataset(**changed)).refuse()  # type: ignore[arg-type]
    assert refused is not None
    assert refused[0] == setting


@BOTH
@pytest.mark.parametrize(
    "size",
    [
        constant(SMALLEST),
        Distribution("lognormal", (1e5, 1e5), SMALLEST, 1e6),
        Distribution("uniform", (SMALLEST, 1e6)),
        Distribution("uniform", (0, 1e6), SMALLEST),
    ],
)
def test_sizes_that_never_fall_below_the_smallest_are_taken(form: type[Jpeg | Png], size: Distribution) -> None:
    assert form(dataset(size)).refuse() is None


@BOTH
def test_files_that_are_there_already_may_be_small(form: type[Jpeg | Png]) -> None:
    assert form(dataset(constant(1), source="*.img")).refuse() is None


@BOTH
def test_a_file_cut_anywhere_is_refused(form: type[Framed], tmp_path: Path) -> None:
    path = tmp_path / "image"
    write_framed(form(dataset()), path, np.array([3000]))
    check_damage(form(dataset()), path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ExecutionError, match=r"image is cut short"):
        form(dataset()).index(path)


@pytest.mark.parametrize(("form", "other"), [(Jpeg, Png), (Png, Jpeg)], ids=["jpeg", "png"])
def test_another_format_is_named_by_its_first_bytes(form: type[Framed], other: type[Framed], tmp_path: Path) -> None:
    path = tmp_path / "image"
    write_framed(other(dataset()), path, np.array([3000]))
    with pytest.raises(ExecutionError, match=rf"image is no {form.name.upper()} file: it begins with "):
        form(dataset()).index(path)
    with pytest.raises(ExecutionError, match="cannot be decoded"):
        form(dataset()).decode(None, memoryview(path.read_bytes()))


@BOTH
def test_images_by_others_are_one_sample_and_few_of_its_bytes_are_touched(form: type[Framed], tmp_path: Path) -> None:
    path = tmp_path / "image"
    Image.effect_noise((200, 100), 40).save(path, form.name.upper())
    index = form(dataset()).index(path)
    assert (index.samples, index.size) == (1, path.stat().st_size)
    assert (index.columns[0].offset.tolist(), index.columns[0].length.tolist()) == ([0], [index.size])
    assert index.touched == (5 if form is Jpeg else 20)
    assert form(dataset()).decode(index.columns[0], memoryview(path.read_bytes())) is None


def _cut(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def _without_tables(whole: bytes) -> bytes:
    return whole.replace(b"\xff\xdb", b"\xff\xef").replace(b"IHDR", b"IHDQ")


@BOTH
@pytest.mark.parametrize("damage", [_cut, _without_tables, lambda whole: b"", lambda whole: whole[:8]])
def test_decoding_damaged_images_is_an_error_that_says_why(
    form: type[Framed], damage: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(ExecutionError, match=r"image of \d+ bytes cannot be decoded") as error:
        form(dataset()).decode(None, memoryview(damage(made(form, 20_000))))
    assert error.value.code == "R401"


@BOTH
@settings(max_examples=examples(40))
@given(data=st.data())
def test_bytes_that_were_changed_give_an_image_or_an_error(form: type[Framed], data: st.DataObject) -> None:
    whole = bytearray(made(form, 2000))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert form(dataset()).decode(None, memoryview(whole)) is None
    except ExecutionError as error:
        assert error.code == "R401"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("width", [MOST_PIXELS // 10_000 + 1, 9_000, 30_000])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(width: int) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 10_000, 8, 2, 0, 0, 0))
    bomb = Png.magic + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + Png.end
    with pytest.raises(ExecutionError, match=r"pixels"):
        Png(dataset()).decode(None, memoryview(bomb))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_jpeg_that_says_it_is_huge_is_refused_before_it_is_decoded() -> None:
    whole = bytearray(made(Jpeg, 5000))
    frame = whole.index(b"\xff\xc0\x00\x11")
    whole[frame + 5 : frame + 9] = struct.pack(">HH", 9000, 9000)
    with pytest.raises(ExecutionError, match=r"9000 x 9000 pixels, over 67108864"):
        Jpeg(dataset()).decode(None, memoryview(whole))


@BOTH
def test_a_file_beyond_the_largest_image_is_padded(form: type[Framed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dliosim.formats.images.MOST_PIXELS", 20_000)
    whole = made(form, 200_000)
    monkeypatch.undo()
    assert len(whole) == 200_000
    with Image.open(io.BytesIO(whole)) as image:
        assert 19_000 <= image.size[0] * image.size[1] <= 20_000
        image.load()


def test_pillow_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Jpeg(dataset()).needs() is None
    monkeypatch.setattr("dliosim.formats.images.find_spec", lambda name: None)
    assert Jpeg(dataset()).needs() == ("Pillow", "images")


@BOTH
def test_bytes_behind_the_end_of_an_image_are_its_files_too(form: type[Framed], tmp_path: Path) -> None:
    write_framed(form(dataset()), tmp_path / "x", np.array([5000]))
    with (tmp_path / "x").open("ab") as stream:
        stream.write(b"left by a camera" * 100)
    index = form(dataset()).index(tmp_path / "x")
    assert (index.samples, index.size) == (1, 6600)
    assert form(dataset()).decode(None, memoryview((tmp_path / "x").read_bytes())) is None
