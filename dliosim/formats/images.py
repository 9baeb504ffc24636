"""JPEG and PNG: a file is one sample, an image that every reader opens, of exactly as many bytes as the sample has.

An image is coarse random gradients with noise on them, encoded by Pillow. It has as many pixels as make 90 to 99 % of
the file. The rest is padding that no decoder looks at: comments (COM) in a JPEG, a private chunk in a PNG. The padding
begins with the sample's own 64 bytes, which also seed the pixels: a file is a function of these bytes and its size.

The amplitude of the noise is such that images cost what photographs do. Measured on one core with Pillow 13, at 500 x
375 pixels (in brackets images that come with scikit-image and scikit-learn, five JPEG of 110 to 530 kB, four PNG of 240
to 790 kB): JPEG 0.52 bytes a pixel (0.14 to 0.72, four of the five above 0.4), decoded in 9 ns a byte (8 to 13); PNG
1.5 bytes a pixel (1.7 to 3.0), decoded in 9 ns a byte (4 to 26). Best of five or more, on a machine with other work.

There are two limits. In files below some 20 kB the image may be only 82 %, as its tables take room and blocks of pixels
are coarse steps. No image has more than 67 million pixels, so files above 34 MB (JPEG) or 109 MB (PNG) get more
padding.
"""

from __future__ import annotations

import math
import struct
import zlib
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dliosim.formats.header_scanner import data_error, file_to_look_at
from dliosim.formats.protocols import Bytes, Column, FileIndex, Framed, Ints, index_ranges
from dliosim.formats.unsupported import smallest_size
from dliosim.lazy_numpy import np

if TYPE_CHECKING:
    from PIL.Image import Image

#: The sample's own bytes in a file
CONTENT: Final = 64

#: Bytes of the smallest file: a JPEG's tables and the contents take 0.7 kB
SMALLEST: Final = 1024

#: Pixels of the largest image that is made or decoded, below the 89 million where Pillow warns
MOST_PIXELS: Final = 1 << 26

_BEHIND: Final = 1 << 16  # an image must end within this many bytes before the end of its file

_AIM, _ENOUGH, _TRIES = 0.955, 0.9, 5
_CELL = 64  # pixels between two values of the gradients


