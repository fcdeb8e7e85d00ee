#!/usr/bin/env python3
"""Plants faults in the Metal backend's kernels and host code, one at a time, and counts how many its
tests catch: usage: tests/metal/mutants.py [--jobs N] [--only EXPRESSION] [--since COMMIT] [--list]

mutants_*.py list the faults. The script works in copies of the tree below build/ and does not change
the tree itself. A test ends at its first failure. Tests run in the stand-in's plain mode; faults that
survive run again in check mode. A fault whose place is not in the sources exactly once, or that does not
compile, is an error (exit 2): correct the list. Exit 1: less than 97 % are caught, or one survives
without a reason in the list."""
import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

from mutants_language import LANGUAGE
from mutants_launch import LAUNCH
from mutants_list import METERS, MUTANTS, TESTS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, "build", "mutants")
LEAST = 0.97
TIME_LIMIT = 600  # seconds of a test without a fault
SLOWER = 4  # a test with a fault may take SLOWER times as long, and COMPILE_S to compile its shaders
COMPILE_S = 300
INVALID = re.compile(r"the Metal compiler re(fus|ject)ed|program_source:\d+(:\d+)?: error")
FAILED = re.compile(r"^  (\S+:\d+): CHECK|^FAIL (.*)", re.M)  # a failure; the test need not go on

CHECKED = re.compile("guard|barrier")  # faults that plain mode hardly shows: they go to check mode at once


def pattern_of(place):
    """Matches the tokens of place, however clang-format breaks its lines."""
    tokens = re.findall(r"\w+|\S", place)
    gaps = [r"\s+" if a[-1].isalnum() and b[0].isalnum() else r"\s*" for a, b in zip(tokens, tokens[1:])]
    return re.compile("".join(re.escape(t) + gap for t, gap in zip(tokens, gaps + [""])))


