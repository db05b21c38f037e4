"""Packs the files of a wheel anew, as small as deflate allows: zopfli takes 3 % off what zlib leaves.

    python tools/pack_wheel.py WHEEL

Names, order, times, modes and contents stay, so the hashes of its RECORD do. Without zopfli it is zlib's level 9.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
import zipfile
import zlib
from pathlib import Path

TURNS = 15
"""Iterations of zopfli, its own default: more gain nothing."""


def deflated(data: bytes) -> bytes:
    """Deflate without header or checksum, by the better of what is here."""
    found = [zlib.compress(data, 9, wbits=-15)]
    if importlib.util.find_spec("zopfli"):
        from zopfli import zlib as patient

        # Zlib's two bytes at the front and its checksum's four at the end are not part of a zip's entry.
        found.append(patient.compress(data, numiterations=TURNS)[2:-4])
    return min(found, key=len)


def pack(wheel: Path) -> None:
    """Write a wheel anew in its place."""
    with zipfile.ZipFile(wheel) as archive:
        files = [(one, archive.read(one)) for one in archive.infolist() if not one.is_dir()]
    packed = wheel.with_suffix(".packed")
    with packed.open("wb") as out:
        entries = []
        for one, data in files:
            body, name = deflated(data), one.filename.encode()
            year, month, day, hour, minute, second = one.date_time
            when = (hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day)
            # Version needed, flag for names in UTF-8, method 8 (deflate).
            facts = (20, 0x800, 8, *when, one.CRC, len(body), len(data), len(name), 0)
            entries.append(
                struct.pack("<4s6H3L5H2L", b"PK\1\2", 0x314, *facts, 0, 0, 0, one.external_attr, out.tell()) + name
            )
            out.write(struct.pack("<4s5H3L2H", b"PK\3\4", *facts) + name + body)
        begins = out.tell()
        out.write(b"".join(entries))
        count, size = len(entries), out.tell() - begins
        out.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, begins, 0))
    packed.replace(wheel)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
