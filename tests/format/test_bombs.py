"""Small hostile bytes that would take much memory are refused before it is spent."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

ALLOWED_BYTES = 600 * 2**20
PATIENCE_S = 60.0

# Runs with little memory: what it makes itself is small, or made before the limit.
SCRIPT = """
    import resource, struct, sys
    import zstandard
    from castore.errors import CastoreError, MalformedError
    from castore.format import canonical, frame, ref, reflog, version

    def log(data):
        return [entry for entry in reflog.decode_entries("tuning", data)][-1:]

    def read_ref(data):
        return ref.decode_ref("tuning", "ab" * 32, data)

    def read_format(data):
        return version.check_format(data, shown_path="here")

    def frame_of(size, content):
        head = b"\\x28\\xb5\\x2f\\xfd\\xe0" + struct.pack("<Q", size)
        return head + content

    def zeros(size):
        pieces = zstandard.ZstdCompressor().compressobj(size=size)
        whole = [pieces.compress(bytes(2**20)) for _ in range(size // 2**20)]
        return b"".join(whole) + pieces.flush()

    def compressed(content):
        return zstandard.ZstdCompressor().compress(content)

    def windowed(window_log):
        raw_block = struct.pack("<I", 1 | 0 << 1 | 8 << 3)[:3] + b"12345678"
        descriptor = bytes(((window_log - 10) << 3,))
        return b"\\x28\\xb5\\x2f\\xfd\\xc0" + descriptor + struct.pack("<Q", 8) + raw_block

    data = {data}
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]),) * 2)
    try:
        found = {read}(data)
    except MalformedError as error:
        print(error.rule or "refused")
    except CastoreError:
        print("refused")
    else:
        print("accepted" if found != [] else "nothing")
"""


def outcome(read: str, data: str) -> str:
    """Return the rule by which `read` rejects `data`, both given as source, in little memory."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(SCRIPT).replace("{read}", read).replace("{data}", data),
            str(ALLOWED_BYTES),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.stdout.strip() or done.stderr[-2000:]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        pytest.param("frame_of(4 * 2**30, b'')", "CAN-8", id="13 bytes declare gigabytes"),
        pytest.param("frame_of(2**64 - 2, b'')", "CAN-8", id="13 bytes declare exabytes"),
        pytest.param("frame_of(2**64 - 1, b'')", "OBJ-2", id="13 bytes declare an unknown size"),
        pytest.param("zeros(200 * 2**20)", "CAN-8", id="200 MB of zeros"),
        pytest.param("zeros(200 * 2**20)[:13] + b'\\0'", "CAN-8", id="the head of 200 MB of zeros"),
        pytest.param(
            "frame_of(10, zeros(200 * 2**20)[9:])",
            "OBJ-2",
            id="200 MB that are declared as 10 bytes",
        ),
        pytest.param(
            "b''.join([compressed(bytes(2**20))] * 300)", "OBJ-2", id="300 frames of a megabyte"
        ),
        pytest.param("compressed(b'a') + bytes(2**20)", "OBJ-2", id="bytes after the frame"),
        pytest.param("windowed(27)", "accepted", id="a window of 128 MB for 8 bytes"),
        pytest.param("windowed(31)", "OBJ-2", id="a window of 2 GB for 8 bytes"),
        pytest.param("windowed(41)", "OBJ-2", id="a window of 2 TB for 8 bytes"),
    ],
)
def test_a_frame_takes_little_memory(data: str, rule: str) -> None:
    assert outcome("frame.decompress", data) == rule


BOMBS = [
    pytest.param(
        "b'\\xdd' + struct.pack('>I', 20_000_000) + b'\\x80' * 20_000_000", id="20 million maps"
    ),
    pytest.param(
        "b'\\x9f' + (b'\\xdd' + struct.pack('>I', 2**20) + b'\\x80' * 2**20) * 15",
        id="20 million maps in several arrays",
    ),
    pytest.param(
        "b'\\xdc\\xff\\xff' + (b'\\xdc\\x01\\x00' + b'\\x90' * 256) * 65535", id="many small arrays"
    ),
    pytest.param("b'\\x91' * 100_000 + b'\\xc0'", id="100,000 levels"),
    pytest.param("b'\\x91' * 60_000_000 + b'\\xc0'", id="60 million levels"),
    pytest.param("b'\\x81\\xa1a' * 100_000 + b'\\xc0'", id="100,000 levels of maps"),
    pytest.param("b'\\xdd\\xff\\xff\\xff\\xff'", id="an array of 4 billion"),
    pytest.param("b'\\xdf\\xff\\xff\\xff\\xff'", id="a map of 4 billion"),
    pytest.param("b'\\xdb\\xff\\xff\\xff\\xff'", id="a string of 4 billion"),
    pytest.param("b'\\xc6\\xff\\xff\\xff\\xff'", id="4 billion bytes"),
    pytest.param("b'\\xc9\\xff\\xff\\xff\\xff\\x01'", id="an extension of 4 billion"),
    pytest.param("b'\\xdd\\x00\\x10\\x00\\x00' * 60 + b'\\xc0'", id="a million in a million"),
    pytest.param("bytes(65 * 2**20)", id="65 MB"),
]


@pytest.mark.parametrize("read", ["canonical.decode", "canonical.unpack"])
@pytest.mark.parametrize("data", BOMBS)
def test_content_takes_little_memory(read: str, data: str) -> None:
    assert outcome(read, data) == "CAN-8"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param("b'\\n' * (200 * 2**20)", "nothing", id="200 MB of line ends"),
        pytest.param("b'x' * (200 * 2**20)", "accepted", id="a line of 200 MB"),
        pytest.param("b'\\t' * (200 * 2**20)", "accepted", id="200 MB of fields"),
        pytest.param("b'x\\n' * 2**19", "accepted", id="half a million damaged lines"),
    ],
)
def test_a_log_takes_little_memory(data: str, found: str) -> None:
    """200 MB of line ends took 1.6 GB: a place in a list for each."""
    assert outcome("log", data) == found


@pytest.mark.parametrize("data", ["bytes(2048)", "b'\\n' * 2048", "b'object ' + b'\\xff' * 2041"])
def test_a_ref_and_a_format_file_of_the_most_bytes_that_are_read_take_little_memory(
    data: str,
) -> None:
    assert outcome("read_ref", data) in ("REF-3", "REF-1", "OBJ-1")
    assert outcome("read_format", data) == "refused"
