"""Q8_0: blocks of 32 weights along a row, one float16 scale d = max|w| / 127 and 32 signed bytes round(w / d)."""
import numpy as np

BLOCK = 32
BLOCK_BYTES = 34


def quantize(w):
    """w: (rows, cols) float32, cols a multiple of 32 -> (scales (rows, cols/32) float16, bytes (rows, cols/32, 32) int8)."""
    blocks = w.astype(np.float32).reshape(w.shape[0], -1, BLOCK)
    d = (np.abs(blocks).max(-1) / np.float32(127)).astype(np.float16)
    inv = np.where(d > 0, 1 / np.where(d > 0, d, 1).astype(np.float32), 0).astype(np.float32)
    q = np.clip(np.rint(blocks * inv[..., None]), -127, 127).astype(np.int8)
    return d, q


def dequantize(d, q):
    """Exact float32 values: scale times byte."""
    return (d.astype(np.float32)[..., None] * q.astype(np.float32)).reshape(q.shape[0], -1)


def pack(d, q):
    """The bytes of the rows as they stand in a GGUF file: per block the scale, then the 32 bytes."""
    out = np.empty(q.shape[:2] + (BLOCK_BYTES,), dtype=np.uint8)
    out[..., :2] = d.astype("<f2")[..., None].view(np.uint8)
    out[..., 2:] = q.view(np.uint8)
    return out.tobytes()


def unpack(data, rows, cols):
    raw = np.frombuffer(data, dtype=np.uint8).reshape(rows, cols // BLOCK, BLOCK_BYTES)
    d = np.ascontiguousarray(raw[..., :2]).view("<f2")[..., 0]
    return d, np.ascontiguousarray(raw[..., 2:]).view(np.int8)
