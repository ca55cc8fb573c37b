"""Damage to the files of a stopped broker, as its own bugs cause it. Owns no broker."""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER = struct.Struct(">qiibIh")
_LENGTH_AFTER = 12
_CONTROL = 0x20


def cut_marker(data_dir: Path, topic: str, partition: int) -> None:
    """Cut the last batch, a transaction's marker, off the log of a stopped broker, and make the broker check its log
    again when it starts.
    """
    folder = data_dir / "kafka" / f"{topic}-{partition}"
    segment = max(folder.glob("*.log"))
    data, position, last, is_control = segment.read_bytes(), 0, -1, False
    while position + _HEADER.size <= len(data):
        _base, length, *_rest, attributes = _HEADER.unpack_from(data, position)
        if length <= 0:
            break
        last, is_control = position, bool(attributes & _CONTROL)
        position += _LENGTH_AFTER + length
    assert is_control, "the last batch is no marker"
    segment.write_bytes(data[:last])
    for pattern in ("*.snapshot", "*.index", "*.timeindex", "*.txnindex"):
        for path in folder.glob(pattern):
            path.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data_dir / "kafka" / name).unlink(missing_ok=True)
