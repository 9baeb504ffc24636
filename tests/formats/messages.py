"""tf.train.Example messages, encoded field by field."""

from __future__ import annotations

from dliosim.formats.tfrecord import encode_varints
from tests.formats.datasets import ints


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + encode_varints(ints(len(data)))[0].tobytes() + data


def example_of(**features: bytes) -> bytes:
    """An Example of features that each are a Feature already encoded."""
    entries = [field(1, field(1, name.encode()) + field(2, feature)) for name, feature in features.items()]
    return field(1, b"".join(entries))


def of_bytes(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))
