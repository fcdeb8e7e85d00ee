"""metal_ir - kernels with fixed function constants as optimised LLVM IR, as a device's compiler sees them. For
metalarrays and metalcycles."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", "..", ".."))


def run(command):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {' '.join(command[:3])}\n{r.stdout}")
    return r.stdout


def translate(source, folder):
    """The source as C++ for OpenCL, the names of its kernels and of its function constants."""
    flat, out = os.path.join(folder, "flat.metal"), os.path.join(folder, "out.cl")
    with open(flat, "w") as f:
        f.write(run([os.path.join(ROOT, "scripts/embed-metal"), "--flat", source]))
    run([sys.executable, os.path.join(HERE, "mslc.py"), flat, "-o", out, "--check", "--hints", "--name",
         os.path.basename(source)])
    with open(flat) as f:
        text = f.read()
    renamed = dict(re.findall(r"^#define (\w+) (\w+)$", text, re.M))
    kernels = [renamed.get(k, k) for k in re.findall(r"\bkernel\s+void\s+(\w+)\s*\(", text)]
    constants = re.findall(r"constant\s+uint\s+(\w+)\s*\[\[function_constant", text)
    return out, kernels, constants


# Inlining of all calls, full unrolling where it is asked for, and what folds the subscripts that remain: less than
# any device's compiler does, at a quarter of the time of clang -O2.
FOLD = "sroa,early-cse,simplifycfg"
PASSES = (f"function({FOLD}),cgscc(inline),function({FOLD},sccp,loop(loop-rotate),instcombine,loop-simplify,"
          f"loop(indvars,loop-unroll-full),{FOLD})")


def optimise(path, values, more=""):
    """The LLVM IR of all kernels with these function constants; more: passes after the usual ones."""
    clang, opt = os.environ.get("MSL_CLANG", "clang"), os.environ.get("MSL_OPT", "opt")
    unit = path + ".bc"
    run([clang, "-x", "clcpp", "-cl-std=clc++2021", "-target", "spir64-unknown-unknown", "-cl-no-stdinc",
         "-Xclang", "-cl-ext=+cl_khr_fp16,-cl_khr_fp64,-__opencl_c_fp64", "-O2", "-Xclang", "-disable-llvm-passes",
         "-c", "-emit-llvm", "-o", unit, "-isystem", os.path.join(HERE, "..", "msl", "check"), "-w", "-DMSL_IR",
         *[f"-DMSL_CONST_{n}={v}u" for n, v in values.items()], path])
    return run([opt, "-S", "-passes", PASSES + more, "-inline-threshold=100000", "-unroll-threshold=1", "-o", "-", unit])


def functions(ir):
    """The kernels' bodies by name."""
    found = {}
    for m in re.finditer(r"^define [^\n]*@_Z(\d+)(\w+)[^\n]*\{\n(.*?)^\}", ir, re.M | re.S):
        found[m.group(2)[:int(m.group(1))]] = m.group(3)
    return found
