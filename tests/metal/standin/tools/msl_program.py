"""msl_program.py: walks a source's program scope; finds kernels, function constants and the
identifiers that each definition mentions; rewrites what has no C++ spelling: function constants,
threadgroup variables, explicit instantiations with [[host_name]]."""
import msl_rules


class Program:
    """kernels: dicts (name, callee, params, line, attrs, fn); constants: (name, type, index);
    graph: name -> the identifiers in its definition; n_definitions: name -> number of bodies.
    check: rewrites for the address-space pass instead of the executable build; fixed: function
    constants get the values of macros MSL_CONST_NAME."""

    def __init__(self, src, check, fixed=False):
        self.src, self.v, self.check, self.fixed = src, src.v, check, fixed
        self.kernels, self.constants, self.templates = [], [], {}
        self.graph, self.n_definitions = {}, {}
        self.kernel_names = self.find_kernel_names()
        self.start = 0  # of the current declaration
        self.template = None  # index of its closing >, if it is a template
        self.template_names = []  # of its parameters
        self.n_threadgroup_variables = 0
        self.attributes = []  # before the declaration

    def find_kernel_names(self):
        names = set()
        for i, t in enumerate(self.v):
            if t.s != "kernel":
                continue
            for j in range(i, min(i + 12, self.src.n)):
                if self.v[j].s == "(":
                    names.add(self.v[j - 1].s)
                    break
        return names

    def walk(self):
        i = 0
        while i < self.src.n:
            i = self.step(i)

    def begin_declaration(self, i):
        self.start, self.template, self.attributes = i, None, []
        return i

    def step(self, i):
        """Handles the declaration at token i; returns the index after it."""
        src, t = self.src, self.v[i]
        at_start = i == (self.start if self.template is None else self.template + 1)
        if t.s == "namespace":
            self.start = src.find_plain(i, ("{", ";")) + 1
            return self.start
        if t.s in ("}", ";"):
            return self.begin_declaration(i + 1)
        if t.s == "template" and self.v[i + 1].s == "<":
            self.template = src.angle(i + 1)
            self.template_names = self.parameter_names(i + 2, self.template)
            return self.template + 1
        if t.s == "template":
            return self.instantiation(i)
        if t.s == "[[" and at_start:
            return self.leading_attributes(i)
        if t.s in ("struct", "class", "enum", "union"):
            return self.record(i)
        if t.s == "constant" and i == self.start:
            end = self.constant(i)
            if end is not None:
                return end
        if t.s == "=" and self.v[i - 1].s != "operator":
            return self.initialiser(i)
        if t.s == "(":
            return self.function(i)
        return i + 1

    def parameter_names(self, a, b):
        """The names of the template parameters v[a:b]: typename T, int N = 4 -> T, N."""
        names = []
        for lo, hi in self.src.split(a, b):
            words = self.src.words(lo, hi)
            names.append(words[(words + ["="]).index("=") - 1])
        return names

    def leading_attributes(self, i):
        end = self.src.close(i)
        _, self.attributes = self.src.parameter(i, end + 1)
        if any(a == "kernel" for a, _ in self.attributes):
            self.v[i].out = "[[maybe_unused]]"
        return end + 1

    def instantiation(self, i):
        """Parses template [[host_name("x")]] kernel void f<T>(...);"""
        src, v, j, host = self.src, self.v, i + 1, None
        if v[j].s == "[[":
            end = src.close(j)
            _, attributes = src.parameter(j, end + 1)
            host = next((a.strip('"') for n, a in attributes if n == "host_name"), None)
            j = end + 1
        end = src.find(j, (";",))
        if v[j].s != "kernel":
            return end
        for k in range(j + 1, end):
            if v[k].s in self.templates and v[k + 1].s == "<":
                kernel = dict(self.templates[v[k].s])
                kernel.update(name=host or v[k].s, line=v[i].line,
                              callee=src.text(k, src.angle(k + 1) + 1))
                self.kernels.append(kernel)
                break
        else:
            src.err(v[i], "explicit instantiation of an unknown kernel template")
        src.blank(i, end)
        return end

    def record(self, i):
        src, v = self.src, self.v
        j = src.find_plain(i, ("{", ";", "("))
        if v[j].s == "{":
            if v[i].s in ("struct", "class") and ":" in src.words(i, j):
                src.err(v[i], "derived classes are not in MSL")
            return src.close(j) + 1
        return j if v[j].s == ";" else i + 1

    def constant(self, i):
        """Parses constant T name [[function_constant(n)]] or constant T name = ...; None: neither."""
        src, v = self.src, self.v
        j = i
        while v[j].s not in (";", "=", "[[", "{"):
            j = src.close(j) + 1 if v[j].s == "[" else j + 1
        if v[j].s == "[[":
            end = src.close(j)
            _, attributes = src.parameter(j, end + 1)
            index = dict(attributes).get("function_constant")
            if index is None:
                return None
            self.function_constant(i, j, end, index)
            return end + 1
        if v[j].s != "=":
            return None
        end = src.find(j, (";",))
        k = j - 1  # the name precedes its dimensions
        while v[k].s in ("]", "[") or v[k].kind == "num" or v[k - 1].s == "[":
            k -= 1
        self.graph[v[k].s] = {t.s for t in v[j:end] if t.kind == "id"}
        return end

    def function_constant(self, i, j, end, index):
        name, kind = self.v[j - 1].s, self.src.text(i + 1, j - 1)
        self.constants.append((name, kind, index))
        self.graph[name] = set()
        self.src.blank(i, end + 1)
        if self.fixed:
            self.v[i].out = f"constant constexpr {kind} {name} = MSL_CONST_{name}"
        elif self.check:
            self.v[i].out = f"extern constant {kind} {name}"
        else:
            self.v[i].out = (f"static const {kind} {name} = ::msl::fc<{kind}>({index}); "
                             f"static const bool msl_fcdef_{name} = ::msl::fc_set({index})")

    def initialiser(self, i):
        v, words = self.v, set(self.src.words(self.start, i))
        if self.template is None and not {"constant", "using", "typedef"} & words:
            self.src.err(v[i - 1], f"program-scope variable '{v[i - 1].s}' is not in the constant "
                         "address space")
        return self.src.find(i, (";",))

    def function_name(self, i):
        """Handles the function whose parameter list opens at i."""
        v, q, depth = self.v, i - 1, 0
        if v[q].s != ">":
            return v[q].s
        while q > self.start:  # an explicit specialisation: f<T>(
            depth += {">": 1, ">>": 2, "<": -1}.get(v[q].s, 0)
            if depth == 0:
                break
            q -= 1
        return v[q - 1].s

    def function(self, i):
        src, v = self.src, self.v
        end = src.close(i)
        body = end + 2 if v[end + 1].s == "const" else end + 1
        if body >= src.n or v[body].s != "{":
            return end + 1
        name = self.function_name(i)
        params = [src.parameter(a, b) for a, b in src.split(i + 1, end)]
        msl_rules.check_parameters(src, v[i - 1], params)
        if "kernel" in src.words(self.start, i) and v[i - 2].s == "void":
            self.kernel(i, name, params)
        close = src.close(body)
        self.scan_body(body, close + 1, name)
        for plain, _ in params:
            self.graph[name] |= {t.s for t in plain if t.kind == "id"}
        return self.begin_declaration(close + 1)

    def kernel(self, i, name, params):
        msl_rules.check_kernel_parameters(self.src, self.v[i - 1], params)
        kernel = dict(name=name, callee=name, params=params, line=self.v[i].line,
                      attrs=self.attributes, fn=name)
        host = dict(self.attributes).get("host_name")
        if host:
            kernel["name"] = host.strip('"')
        if self.template is None:
            self.kernels.append(kernel)
        else:
            self.templates[name] = kernel

    def scan_body(self, a, b, name):
        """The function body v[a:b]: records its identifiers, rewrites threadgroup variables."""
        names = self.graph.setdefault(name, set())
        self.n_definitions[name] = self.n_definitions.get(name, 0) + 1
        i, start = a, True
        while i < b:
            t = self.v[i]
            if t.kind == "id":
                names.add(t.s)
            if start and t.s == "threadgroup":
                end = self.threadgroup_variable(i, name)
                if end:
                    names |= {x.s for x in self.v[i:end] if x.kind == "id"}
                    i, start = end, True
                    continue
            if start and t.s == "static":
                self.src.err(t, "static variables in functions are not in MSL")
            if start and i + 3 < b:
                self.check_local_pointer(i)
            start = t.s in (";", "{", "}")
            i += 1

    def check_local_pointer(self, i):
        v = self.v
        if v[i].kind != "id" or v[i].s in msl_rules.SPACES:
            return
        k = i + (v[i].s == "const")
        declares = (v[k].kind == "id" and v[k].s != "return" and v[k + 1].s in ("*", "&") and
                    v[k + 2].kind == "id" and v[k + 3].s in ("=", ";"))
        if declares:
            self.src.err(v[i], f"pointer or reference '{v[k + 2].s}' has no address space")

    def declarator(self, i, end):
        """The first name declared by v[i:end], after the type."""
        v, depth, k = self.v, 0, i + 1
        while k < end:
            depth += {"<": 1, ">": -1}.get(v[k].s, 0)
            if (v[k].kind == "id" and depth == 0 and k > i + 1 and
                    v[k + 1].s in ("[", "[[", ",", ";", "=")):
                break
            k += 1
        return k

    def threadgroup_variable(self, i, function):
        """threadgroup T name[..], ...; at i in a body: returns the end index, or None for a
        pointer to threadgroup memory."""
        src, v = self.src, self.v
        end = src.find(i + 1, (";", "=", "{"))
        k = self.declarator(i, end)
        if {"*", "&"} & set(src.words(i + 1, k)):
            return None
        if v[end].s != ";":
            src.err(v[i], "a threadgroup variable cannot have an initialiser")
            return end
        if function not in self.kernel_names:
            src.err(v[i], "threadgroup variables can only be declared in a kernel function")
        kind, out = src.text(i + 1, k), []
        for lo, hi in src.split(k, end):
            name, dims = v[lo].s, src.text(lo + 1, hi)
            out.append(self.threadgroup_reference(kind, name, dims, v[i].line))
            out.append(self.threadgroup_registration(function, name))
        src.blank(i, end + 1)
        v[i].out = " ".join(out)
        return end + 1

    def threadgroup_registration(self, function, name):
        """Declares the variable to the reflection tables: staticThreadgroupMemoryLength."""
        if self.check or (self.template is not None and not self.template_names):
            return ""
        if self.template is not None:
            function += f"<{', '.join(self.template_names)}>"
        self.n_threadgroup_variables += 1
        return (f"(void)&msl::tg_static<decltype(&::{function}), &::{function}, "
                f"sizeof(msl_tg_{name}), {self.n_threadgroup_variables}>::once;")

    def threadgroup_reference(self, kind, name, dims, line):
        kindname = f"msl_tg_{name}"
        if self.check:
            return (f"typedef {kind} {kindname} {dims}; "
                    f"threadgroup {kindname} &{name} = *(threadgroup {kindname} *)0;")
        return (f"typedef {kind} {kindname} {dims}; {kindname} &{name} = *({kindname} *)"
                f"msl_rt_tgvar(sizeof({kindname}), alignof({kindname}), {line});")
