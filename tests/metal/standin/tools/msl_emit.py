"""msl_emit.py: writes the output: the source's tokens with their rewrites, then one entry per
kernel and the reflection tables of runtime/msl_rt.h."""
import os
import re

import msl_rules

HEAD = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n"
VECTOR = re.compile(r"(u?char|u?short|u?int|u?long|half|float|bfloat)[234]")
FLOAT = re.compile(r"(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def rewrite_common(src, hints):
    for i, t in enumerate(src.v):
        # C++ does not know these attributes; macros would be expanded inside them.
        if t.s == "[[" and t.out == "[[" and src.v[i + 1].kind == "id":
            src.blank(i, src.close(i) + 1)
        # A floating literal is a float in MSL (-cl-single-precision-constant does not reach
        # templates).
        if t.kind == "num" and FLOAT.fullmatch(t.s):
            t.out = t.s + "f"
    for t in src.all:  # hints, copied without macro expansion
        dropped = r"#\s*pragma\s+METAL" if hints else r"#\s*pragma\s+(unroll|METAL|clang loop)"
        if t.kind == "cpp" and re.match(dropped, t.s):
            t.out = ""


def rewrite_for_check(src):
    """Rewrites what C++ for OpenCL reads differently: 1.0h, (float4)x, vec<T, 4>(...)."""
    v = src.v
    for t in v:
        m = re.fullmatch(r"(.*\d\.?)(h|bf)", t.out) if t.kind == "num" else None
        if m and not t.s.startswith("0x"):
            suffix = "f" if "." in m.group(1) or "e" in m.group(1) else ""
            t.out = f"((half){m.group(1)}{suffix})"
    for i, t in enumerate(v[:-3]):
        if t.s != "(" or not VECTOR.fullmatch(v[i + 1].s) or v[i + 2].s != ")":
            continue
        before = v[i - 1] if i else None
        operand = before and ((before.kind == "id" and before.s != "return") or
                              before.s in (")", "]", ">"))
        if not operand and v[i + 3].s not in (")", ";", ","):
            t.out, v[i + 2].out = "msl_c<", ">() ->* "
    for i, t in enumerate(v):
        if t.s == "vec" and v[i + 1].s == "<":
            e = src.angle(i + 1)
            if v[e + 1].s == "(" and v[e].s == ">":
                t.out = "msl_make<" + t.out
                v[e].out += ">"


def body(src, check, hints=False):
    rewrite_common(src, hints)
    if check:
        rewrite_for_check(src)
    return HEAD + "".join(t.out for t in src.all)


def arguments(src, q, kernel):
    """The entry's call arguments and the argument table of kernel number q."""
    call, table = [], []
    # Buffers without an attribute get the free indices in order, as with Apple's compiler.
    taken = {dict(at)["buffer"] for _, at in kernel["params"] if "buffer" in dict(at)}
    free = (str(i) for i in range(msl_rules.MAX_BUFFER + 1) if str(i) not in taken)
    for x, (plain, attributes) in enumerate(kernel["params"]):
        kind, names, words = f"F{q}::arg<{x}>", dict(attributes), {t.s for t in plain}
        if not names and {"device", "constant"} & words:
            names["buffer"] = next(free)
        if not names and "threadgroup" in words:
            names["threadgroup"] = "0"
        name = next((p.s for p in reversed(plain) if p.kind == "id"), "?")
        if "buffer" in names or "threadgroup" in names:
            tg = "threadgroup" in names
            index = names["threadgroup" if tg else "buffer"]
            call.append(f'msl::par<{kind}>::get(L->{"tg" if tg else "buf"}[{index}])')
            pointee = f"msl::par<{kind}>::obj"
            space = " | 2" if "constant" in words else ""
            table.append(f"{{{2 if tg else 1}, {index}, msl::par<{kind}>::ref, "
                         f'msl::cst<{pointee}>::v{space}, msl::size<{pointee}>::v, "{name}"}}')
            continue
        builtin = next((a for a in names if a in msl_rules.BUILTIN), None)
        if builtin is None:
            src.errors.append(f"{src.name}:{plain[0].line}: error: kernel '{kernel['name']}': "
                              f"parameter '{name}' has no known attribute [msl]")
            continue
        call.append(f"msl::bi<{kind}>::get({msl_rules.BUILTIN[builtin]})")
        table.append(f'{{3, 0, 0, 0, 0, "{name}"}}')
    return call, table


def entries(src, program):
    index_of = {name: index for name, _, index in program.constants}
    out = [f'\n#line 1 "{os.path.basename(src.name)}.entries"\n',
           "namespace msl_gen {\nusing namespace metal;\n"]
    kernels = []
    for q, kernel in enumerate(program.kernels):
        out.append(f'typedef msl::fn<decltype(&::{kernel["callee"]})> F{q};\n')
        call, table = arguments(src, q, kernel)
        used = sorted(f for f in msl_rules.reachable(program.graph, kernel["fn"]) if f in index_of)
        indices = ", ".join(index_of[u] for u in used) or "0"
        out.append(f"static void e{q}(const msl_launch *L) "
                   f'{{ (void)L; ::{kernel["callee"]}({", ".join(call)}); }}\n')
        out.append(f'static const msl_arg_desc a{q}[] = {{{", ".join(table) or "{}"}}};\n')
        out.append(f"static const uint16_t f{q}[] = {{{indices}}};\n")
        threads = dict(kernel["attrs"]).get("max_total_threads_per_threadgroup", "0")
        kernels.append(f'{{"{kernel["name"]}", msl_gen::e{q}, msl_gen::a{q}, '
                       f'{len(kernel["params"])}, msl_gen::f{q}, {len(used)}, {threads}, '
                       f'(const void *)&::{kernel["callee"]}, &msl::tg_vars}}')
    constants = [f'{{{index}, "{name}", "{kind}"}}' for name, kind, index in program.constants]
    out.append('}\nextern "C" {\n')
    out += table_of("msl_kernel_desc", "msl_kernels", "msl_nkernels", kernels)
    out += table_of("msl_fc_desc", "msl_fcs", "msl_nfcs", constants)
    out.append("}\n")
    return "".join(out)


def table_of(kind, name, count, rows):
    return [f"extern const {kind} {name}[]; const {kind} {name}[] = "
            f'{{{", ".join(rows) or "{}"}}};\n',
            f"extern const unsigned {count}; const unsigned {count} = {len(rows)};\n"]
