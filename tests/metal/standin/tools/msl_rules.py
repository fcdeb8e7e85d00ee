"""msl_rules.py: checks rules of the Metal Shading Language that a C++ compiler does not check.

Source of the rules: Metal Shading Language Specification 3.1, "Metal and C++" (1.5.4), address
spaces (4), function arguments (5.2)."""
import re

# Not in the language. The value is the message.
FORBIDDEN = {
    "double": "double is not an MSL type",
    "throw": "'throw': exceptions not in MSL",
    "try": "'try': exceptions not in MSL",
    "catch": "'catch': exceptions not in MSL",
    "new": "'new': operator new not in MSL",
    "delete": "'delete': operator delete not in MSL",
    "virtual": "'virtual': virtual functions not in MSL",
    "dynamic_cast": "'dynamic_cast': RTTI not in MSL",
    "typeid": "'typeid': RTTI not in MSL",
    "goto": "'goto': goto not in MSL",
    "thread_local": "'thread_local': thread_local not in MSL",
    "register": "'register': register not in MSL",
    "noexcept": "'noexcept': noexcept not in MSL",
    "asm": "'asm': inline assembly not in MSL",
    "__asm__": "'__asm__': inline assembly not in MSL",
    "std": "'std': the C++ standard library not in MSL",
    "printf": "'printf': printf not in MSL",
    "malloc": "'malloc': heap not in MSL",
    "free": "'free': heap not in MSL",
    "wchar_t": "'wchar_t': wchar_t not in MSL",
    "fragment": "'fragment' is a keyword of MSL (a fragment function)",
    "vertex": "'vertex' is a keyword of MSL (a vertex function)",
}
SPACES = {
    "device", "threadgroup", "thread", "constant", "threadgroup_imageblock", "object_data",
    "ray_data",
}
# In one kernel all of these have the same number of components (5.2.3.6).
DIMENSIONED = {
    "thread_position_in_grid", "threads_per_grid", "thread_position_in_threadgroup",
    "threads_per_threadgroup", "threadgroup_position_in_grid", "threadgroups_per_grid",
}
SCALAR = {
    "thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup", "threads_per_simdgroup", "thread_execution_width",
    "quadgroup_index_in_threadgroup", "thread_index_in_quadgroup",
}
# Attribute -> address of its components in an entry (launch record L, msl_rt.h).
BUILTIN = {
    "thread_position_in_grid": "msl::tpig(L).v",
    "threadgroup_position_in_grid": "L->tgpig",
    "thread_position_in_threadgroup": "msl_rt_pos()->tpitg",
    "thread_index_in_threadgroup": "&msl_rt_pos()->tiitg",
    "thread_index_in_simdgroup": "&msl_rt_pos()->tiisg",
    "simdgroup_index_in_threadgroup": "&msl_rt_pos()->sgitg",
    "threads_per_threadgroup": "L->ntptg",
    "dispatch_threads_per_threadgroup": "L->dntptg",
    "threadgroups_per_grid": "L->ntg",
    "threads_per_grid": "L->grid",
    "grid_size": "L->grid",
    "threads_per_simdgroup": "(const uint32_t[]){32}",
    "thread_execution_width": "(const uint32_t[]){32}",
    "simdgroups_per_threadgroup": "&msl_rt_pos()->nsg",
    "dispatch_simdgroups_per_threadgroup": "&msl_rt_pos()->nsg",
}
MAX_BUFFER = 30


def check_words(src):
    v = src.v
    for i, t in enumerate(v):
        before = v[i - 1].s if i else ""
        member = before in (".", "->") or (before == "=" and t.s == "delete")
        if t.kind == "id" and t.s in FORBIDDEN and not member:
            src.err(t, FORBIDDEN[t.s])
        if i + 1 == src.n:
            break
        if t.s == "long" and v[i + 1].s in ("long", "double"):
            src.err(t, f"long {v[i + 1].s} is not an MSL type")
        if t.s == "[" and before in ("=", "(", ",", "return") and v[i + 1].s in ("]", "&", "="):
            src.err(t, "lambda expressions are not in MSL")
        if src.words(i, i + 2) == ["(", "*"] and src.words(i + 3, i + 5) == [")", "("]:
            src.err(t, "function pointers are not in MSL without [[visible]] functions")


def check_parameters(src, name, params):
    for plain, _ in params:
        words = [t.s for t in plain]
        if {"*", "&"} & set(words) and not SPACES & set(words):
            shown = " ".join(words)
            src.err(plain[0], f"pointer or reference parameter '{shown}' has no address space")
        if "..." in words:
            src.err(name, "variadic functions are not in MSL")


def check_slot(src, plain, slot, index, seen):
    """A [[buffer(index)]] or [[threadgroup(index)]] parameter."""
    words = [t.s for t in plain]
    if (slot, index) in seen:
        src.err(plain[0], f"{slot}({index}) is used twice")
    seen.add((slot, index))
    if words.count("*") + words.count("&") != 1 and "[" not in words:
        src.err(plain[0], f"{slot}({index}) must be a pointer or a reference to data")
    if slot == "buffer" and index.isdigit() and int(index) > MAX_BUFFER:
        src.err(plain[0], f"buffer index above {MAX_BUFFER}")


def check_kernel_parameters(src, name, params):
    seen, dimensions = set(), {}
    for plain, attributes in params:
        words, names = [t.s for t in plain], dict(attributes)
        for slot in ("buffer", "threadgroup"):
            if slot in names:
                check_slot(src, plain, slot, names[slot], seen)
        kind = next((w for w in words if re.fullmatch(r"u?(int|short)[234]?", w)), None)
        for a in names:
            if a in BUILTIN and not kind:
                src.err(plain[0], f"[[{a}]] needs uint or ushort, or vectors of them")
            elif kind and a in DIMENSIONED:
                dimensions[a] = kind[-1] if kind[-1].isdigit() else "1"
            elif kind and a in SCALAR and kind[-1].isdigit():
                src.err(plain[0], f"[[{a}]] is a scalar")
    if len(set(dimensions.values())) > 1:
        src.err(name, "grid and threadgroup positions have different numbers of components: "
                f"{dimensions}")


def reachable(graph, name):
    """The names that name mentions, directly and indirectly."""
    seen, todo = set(), [name]
    while todo:
        for m in graph.get(todo.pop(), ()):
            if m in graph and m not in seen:
                seen.add(m)
                todo.append(m)
    return seen


def check_recursion(src, graph, n_definitions):
    for f in graph:
        names = reachable(graph, f)
        # Overloads share a name: a call of another overload would look like recursion.
        if f in names and all(n_definitions.get(g, 1) == 1 for g in names | {f}):
            src.errors.append(f"{src.name}: error: function '{f}' is recursive; MSL forbids "
                              "recursion [msl]")
