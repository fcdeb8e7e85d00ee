"""Sets float keys of a GGUF file; tensor entries and weights keep their bytes.

usage: rekey.py IN_GGUF OUT_GGUF KEY=NUMBER...

A key that exists gets the new value where it stands; a new one follows the last key of its first word ("general."), which
is where export.py writes it. For a released file, whose weights are not to be made again. Needs only Python.
"""
import os
import struct
import sys

ALIGNMENT = 32
FLOAT, STRING, ARRAY = 6, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n_bytes):
        if n_bytes > len(self.data) - self.at:
            raise SystemExit("the file ends inside its head, at byte %d" % self.at)
        self.at += n_bytes
        return self.data[self.at - n_bytes:self.at]

    def number(self, fmt):
        return struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]

    def string(self):
        return self.take(self.number("<Q"))

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, n = self.number("<I"), self.number("<Q")
            for _ in range(n):
                self.skip_value(element)
        elif kind in SIZES:
            self.take(SIZES[kind])
        else:
            raise SystemExit("unknown type %d of a value" % kind)


def read_head(data):
    """([(name, bytes of the whole pair)], bytes of all tensor entries, number of tensors, offset of the data)."""
    r = Reader(data)
    if r.take(4) != b"GGUF" or r.number("<I") != 3:
        raise SystemExit("not a GGUF file of version 3")
    n_tensors, n_keys = r.number("<Q"), r.number("<Q")
    pairs = []
    for _ in range(n_keys):
        start = r.at
        name = r.string().decode("utf-8")
        r.skip_value(r.number("<I"))
        pairs.append((name, data[start:r.at]))
    start = r.at
    for _ in range(n_tensors):
        r.string()
        r.take(8 * r.number("<I") + 4 + 8)
    if any(name == "general.alignment" and struct.unpack("<I", pair[-4:])[0] != ALIGNMENT for name, pair in pairs):
        raise SystemExit("an alignment other than %d is not supported" % ALIGNMENT)
    return pairs, data[start:r.at], n_tensors, r.at + (-r.at % ALIGNMENT)


def float_pair(name, value):
    text = name.encode("utf-8")
    return name, struct.pack("<Q", len(text)) + text + struct.pack("<If", FLOAT, value)


def set_key(pairs, name, value):
    names = [n for n, _ in pairs]
    if name in names:
        pairs[names.index(name)] = float_pair(name, value)
        return
    group = name.split(".")[0] + "."
    at = max((i + 1 for i, n in enumerate(names) if n.startswith(group)), default=0)
    pairs.insert(at, float_pair(name, value))


def main():
    if len(sys.argv) < 4 or not all("=" in a for a in sys.argv[3:]):
        raise SystemExit(__doc__)
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    pairs, entries, n_tensors, start = read_head(data)
    for argument in sys.argv[3:]:
        name, value = argument.split("=", 1)
        set_key(pairs, name, float(value))
    head = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(pairs)) + b"".join(p for _, p in pairs) + entries
    with open(sys.argv[2] + ".tmp", "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT) + data[start:])
    os.replace(sys.argv[2] + ".tmp", sys.argv[2])


if __name__ == "__main__":
    main()
