"""Writes and reads GGUF version 3 files (little endian), following the public format description.

Layout: "GGUF", version u32, tensor count u64, key count u64; keys (name, type u32, value); tensor entries (name, number of
dimensions u32, dimensions u64 with the row length first, type u32, offset u64 from the start of the data); padding; data,
every tensor at a multiple of the alignment. Strings are a u64 length and UTF-8 bytes.
"""
import struct

import numpy as np

import quant

ALIGNMENT = 32
F32, Q8_0 = 0, 8
U32, I32, FLOAT, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_SCALAR = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


def _string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def _value(kind, v):
    return _string(v) if kind == STRING else struct.pack(_SCALAR[kind], v)


def _padding(n):
    return b"\0" * (-n % ALIGNMENT)


def write(path, keys, tensors):
    """keys: list of (name, type or (ARRAY, element type), value); tensors: list of (name, array).

    A float32 array of one dimension is stored as F32; a (scales, bytes) pair from quant.quantize as Q8_0.
    """
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, kind, value in keys:
        head += _string(name)
        if isinstance(kind, tuple):
            head += struct.pack("<IIQ", ARRAY, kind[1], len(value)) + b"".join(_value(kind[1], v) for v in value)
        else:
            head += struct.pack("<I", kind) + _value(kind, value)
    data = b""
    for name, t in tensors:
        if isinstance(t, tuple):
            dims, kind, body = (t[1].shape[1] * quant.BLOCK, t[1].shape[0]), Q8_0, quant.pack(*t)
        else:
            dims, kind, body = t.shape[::-1], F32, t.astype("<f4").tobytes()
        head += _string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", kind, len(data))
        data += body + _padding(len(body))
    with open(path, "wb") as f:
        f.write(head + _padding(len(head)) + data)


class _Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        v = struct.unpack_from(fmt, self.data, self.at)[0]
        self.at += struct.calcsize(fmt)
        return v

    def string(self):
        n = self.take("<Q")
        s = self.data[self.at:self.at + n].decode("utf-8")
        self.at += n
        return s

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, n = self.take("<I"), self.take("<Q")
            return [self.value(element) for _ in range(n)]
        return self.take(_SCALAR[kind])


def read(path):
    """(keys as dict, tensors as dict of float32 arrays); only F32 and Q8_0 tensors."""
    with open(path, "rb") as f:
        c = _Cursor(f.read())
    if c.data[:4] != b"GGUF":
        raise ValueError("not a GGUF file")
    c.at = 4
    version, n_tensors, n_keys = c.take("<I"), c.take("<Q"), c.take("<Q")
    if version != 3:
        raise ValueError("GGUF version %d" % version)
    keys = {}
    for _ in range(n_keys):
        name = c.string()
        keys[name] = c.value(c.take("<I"))
    entries = []
    for _ in range(n_tensors):
        name = c.string()
        dims = [c.take("<Q") for _ in range(c.take("<I"))]
        entries.append((name, dims, c.take("<I"), c.take("<Q")))
    start = c.at + (-c.at % keys.get("general.alignment", ALIGNMENT))
    tensors = {}
    for name, dims, kind, offset in entries:
        n = int(np.prod(dims))
        at = start + offset
        if kind == F32:
            t = np.frombuffer(c.data, "<f4", n, at).reshape(dims[::-1])
        elif kind == Q8_0:
            size = n // quant.BLOCK * quant.BLOCK_BYTES
            t = quant.dequantize(*quant.unpack(c.data[at:at + size], dims[1], dims[0]))
        else:
            raise ValueError("tensor type %d of %s" % (kind, name))
        tensors[name] = t
    return keys, tensors
