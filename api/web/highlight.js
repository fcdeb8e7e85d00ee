// Syntax highlighting: one small tokenizer for all languages, driven by a table. It knows comments,
// strings, numbers and words, but no grammar. It returns text nodes and spans.
import { h } from "./dom.js";

const MAX_CHARS = 100_000; // longer code stays plain

const words = (text) => new Set(text.split(" "));
const STRINGS = String.raw`"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?`;
const BACKTICKS = "`(?:[^`\\\\]|\\\\[^])*`?";
const SLASHES = String.raw`\/\/[^\n]*|\/\*(?:(?!\*\/)[^])*(?:\*\/)?`;
const HASH = "#[^\\n]*";
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*`;
const LITERALS = words(
  "true false null undefined None True False nil NULL nullptr NaN Infinity self this super yes no on off",
);

const JS =
  "async await break case catch class const continue debugger default delete do else enum export extends finally for from function get if implements import in instanceof interface let new of private protected public readonly return set static switch throw try type typeof var void while with yield as";
const C =
  "alignas alignof auto bool break case char const constexpr continue default do double else enum extern float for goto if inline int long register restrict return short signed sizeof static static_assert struct switch typedef union unsigned void volatile while";
const CPP = `${C} catch class concept delete explicit final friend mutable namespace new noexcept operator override private protected public requires template throw try typename using virtual`;
const JVM =
  "abstract as assert async await base boolean break byte case catch char class companion const continue data decimal default do double else enum extends final finally float for foreach fun get if implements import in init int interface internal is let long namespace native new object open out override package private protected public readonly record ref return sealed set short static string struct suspend switch synchronized throw throws try using val var void volatile when where while yield";

const LANGUAGES = {
  c: { name: "C", comment: SLASHES, string: STRINGS, meta: String.raw`^[ \t]*#[ \t]*\w+`, keywords: C, also: "h" },
  cpp: {
    name: "C++",
    comment: SLASHES,
    string: STRINGS,
    meta: String.raw`^[ \t]*#[ \t]*\w+`,
    keywords: CPP,
    also: "c++ cc cxx hpp cuda cu",
  },
  css: {
    name: "CSS",
    comment: String.raw`\/\*(?:(?!\*\/)[^])*(?:\*\/)?`,
    string: STRINGS,
    also: "scss less",
    key: String.raw`--[\w-]+|[a-z-]+(?=\s*:[^:\n{]*[;}\n])`,
    meta: String.raw`@[\w-]+|#[\da-fA-F]{3,8}\b`,
    keywords: "important inherit initial none auto",
  },
  diff: { name: "Diff", added: "^\\+[^\\n]*", removed: "^-[^\\n]*", meta: "^(?:@@|diff|index)[^\\n]*", also: "patch" },
  go: {
    name: "Go",
    comment: SLASHES,
    string: `${STRINGS}|${BACKTICKS}`,
    also: "golang",
    keywords:
      "any bool break byte case chan const continue default defer else error fallthrough float64 for func go goto if import int int64 interface map package range return rune select string struct switch type uint64 var",
  },
  html: {
    name: "HTML",
    comment: "<!--(?:(?!-->)[^])*(?:-->)?",
    keyword: String.raw`<[\/!?]?[A-Za-z][\w:-]*|\/?>`,
    key: String.raw`[\w:@-]+(?==["'])`,
    string: STRINGS,
    also: "xml svg vue htm xhtml",
  },
  ini: {
    name: "INI",
    comment: "[#;][^\\n]*",
    string: STRINGS,
    meta: String.raw`^[ \t]*\[[^\]\n]*\]+`,
    key: String.raw`^[ \t]*[\w."-]+(?=[ \t]*=)`,
    also: "toml conf cfg",
  },
  java: { name: "Java", comment: SLASHES, string: STRINGS, meta: "@\\w+", keywords: JVM },
  javascript: {
    name: "JavaScript",
    comment: SLASHES,
    string: `${STRINGS}|${BACKTICKS}`,
    meta: "@\\w+",
    keywords: JS,
    also: "js mjs cjs jsx",
  },
  json: {
    name: "JSON",
    comment: SLASHES,
    key: String.raw`"(?:[^"\\\n]|\\.)*"(?=\s*:)`,
    string: STRINGS,
    also: "jsonc json5 jsonl",
  },
  kotlin: { name: "Kotlin", comment: SLASHES, string: STRINGS, meta: "@\\w+", keywords: JVM, also: "kt" },
  csharp: { name: "C#", comment: SLASHES, string: STRINGS, keywords: JVM, also: "cs c#" },
  lua: {
    name: "Lua",
    comment: "--[^\\n]*",
    string: STRINGS,
    keywords: "and break do else elseif end for function goto if in local not or repeat return then until while",
  },
  makefile: {
    name: "Makefile",
    comment: HASH,
    string: STRINGS,
    meta: String.raw`\$[({][^)}\n]*[)}]`,
    key: "^[\\w.%/-]+(?=[ \\t]*:)",
    keywords: "ifeq ifneq ifdef ifndef else endif define endef include",
    also: "make mk",
  },
  php: {
    name: "PHP",
    comment: `${SLASHES}|${HASH}`,
    string: STRINGS,
    meta: "\\$\\w+|<\\?php|\\?>",
    keywords: `${JS} echo elseif foreach fn namespace require require_once use trait`,
  },
  python: {
    name: "Python",
    comment: HASH,
    meta: "@[\\w.]+",
    also: "py python3",
    string: `"""(?:(?!""")[^])*(?:""")?|'''(?:(?!''')[^])*(?:''')?|${STRINGS}`,
    keywords:
      "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield",
  },
  ruby: {
    name: "Ruby",
    comment: HASH,
    string: STRINGS,
    meta: ":\\w+|@\\w+",
    also: "rb",
    keywords:
      "alias and begin break case class def do else elsif end ensure for if in module next not or raise redo require rescue retry return then unless until when while yield",
  },
  rust: {
    name: "Rust",
    comment: SLASHES,
    string: String.raw`"(?:[^"\\]|\\[^])*"?|b?'(?:[^'\\\n]|\\.)'`,
    meta: String.raw`#!?\[[^\]\n]*\]|'\w+`,
    also: "rs",
    keywords:
      "as async await bool box break char const continue crate dyn else enum extern f32 f64 fn for i32 i64 if impl in let loop match mod move mut pub ref return static str struct trait type u8 u32 u64 unsafe use usize where while",
  },
  shell: {
    name: "Shell",
    comment: "(?<![\\w$])#[^\\n]*",
    string: STRINGS,
    meta: String.raw`\$(?:\w+|\{[^}\n]*\}|[@#?*!$])`,
    also: "sh bash zsh console",
    keywords:
      "case cd do done echo elif else esac exec exit export fi for function if in local printf read return set shift sudo then trap unset until while",
  },
  sql: {
    name: "SQL",
    comment: `--[^\\n]*|${SLASHES}`,
    string: STRINGS,
    anyCase: true,
    also: "sqlite postgresql mysql",
    keywords:
      "add all alter and as asc begin between by case cast check column commit constraint create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert integer into is join key left like limit not null offset on or order outer primary references right rollback select set table text then union unique update using values view when where with",
  },
  swift: {
    name: "Swift",
    comment: SLASHES,
    string: STRINGS,
    meta: "@\\w+",
    keywords:
      "actor as async await break case catch class continue default defer do else enum extension false for func guard if import in init inout is let mutating nil override private protocol public repeat return self static struct switch throw throws try var where while",
  },
  typescript: {
    name: "TypeScript",
    comment: SLASHES,
    string: `${STRINGS}|${BACKTICKS}`,
    meta: "@\\w+",
    keywords: `${JS} abstract any boolean declare infer is keyof namespace never number object string symbol unknown`,
    also: "ts tsx",
  },
  yaml: {
    name: "YAML",
    comment: "(?<![^\\s])#[^\\n]*",
    string: STRINGS,
    key: String.raw`^[ \t]*(?:- +)*[\w."'\/-]+(?=:(?:\s|$))`,
    also: "yml",
  },
};

