"""Numbers and messages are encoded as protobuf says, and nothing outside a message is believed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dliosim.errors import ExecutionError
from dliosim.formats.tfrecord import encode_varints, feature_bytes, varint_size
from tests.examples import examples
from tests.formats.datasets import ints
from tests.formats.messages import example_of, field, of_bytes


@given(st.integers(0, (1 << 62) - 1))
def test_varints_are_protobufs(value: int) -> None:
    expected, rest = bytearray(), value
    while rest >= 128:
        expected.append(rest & 127 | 128)
        rest >>= 7
    expected.append(rest)
    assert encode_varints(ints(value))[0].tobytes() == bytes(expected)
    assert varint_size(ints(value))[0] == len(expected)


def test_fields_that_are_unknown_are_passed_over() -> None:
    unknown = b"\x48\x05" + b"\x51" + bytes(8) + b"\x5d" + bytes(4) + field(12, b"what")
    found = feature_bytes(memoryview(unknown + example_of(x=unknown + of_bytes(b"here")) + unknown), ())
    assert found == [b"here"]


@settings(max_examples=examples(300))
@given(st.binary(max_size=200))
def test_any_bytes_are_an_example_or_refused(data: bytes) -> None:
    try:
        found = feature_bytes(memoryview(data), ())
    except ExecutionError:
        return
    assert found is None or len(found[0]) <= len(data)