class Mutant:
    def __init__(self, path, place, fault, what, reason="", static=False):
        self.path, self.place, self.fault, self.what = path, place, fault, what
        self.reason, self.static = reason, static
        self.verdict, self.seconds, self.output = None, 0, ""
        self.modes = ["plain"] if static else ["check"] if CHECKED.search(what) else ["plain", "check"]
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
        """(whether it passed, its output up to the first failure)"""
        command = [f"build-metal/{test}"]
        if not test.startswith("test_standin_"):
            command += ["quick", "only=metal"]
        return self.watch(command, limit, METALSIM_MODE=mode)

    def check(self, path):
        """(whether the static passes accept the file, their output)"""
        passes = ["language", "arrays"] if path.endswith(".metal") else ["apple", "analyzer"]
        return self.watch(["scripts/check-metal", "accept", path, *passes], TIME_LIMIT)

    def watch(self, command, limit, **env):
        process = subprocess.Popen(command, cwd=self.path, env=dict(self.env, **env), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
        timer = threading.Timer(limit, process.kill)
        timer.start()
        output = ""
        for line in process.stdout:
            output += line
            if FAILED.search(line):
                process.kill()
                break
        output += process.stdout.read()
        late = not timer.is_alive()
        timer.cancel()
        if late:
            output += f"over {limit:.0f} s"
        passed = process.wait() == 0 and not late and not FAILED.search(output)
        return passed, output


def tests_of(mutant):
    for prefix, tests in TESTS:
        if mutant.path.startswith(prefix):
            return tests[:1] if mutant.static else tests
    sys.exit(f"mutants: TESTS has no row for {mutant.path}")


def caught_by(output):
    """The first failing check, or the report of the stand-in."""
    m = FAILED.search(output)
    if m:
        return m.group(1) or m.group(2)
    m = re.search(r"metalsim: (.*)|(cannot set up: .*)|(over \d+ s)", output)
    return (m.group(1) or m.group(2) or m.group(3))[:60] if m else "a crash"


def judge(tree, mutant, mode, good):
    """Sets the verdict: "TEST: CHECK", "SURVIVED", or "invalid". good: tests that pass without it."""
    start = time.time()
    original = open(os.path.join(tree.path, mutant.path)).read()
    tree.write(mutant.path, mutant.text)
    mutant.verdict = "SURVIVED"
    accepted, output = tree.check(mutant.path) if mutant.static else (True, "")
    if not accepted:
        mutant.verdict = f"check-metal: {caught_by(output)}"
    for test in (t for t in tests_of(mutant) if t in good and accepted):
        built, output = tree.make([test])
        if not built:
            mutant.verdict, mutant.output = "invalid", output
            break
        passed, output = tree.run(test, mode, SLOWER * good[test] + COMPILE_S)
        # That the compiler refuses a kernel is what a fault in its options looks like.
        if INVALID.search(output) and mutant.path.startswith("shaders/") and not mutant.static:
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


def faults_at(commit):
    """(path, place, fault) of each fault of that commit's lists."""
    names = {}
    for name in ("mutants_list.py", "mutants_launch.py", "mutants_language.py"):
        show = ["git", "show", f"{commit}:tests/metal/{name}"]
        exec(subprocess.run(show, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout, names)
    return {row[:3] for n in ("MUTANTS", "LAUNCH", "LANGUAGE") for row in names.get(n, [])}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--only", default="", help="only faults whose path or description this expression matches")
    ap.add_argument("--since", help="only faults that the list of this commit lacks")
    ap.add_argument("--list", action="store_true")
    args = ap.parse_args()
    mutants = [Mutant(*row) for row in MUTANTS + LAUNCH] + [Mutant(*row, static=True) for row in LANGUAGE]
    gone = [m for m in mutants if m.count != 1]
    for m in gone:
        print(f"mutants: {m.path}: {m.count} places match \"{m.what}\": {m.place!r}")
    if gone:
        return 2
    mutants = [m for m in mutants if re.search(args.only, f"{m.path} {m.what}")]
    if args.since:
        old = faults_at(args.since)
        mutants = [m for m in mutants if (m.path, m.place, m.fault) not in old]
    if args.list:
        for m in mutants:
            print(f"{m.path}:{m.line}: {m.what}")
        return 0
    subprocess.run(["make", "-s", "METAL=standin", "build-metal/libmetal.a", "build/libinferd.a"],
                   cwd=ROOT, check=True)
    trees = [Tree(i) for i in range(max(1, min(args.jobs, len(mutants))))]
    for mode in ("plain", "check"):
        left = [m for m in mutants if m.verdict in (None, "SURVIVED") and mode in m.modes]
        tests = sorted({t for m in left for t in tests_of(m)} - (METERS if mode == "plain" else set()))
        good = baseline(trees, tests, mode)
        if len(good) < len(tests):
            return 2

        def run(tree, item):
            i, mutant = item
            judge(tree, mutant, mode, good)
            print(f"[{mode} {i + 1}/{len(left)}] {mutant.path}:{mutant.line} {mutant.what}: "
                  f"{mutant.verdict} ({mutant.seconds:.0f} s)", flush=True)
            if mutant.verdict == "invalid":
                print(mutant.output[-2000:], flush=True)

        in_parallel(trees, list(enumerate(left)), run)
    shutil.rmtree(WORK, ignore_errors=True)
    return report(mutants)


def report(mutants):
    width = max(len(f"{m.path}:{m.line}") for m in mutants)
    print()
    for m in mutants:
        print(f"{m.path + ':' + str(m.line):{width}}  {m.what:58}  {m.verdict}")
    invalid = [m for m in mutants if m.verdict == "invalid"]
    survived = [m for m in mutants if m.verdict == "SURVIVED"]
    caught = len(mutants) - len(invalid) - len(survived)
    print()
    for m in survived:
        print(f"mutants: survived: {m.what}: {m.reason or 'NO REASON: write a test, or say why'}")
    for m in mutants:
        if m.reason and m not in survived:
            print(f"mutants: caught, though the list has a reason why not: {m.what}")
    print(f"mutants: {caught} of {len(mutants)} caught ({100 * caught / len(mutants):.1f} %), "
          f"{len(survived)} survived, {len(invalid)} invalid, {sum(m.seconds for m in mutants) / 60:.0f} minutes")
    if invalid:
        return 2
    return 0 if caught >= LEAST * len(mutants) and all(m.reason for m in survived) else 1


if __name__ == "__main__":
    sys.exit(main())