const byName = new Map();
for (const [id, language] of Object.entries(LANGUAGES))
  for (const name of [id, ...(language.also?.split(" ") ?? [])]) byName.set(name, language);

const languageOf = (lang) => byName.get(lang.toLowerCase());

export const languageName = (lang) => languageOf(lang)?.name ?? lang;

// The order matters: a string contains no comment, a key looks like a string.
const KINDS = ["comment", "key", "string", "added", "removed", "meta", "keyword"];

function prepare(language) {
  if (language.regex) return;
  const parts = KINDS.filter((k) => language[k]).map((k) => `(?<${k}>${language[k]})`);
  const plain = language.added || language.name === "HTML";
  if (!plain) parts.push(`(?<number>${NUMBER})`, "(?<word>[A-Za-z_][\\w]*)");
  language.regex = new RegExp(parts.join("|"), "gm");
  language.set = words(language.keywords ?? "");
}

function wordClass(word, after, language) {
  if (language.set.has(language.anyCase ? word.toLowerCase() : word)) return "keyword";
  if (LITERALS.has(word)) return "literal";
  if (after === "(") return "function";
  return /^[A-Z]\w*[a-z]/.test(word) ? "type" : null;
}

function classOf(match, code, language) {
  const kind = Object.keys(match.groups).find((k) => match.groups[k] !== undefined);
  return kind === "word" ? wordClass(match[0], code[match.index + match[0].length], language) : kind;
}

export function highlight(code, lang) {
  const language = languageOf(lang);
  if (!language || code.length > MAX_CHARS) return [code];
  prepare(language);
  const nodes = [];
  let plain = 0;
  for (const match of code.matchAll(language.regex)) {
    const name = match[0] ? classOf(match, code, language) : null;
    if (!name) continue;
    if (match.index > plain) nodes.push(code.slice(plain, match.index));
    nodes.push(h("span", { class: `tok-${name}` }, match[0]));
    plain = match.index + match[0].length;
  }
  if (plain < code.length) nodes.push(code.slice(plain));
  return nodes;
}
