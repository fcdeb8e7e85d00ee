#!/usr/bin/env python3
"""mslc.py IN.metal -o OUT.cpp [--clang CLANG] [--name NAME] [--check [--hints]] [-D...]

Translates a Metal source to executable C++, which metalcc compiles:
1 clang -E expands the user's macros and conditionals; the <metal_*> headers are empty here;
2 msl_rules.py reports violations of MSL that C++ would accept;
3 msl_program.py rewrites the three constructs that have no C++ spelling;
4 msl_emit.py appends an entry for each kernel and the reflection tables.
Line markers are kept, so that messages and reports name lines of the .metal file. With --check the
output is for the address-space pass (metalcheck) and has no entries; with --hints it keeps the
requests to unroll loops and takes function constants from macros MSL_CONST_NAME (metalarrays)."""
import argparse
import sys

import msl_emit
import msl_program
import msl_rules
import msl_source


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("src")
    ap.add_argument("-o", dest="out", required=True)
    ap.add_argument("--clang", default="clang")
    ap.add_argument("-D", action="append", default=[], dest="defines")
    ap.add_argument("--name", help="name of the source in messages")
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--hints", action="store_true")
    a = ap.parse_args()
    name = a.name or a.src
    src = msl_source.Source(msl_source.preprocess(a.clang, a.src, name, a.defines), name)
    msl_rules.check_words(src)
    program = msl_program.Program(src, a.check, a.hints)
    program.walk()
    msl_rules.check_recursion(src, program.graph, program.n_definitions)
    text = msl_emit.body(src, a.check, a.hints)
    if not a.check:
        text += msl_emit.entries(src, program)
    if src.errors:
        sys.stderr.write("\n".join(src.errors) + "\n")
        return 1
    with open(a.out, "w") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
