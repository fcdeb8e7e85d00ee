#!/usr/bin/env python3
"""Plants faults in the Metal backend's kernels and host code, one at a time, and counts how many its
tests catch: usage: tests/metal/mutants.py [--jobs N] [--only TEXT] [--list]

mutants_list.py lists the faults. The script works in copies of the tree below build/ and does not change
the tree itself. Tests run in the stand-in's plain mode; faults that survive run again in check mode. A
fault whose place is not in the sources exactly once, or that does not compile, is an error (exit 2):
correct the list. Exit 1: less than 95 % are caught."""
import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

from mutants_list import MUTANTS, TESTS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, "build", "mutants")
LEAST = 0.95
TIME_LIMIT = 600  # seconds of a test without a fault
SLOWER = 4  # a test with a fault may take SLOWER times as long, and COMPILE_S to compile its shaders
COMPILE_S = 300
INVALID = re.compile(r"the Metal compiler refused|program_source:\d+(:\d+)?: error")


def pattern_of(place):
    """Matches the tokens of place, however clang-format breaks its lines."""
    tokens = re.findall(r"\w+|\S", place)
    gaps = [r"\s+" if a[-1].isalnum() and b[0].isalnum() else r"\s*" for a, b in zip(tokens, tokens[1:])]
    return re.compile("".join(re.escape(t) + gap for t, gap in zip(tokens, gaps + [""])))


class Mutant:
    def __init__(self, path, place, fault, what):
        self.path, self.place, self.fault, self.what = path, place, fault, what
        self.verdict, self.seconds, self.output = None, 0, ""
        with open(os.path.join(ROOT, path)) as f:
            text = f.read()
        found = list(pattern_of(place).finditer(text))
        self.count = len(found)
        if found:
            begin, end = found[0].span()
            self.line = text[:begin].count("\n") + 1
            self.text = text[:begin] + fault + text[end:]


