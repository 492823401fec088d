"""Buffers: arrays, bytearrays that grow and shrink, packed structs, slices.
The argument is how many blocks of 8 MiB there are."""

import array
import random
import struct
import sys
import zlib

BLOCK = 8 << 20
blocks = int(sys.argv[1])
draw = random.Random(2)


def show(what, buffers):
    total = 0
    for buffer in buffers:
        total = zlib.crc32(memoryview(buffer).cast("B"), total)
    print(what, f"{total:08x}", flush=True)


numbers = [array.array("q", range(i, i + BLOCK // 64)) * 8 for i in range(blocks // 2)]
show("numbers", numbers)

# A sixteenth of each block is random, the rest text-like.
texts = []
for i in range(blocks - blocks // 2):
    text = bytearray(draw.randbytes(BLOCK // 16))
    text += (b"%08d the same line, nearly; " % i) * (BLOCK // 16 * 15 // 32)
    texts.append(text)
show("texts", texts)

record = struct.Struct("<IQd8s")
for i in range(blocks * 4000):
    text = texts[draw.randrange(len(texts))]
    record.pack_into(text, draw.randrange(len(text) - record.size), i, i * i, i / 3, b"%08d" % i)
show("packed", texts)

for i, text in enumerate(texts):
    if i % 3 == 0:
        del text[BLOCK // 8 : BLOCK // 4]
    elif i % 3 == 1:
        text[BLOCK // 2 : BLOCK // 2] = bytes(BLOCK // 8)
    else:
        text.extend(text[: BLOCK // 8])
show("resized", texts)

for values in numbers:
    values.reverse()
    values[1000:2000] = array.array("q", range(500))
    values.byteswap()
show("reversed", numbers)
joined = b"".join(memoryview(text)[: BLOCK // 16] for text in texts)
show("joined", [joined])
show("texts again", texts)
show("numbers again", numbers)
