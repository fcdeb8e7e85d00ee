#!/usr/bin/env python3
"""gen_swizzle.py DIR: writes DIR/msl_swizzle{2,3,4}.inc, the swizzles of a vector type.

One line each: MSL_P<components><W|R>(xyzw-name, rgba-name, indices...); W: no component occurs
twice, so it is assignable. msl_vec.h defines the macros."""
import itertools
import sys


def swizzles(width):
    xyzw, rgba = "xyzw"[:width], "rgba"[:width]
    for i in range(width):
        yield f"MSL_P1({xyzw[i]},{rgba[i]},{i})"
    for count in (2, 3, 4):
        for picks in itertools.product(range(width), repeat=count):
            names = ["".join(letters[i] for i in picks) for letters in (xyzw, rgba)]
            kind = "W" if len(set(picks)) == count else "R"
            yield f'MSL_P{count}{kind}({names[0]},{names[1]},{",".join(map(str, picks))})'


for n in (2, 3, 4):
    with open(f"{sys.argv[1]}/msl_swizzle{n}.inc", "w") as f:
        f.write("\n".join(swizzles(n)) + "\n")