class Tree:
    """A copy of the sources and of the builds."""

    def __init__(self, number):
        self.path = os.path.join(WORK, str(number))
        shutil.rmtree(self.path, ignore_errors=True)
        names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).split(b"\0")
        for name in (n.decode() for n in names if n):
            source = os.path.join(ROOT, name)
            if os.path.isfile(source) and not name.startswith(("api/web/", "tests/http/")):
                target = os.path.join(self.path, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(source, target)
        for name in ("build", "build-metal"):
            shutil.copytree(os.path.join(ROOT, name), os.path.join(self.path, name), symlinks=True,
                            ignore=shutil.ignore_patterns("mutants", "cache", "check-*"))
        self.env = dict(os.environ, METALSIM_CACHE=os.path.join(WORK, "cache"),
                        METALSIM_CC=os.path.join(self.path, "tests/metal/standin/tools/metalcc"))

    def write(self, path, text):
        with open(os.path.join(self.path, path), "w") as f:
            f.write(text)

    def make(self, tests):
        # No mutant changes the plain build.
        targets = [f"build-metal/{t}" for t in tests]
        r = subprocess.run(["make", "-s", "METAL=standin", "-o", "metal-base", *targets],
                           cwd=self.path, env=self.env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
        return r.returncode == 0, r.stdout

    def run(self, test, mode, limit):
        """(whether it passed, its output)"""
        command = [f"build-metal/{test}"]
        if not test.startswith("test_standin_"):
            command += ["quick", "only=metal"]
        try:
            r = subprocess.run(command, cwd=self.path, env=dict(self.env, METALSIM_MODE=mode),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace",
                               timeout=limit)
        except subprocess.TimeoutExpired:
            return False, f"over {limit:.0f} s"
        return r.returncode == 0, r.stdout


def tests_of(path):
    for prefix, tests in TESTS:
        if path.startswith(prefix):
            return tests
    sys.exit(f"mutants: TESTS has no row for {path}")


def caught_by(output):
    """The first failing check, or the report of the stand-in."""
    m = re.search(r"^FAIL (\S+)", output, re.M)
    if m:
        return m.group(1)
    m = re.search(r"metalsim: (.*)|(cannot set up: .*)|(over \d+ s)", output)
    return (m.group(1) or m.group(2) or m.group(3))[:60] if m else "a crash"


def judge(tree, mutant, mode, good):
    """Sets the verdict: "TEST: CHECK", "SURVIVED", or "invalid". good: tests that pass without it."""
    start = time.time()
    original = open(os.path.join(tree.path, mutant.path)).read()
    tree.write(mutant.path, mutant.text)
    mutant.verdict = "SURVIVED"
    for test in (t for t in tests_of(mutant.path) if t in good):
        built, output = tree.make([test])
        if not built:
            mutant.verdict, mutant.output = "invalid", output
            break
        passed, output = tree.run(test, mode, SLOWER * good[test] + COMPILE_S)
        if INVALID.search(output):
            mutant.verdict, mutant.output = "invalid", output
            break
        if not passed:
            mutant.verdict = f"{test}, {mode}: {caught_by(output)}"
            break
    tree.write(mutant.path, original)
    mutant.seconds += time.time() - start


def in_parallel(trees, items, act):
    """Calls act(tree, item) for each item, on the next free tree."""
    todo = queue.Queue()
    for item in items:
        todo.put(item)

    def run(tree):
        while True:
            try:
                act(tree, todo.get_nowait())
            except queue.Empty:
                return

    threads = [threading.Thread(target=run, args=(t,)) for t in trees]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def baseline(trees, tests, mode):
    """The seconds that each test takes without a fault. Prints the tests that fail."""
    good = {}

    def run(tree, test):
        built, output = tree.make([test])
        start = time.time()
        passed, output = tree.run(test, mode, TIME_LIMIT) if built else (False, output)
        if passed:
            good[test] = time.time() - start
        else:
            print(f"{output[-1500:]}\nmutants: {test} fails in {mode} mode without a fault", flush=True)

    in_parallel(trees, tests, run)
    return good


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--only", default="", help="only faults with this text in their path or description")
    ap.add_argument("--list", action="store_true")
    args = ap.parse_args()
    mutants = [Mutant(*row) for row in MUTANTS]
    gone = [m for m in mutants if m.count != 1]
    for m in gone:
        print(f"mutants: {m.path}: {m.count} places match \"{m.what}\": {m.place!r}")
    if gone:
        return 2
    mutants = [m for m in mutants if args.only in f"{m.path} {m.what}"]
    if args.list:
        for m in mutants:
            print(f"{m.path}:{m.line}: {m.what}")
        return 0
    subprocess.run(["make", "-s", "METAL=standin", "build-metal/libmetal.a", "build/libinferd.a"],
                   cwd=ROOT, check=True)
    trees = [Tree(i) for i in range(max(1, min(args.jobs, len(mutants))))]
    healthy = True
    for mode in ("plain", "check"):
        left = [m for m in mutants if m.verdict in (None, "SURVIVED")]
        tests = sorted({t for m in left for t in tests_of(m.path)})
        good = baseline(trees, tests, mode)
        healthy = healthy and len(good) == len(tests)

        def run(tree, item):
            i, mutant = item
            judge(tree, mutant, mode, good)
            print(f"[{mode} {i + 1}/{len(left)}] {mutant.path}:{mutant.line} {mutant.what}: "
                  f"{mutant.verdict} ({mutant.seconds:.0f} s)", flush=True)
            if mutant.verdict == "invalid":
                print(mutant.output[-2000:], flush=True)

        in_parallel(trees, list(enumerate(left)), run)
    shutil.rmtree(WORK, ignore_errors=True)
    rc = report(mutants)
    return rc if healthy else 2


def report(mutants):
    width = max(len(f"{m.path}:{m.line}") for m in mutants)
    print()
    for m in mutants:
        print(f"{m.path + ':' + str(m.line):{width}}  {m.what:58}  {m.verdict}")
    invalid = [m for m in mutants if m.verdict == "invalid"]
    survived = [m for m in mutants if m.verdict == "SURVIVED"]
    caught = len(mutants) - len(invalid) - len(survived)
    print(f"\nmutants: {caught} of {len(mutants)} caught ({100 * caught / len(mutants):.1f} %), "
          f"{len(survived)} survived, {len(invalid)} invalid")
    if invalid:
        return 2
    return 0 if caught >= LEAST * len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
