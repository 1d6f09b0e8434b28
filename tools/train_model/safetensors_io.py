"""Writes and reads the safetensors format: u64 little-endian header size, JSON header, bytes.

Standard library only; tensors are (dtype name, shape, bytes).
"""

import json
import struct


def write(path, tensors, metadata=None):
    """Writes {name: (dtype, shape, bytes)} in the given order."""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # keeps the tensors 8-byte aligned
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, content in tensors.values():
            f.write(content)


def read(path):
    """Returns {name: (dtype, shape, bytes)}."""
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        body = f.read()
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], tuple(entry["shape"]),
                   body[entry["data_offsets"][0]:entry["data_offsets"][1]])
            for name, entry in header.items()}
