// Where a text stops being JSON, and what was expected there. Browsers word that differently and often
// omit the place.

const SPACE = /[ \t\r\n]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"/y;
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;
const MAX_DEPTH = 500;

class Wrong extends Error {}

class Scan {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  take(regex) {
    regex.lastIndex = this.at;
    const m = regex.exec(this.text);
    if (m) this.at += m[0].length;
    return Boolean(m?.[0]);
  }

  // Is the next character after spaces `c`? Then advances past it.
  next(c) {
    this.take(SPACE);
    if (this.text[this.at] !== c) return false;
    this.at++;
    return true;
  }

  want(ok, what) {
    if (!ok) throw new Wrong(this.at < this.text.length ? `expected ${what}` : `it ends where ${what} is expected`);
  }

  value(depth) {
    if (depth > MAX_DEPTH) throw new Wrong("it is nested too deeply");
    if (this.next("{")) this.list("}", "an object", () => this.member(depth));
    else if (this.next("[")) this.list("]", "an array", () => this.value(depth + 1));
    else this.want(this.take(STRING) || this.take(SCALAR), "a value");
  }

  member(depth) {
    this.take(SPACE);
    this.want(this.take(STRING), "a key in double quotes");
    this.want(this.next(":"), "a colon");
    this.value(depth + 1);
  }

  list(end, what, element) {
    if (this.next(end)) return;
    do element();
    while (this.next(","));
    this.want(this.next(end), `a comma or the end of ${what}`);
  }

  whole() {
    this.value(0);
    this.take(SPACE);
    this.want(this.at === this.text.length, "the end of the text");
  }
}

// For a text that JSON.parse refuses: "expected a colon (line 3, column 7)".
export function whyNotJson(text) {
  const scan = new Scan(text);
  try {
    scan.whole();
  } catch (e) {
    const before = text.slice(0, scan.at).split("\n");
    return `${e.message} (line ${before.length}, column ${before.at(-1).length + 1})`;
  }
  return "it is not JSON";
}