class _ImageFormat(Framed):
    """The common part of JPEG and PNG; see `protocols.Framed`."""

    libraries = ("PIL.JpegImagePlugin", "PIL.PngImagePlugin")

    #: Pillow's name of the format.
    plugin: str
    #: First bytes of a file.
    magic: bytes
    #: Last bytes of an image.
    end: bytes
    #: Offset of the contents in a file; bytes.
    content_at: int
    #: Bytes of an encoded image without pixels, measured; only the number of tries depends on it.
    overhead: int
    #: Bytes of an encoded image for each pixel, measured; only the number of tries depends on it.
    density: float
    #: Bytes of memory for each byte of an image that is made, and once: pixels, bands and the file; measured.
    memory: tuple[float, int]
    #: Bytes of the frame around the contents; the padding is at least this frame and the contents.
    around: int

    def refuse(self) -> tuple[str, str] | None:
        """Refuse settings that place several samples in a file, or that say how an image is made."""
        dataset = self.dataset
        if dataset.layout.files < dataset.samples:
            return "layout", "an image file is one sample, use `layout file per sample`"
        unused = (
            ("shape", dataset.shape is not None, "give `size`, the bytes of the file; the pixels follow from it"),
            ("parts", dataset.parts != 1, "an image is one part"),
            ("chunk", dataset.chunk is not None, "an image is read whole"),
            ("compress", dataset.compress is not None, "images are compressed already"),
            ("compressible", dataset.compressible != 1.0, "images are compressed already"),
            ("header", dataset.header != 0, "nothing stands before an image in its file"),
            ("align", dataset.align != 1, "an image file is one sample, from its first byte"),
        )
        for setting, given, why in unused:
            if given:
                return setting, why
        if dataset.source:
            return None
        least, largest = smallest_size(dataset.size), int(MOST_PIXELS * self.density)
        if least < SMALLEST:
            of_a_draw = "" if dataset.size.is_constant else ", and of some here less: use `clipped to` with a low limit"
            return "size", f"the smallest {self.plugin} file has {SMALLEST} bytes{of_a_draw}"
        if least > largest:
            return "size", f"{self.plugin} files above {largest} bytes would be padding mostly, by the limit of pixels"
        return None

    def needs(self) -> tuple[str, str] | None:
        """Return Pillow and its extra, unless it is installed."""
        return None if find_spec("PIL") is not None else ("Pillow", "images")

    def index(self, path: Path) -> FileIndex:
        """Return the whole file as one sample; reads only its first and last bytes.

        Raises ExecutionError [R401] for a file of another format, and for one that is cut short.
        """
        with file_to_look_at(path) as look:
            size = look.size
            head = look.read(len(self.magic), 0)
            tail = look.read(len(self.end), max(0, size - len(self.end)))
            if tail != self.end:  # cameras and editors leave bytes after the end
                tail = look.read(_BEHIND, max(0, size - _BEHIND))
        if head != self.magic:
            raise data_error(f"{path} is no {self.plugin} file: it begins with {head.hex(' ') or 'nothing'}")
        if self.end not in tail or size < len(self.magic) + len(self.end):
            text = f"{path} is cut short: a {self.plugin} file does not end in its last {len(tail)} bytes, up to {size}"
            raise data_error(text)
        return index_ranges(size, np.zeros(1, np.int64), np.array([size]), len(head) + len(tail), size)

    def decode(self, column: Column | None, data: memoryview) -> Bytes | None:
        """Decode to pixels and return None, as these are no contents.

        Raises ExecutionError [R401] for damaged images, and before decoding for images above `MOST_PIXELS`.
        """
        from PIL import Image

        try:
            with Image.open(BytesIO(data), formats=[self.plugin]) as image:
                width, height = image.size
                if width * height <= MOST_PIXELS:
                    image.load()
                    return None
        except Exception as error:  # damaged data make Pillow's plugins raise OSError, SyntaxError, zlib.error and more
            text = f"a {self.plugin} image of {len(data)} bytes cannot be decoded: {type(error).__name__}: {error}"
            raise data_error(text) from error
        text = f"a {self.plugin} image of {len(data)} bytes says it has {width} x {height} pixels, over {MOST_PIXELS}"
        raise data_error(text)

    def content(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return the first bytes of the padding. ExecutionError [R401] if a size is below `SMALLEST`."""
        self._check_sizes(sizes)
        return np.full_like(sizes, self.content_at), np.full_like(sizes, CONTENT)

    def frame(self, samples: Ints, sizes: Ints, starts: Ints, out: memoryview) -> None:
        """Make the image, at 28 (PNG) to 60 MB/s (JPEG) a core, and pad it. ExecutionError [R401] as `content`."""
        self._check_sizes(sizes)
        for size, start in zip(sizes.tolist(), starts.tolist(), strict=True):
            file = out[start : start + size]
            seed = int.from_bytes(file[self.content_at : self.content_at + CONTENT], "little")
            image = self._fit_image(seed, size - self.around - CONTENT)
            padding = size - len(image)
            words = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(1,))).random_raw(-(-padding // 8))
            self._assemble(file, image, memoryview(words).cast("B")[:padding])

    def encoder_bytes(self, made: int, sample: int) -> int:
        """Return the bytes of the pixels and of Pillow's copies."""
        return int(self.memory[0] * sample) + self.memory[1]

    def _check_sizes(self, sizes: Ints) -> None:
        if len(sizes) and (least := int(sizes.min())) < SMALLEST:
            raise data_error(f"a {self.plugin} file of {least} bytes: the smallest has {SMALLEST}")

    def _fit_image(self, seed: int, room: int) -> bytes:
        """Return an image of at most `room` bytes, and at least 90 % of it, unless one pixel makes too large a step.

        Deterministic: each try depends on the one before and on nothing else.
        """
        aim = max(1.0, _AIM * room - self.overhead)
        area, best = aim / self.density, b""
        for _ in range(_TRIES):
            area = min(max(1.0, area), MOST_PIXELS)
            image = self._encode(*_draw_pixels(seed, area))
            if len(best) < len(image) <= room:
                best = image
            if best and (len(best) >= _ENOUGH * room or area == MOST_PIXELS):
                return best
            area *= aim / max(1, len(image) - self.overhead)
        best = best or self._encode(*_draw_pixels(seed, 1.0))
        if len(best) > room:
            raise data_error(f"the smallest {self.plugin} image has {len(best)} bytes, over {room}")
        return best

    def _encode(self, coarse: Image, noise: Bytes) -> bytes:
        """Return the encoded image: the gradients with 8-bit noise (height, width) added."""
        raise NotImplementedError

    def _assemble(self, file: memoryview, image: bytes, padding: memoryview) -> None:
        """Fill the file, except the contents; `padding` has as many bytes as the image leaves."""
        raise NotImplementedError


class Jpeg(_ImageFormat):
    """JPEG, quality 90, 4:2:0. After SOI comes a COM segment with the contents at byte 6, then more as needed."""

    name = "jpeg"
    plugin, magic, end = "JPEG", b"\xff\xd8\xff", b"\xff\xd9"
    content_at, around, overhead, density = 6, 4, 620, 0.51
    memory = (26.5, 14_000_000)

    def _encode(self, coarse: Image, noise: Bytes) -> bytes:
        from PIL import Image

        luma, blue, red = coarse.split()
        luma = Image.fromarray(np.asarray(luma) + (noise & np.uint8(63)))
        stream = BytesIO()
        Image.merge("YCbCr", (luma, blue, red)).save(stream, "JPEG", quality=90)
        return stream.getvalue()

    def _assemble(self, file: memoryview, image: bytes, padding: memoryview) -> None:
        file[:2] = image[:2]
        segments = -(-len(padding) // _LARGEST_SEGMENT)
        at = 2
        for number in range(segments):  # of nearly equal length, so that none is too short for its own head
            length = len(padding) * (number + 1) // segments - len(padding) * number // segments
            file[at : at + 4] = struct.pack(">2sH", b"\xff\xfe", length - 2)
            kept = CONTENT if number == 0 else 0
            file[at + 4 + kept : at + length] = padding[: length - 4 - kept]
            at += length
        file[at:] = image[2:]


class Png(_ImageFormat):
    """PNG, RGB, zlib level 1. After IHDR comes a private chunk, safe to copy, with the contents at byte 41."""

    name = "png"
    plugin, magic, end = "PNG", b"\x89PNG\r\n\x1a\n", b"\x00\x00\x00\x00IEND\xaeB`\x82"
    content_at, around, overhead, density = 41, 12, 70, 1.63
    memory = (8.6, 4_000_000)

    def _encode(self, coarse: Image, noise: Bytes) -> bytes:
        from PIL import Image

        stream = BytesIO()
        Image.fromarray(np.asarray(coarse) + (noise & np.uint8(15))[:, :, None]).save(stream, "PNG", compress_level=1)
        return stream.getvalue()

    def _assemble(self, file: memoryview, image: bytes, padding: memoryview) -> None:
        file[:_PNG_HEAD] = image[:_PNG_HEAD]
        end = _PNG_HEAD + len(padding)
        file[_PNG_HEAD : self.content_at] = struct.pack(">I4s", len(padding) - self.around, b"dlIo")
        file[self.content_at + CONTENT : end - 4] = padding[: len(padding) - self.around - CONTENT]
        file[end - 4 : end] = struct.pack(">I", zlib.crc32(file[_PNG_HEAD + 4 : end - 4]))
        file[end:] = image[_PNG_HEAD:]


_PNG_HEAD = 8 + 25  # signature, IHDR
_LARGEST_SEGMENT = 2 + 65535  # marker, then the largest length in 16 bits


def _draw_pixels(seed: int, area: float) -> tuple[Image, Bytes]:
    """Return gradients of three bands, values from 32 to 159, and noise (height, width); about `area` pixels, 4:3."""
    from PIL import Image

    width = max(1, round(math.sqrt(area * 4 / 3)))
    height = max(1, int(area / width))  # no more pixels than asked
    source = np.random.PCG64(seed)
    across, down = width // _CELL + 2, height // _CELL + 2
    grid = source.random_raw(-(-3 * across * down // 8)).view(np.uint8)[: 3 * across * down]
    coarse = Image.fromarray((grid.reshape(down, across, 3) >> 1) + np.uint8(32))
    noise = source.random_raw(-(-width * height // 8)).view(np.uint8)[: width * height]
    return coarse.resize((width, height), Image.Resampling.BILINEAR), noise.reshape(height, width)
