"""msl_source.py: a preprocessed Metal source as tokens, with the bracket matching that the
translator needs.

Token.out is the text written for the token; a rewrite changes nothing else."""
import os
import re
import subprocess
import sys
import tempfile

TOKEN = re.compile(
    r"""(?P<ws>[ \t\r\f]+|\\\n)|(?P<nl>\n)|(?P<cpp>^\#[^\n]*)
 |(?P<str>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
 |(?P<num>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<id>[A-Za-z_]\w*)
 |(?P<p>\[\[|\]\]|::|->|<<=|>>=|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|\.\.\.|.)""",
    re.X | re.M,
)
CLOSING = {"(": ")", "[": "]", "{": "}", "[[": "]]"}
# Macros that Apple's compiler defines for macOS 14 and Metal 3.1.
PREDEFINED = (
    "__METAL_VERSION__=310", "__METAL__=1", "__METAL_MACOS__=1", "__HAVE_BFLOAT__=1",
    "__HAVE_SIMDGROUP_MATRIX__=1",
)


class Token:
    __slots__ = ("kind", "s", "line", "out")

    def __init__(self, kind, s, line):
        self.kind, self.s, self.line, self.out = kind, s, line, s


def lex(text):
    tokens, line = [], 1
    for m in TOKEN.finditer(text):
        kind, s = m.lastgroup, m.group()
        if kind == "cpp":
            marker = re.match(r'#\s*(?:line\s+)?(\d+)\s+"', s)
            if marker:
                line = int(marker.group(1)) - 1
        tokens.append(Token(kind, s, line))
        line += s.count("\n")
    return tokens


def preprocess(clang, path, name, defines):
    """The source after clang -E with empty <metal_*> headers, so that only the user's text is
    translated. If clang fails, ends the program with its messages."""
    include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "msl", "include")
    with tempfile.TemporaryDirectory() as empty:
        for header in os.listdir(include):
            if header.startswith("metal_"):
                open(os.path.join(empty, header), "w").close()
        defines = [*PREDEFINED, *defines]
        command = [clang, "-E", "-x", "c++", "-nostdinc", "-isystem", empty,
                   *["-D" + d for d in defines], path]
        r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode:
        sys.stderr.write(r.stderr.replace(path, name))
        sys.exit(1)
    return r.stdout.replace(f'"{path}"', f'"{name}"')


class Source:
    """all: every token; v: those other than space and comments; errors: messages for the user."""

    def __init__(self, text, name):
        self.name = name
        self.all = lex(text)
        self.v = [t for t in self.all if t.kind not in ("ws", "nl", "cpp")]
        self.n = len(self.v)
        self.errors = []

    def err(self, token, message):
        self.errors.append(f"{self.name}:{token.line}:1: error: {message} [msl]")

    def close(self, i):
        """The index of the token that closes the bracket at i."""
        stack = []
        while i < self.n:
            s = self.v[i].s
            if s in CLOSING:
                stack.append(CLOSING[s])
            elif s == "]]" and stack and stack[-1] == "]":  # a[b[i]] is read as ]]
                stack.pop()
                if stack and stack[-1] == "]":
                    stack.pop()
            elif stack and s == stack[-1]:
                stack.pop()
            if not stack:
                return i
            i += 1
        raise SystemExit(f"{self.name}: unbalanced brackets")

    def after(self, i):
        """The index after the token at i, or after the bracket that it opens."""
        return self.close(i) + 1 if self.v[i].s in CLOSING else i + 1

    def find(self, i, ends):
        """The first token from i on, outside brackets, that is in ends."""
        while i < self.n and self.v[i].s not in ends:
            i = self.after(i)
        if i >= self.n:
            raise SystemExit(f"{self.name}: {' or '.join(ends)} is missing")
        return i

    def find_plain(self, i, ends):
        """The first token from i on that is in ends, inside brackets too."""
        while i < self.n and self.v[i].s not in ends:
            i += 1
        if i == self.n:
            raise SystemExit(f"{self.name}: {' or '.join(ends)} is missing")
        return i

    def angle(self, i):
        """The index of the token that closes the < at i."""
        depth = 0
        while i < self.n:
            s = self.v[i].s
            depth += {"<": 1, ">": -1, ">>": -2}.get(s, 0)
            if s in ("(", "[", "{"):
                i = self.close(i)
            if depth <= 0:
                return i
            i += 1
        raise SystemExit(f"{self.name}: unbalanced template brackets")

    def text(self, a, b):
        return " ".join(t.s for t in self.v[a:b])

    def words(self, a, b):
        return [t.s for t in self.v[a:b]]

    def blank(self, a, b):
        for t in self.v[a:b]:
            t.out = ""

    def split(self, a, b):
        """Splits v[a:b] at its commas: a list of (lo, hi)."""
        parts, lo, i, depth = [], a, a, 0
        while i < b:
            s = self.v[i].s
            if s in CLOSING:
                i = self.close(i)
            elif s == "<":
                depth += 1
            elif s == ">":
                depth -= 1
            elif s == "," and depth == 0:
                parts.append((lo, i))
                lo = i + 1
            i += 1
        if lo < b:
            parts.append((lo, b))
        return parts

    def parameter(self, lo, hi):
        """v[lo:hi] -> its tokens without attributes, [(attribute, argument or None)]. The
        attributes' tokens are blanked."""
        attributes, plain, i = [], [], lo
        while i < hi:
            nested = self.v[i].s == "[" and i + 1 < hi and self.v[i + 1].s == "["
            if self.v[i].s != "[[" and not nested:
                plain.append(self.v[i])
                i += 1
                continue
            end, j = self.close(i), i + 1
            while j < end:
                if self.v[j].kind == "id":
                    name, argument = self.v[j].s, None
                    if self.v[j + 1].s == "(":
                        c = self.close(j + 1)
                        argument = self.text(j + 2, c)
                        j = c
                    attributes.append((name, argument))
                j += 1
            self.blank(i, end + 1)
            i = end + 1
        return plain, attributes
