// Writes byte-level.json, spm-like.json and cases.jsonl anew: two trimmed vocabularies, and the ids
// that the tokenizers library (package `tokenizers`, 0.23.2) gives with each component in turn.
//   npm install tokenizers@0.23.2 && node make.mjs FOLDER_OF_HF_TOKENIZERS   (qwen3/, phi-3-mini/)
import fs from "fs";
import { createRequire } from "module";
const { Tokenizer } = createRequire(process.cwd() + "/x.js")("tokenizers");
const from = process.argv[2],
  here = new URL(".", import.meta.url).pathname;

// The first n merges that build on what is kept; every token that they need; ids in their order.
function trim(file, n, base, added) {
  const full = JSON.parse(fs.readFileSync(`${from}/${file}/tokenizer.json`));
  const kept = new Set(Object.keys(full.model.vocab).filter(base)),
    merges = [];
  for (const m of full.model.merges) {
    const [a, b] = typeof m === "string" ? m.split(" ") : m;
    if (merges.length === n) break;
    if (!kept.has(a) || !kept.has(b)) continue;
    kept.add(a + b);
    merges.push([a, b]);
  }
  const tokens = [...kept].sort((x, y) => full.model.vocab[x] - full.model.vocab[y]);
  const vocab = Object.fromEntries(tokens.map((t, i) => [t, i]));
  let next = tokens.length;
  const list = added.map((a) => ({
    id: vocab[a.content] ?? next++,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: false,
    ...a,
  }));
  return { ...full, added_tokens: list, model: { ...full.model, vocab, merges } };
}

const special = { special: true };
const bytes = trim("qwen3", 1500, (t) => [...t].length === 1, [
  { content: "<|im_start|>", ...special },
  { content: "<|im_end|>", ...special },
  { content: "<mask>", ...special, lstrip: true },
  { content: "<nl>", rstrip: true },
  { content: "<tool>" },
  { content: "Ahab", single_word: true },
  { content: "e the", normalized: true },
  { content: "ée", normalized: true },
]);
bytes.normalizer = null;
const spm = trim("phi-3-mini", 900, (t) => ([...t].length === 1 && t < "\u0250") || /^<.*>$/.test(t) || t === "▁", [
  { content: "<unk>", ...special },
  { content: "<s>", ...special },
  { content: "<|end|>", ...special, rstrip: true },
]);

const ByteLevel = (o) => ({ type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true, ...o });
const plain = ByteLevel({ use_regex: false });
const split = (Regex, behavior = "Isolated", invert = false) => ({
  type: "Split",
  pattern: { Regex },
  behavior,
  invert,
});
const seq = (...pretokenizers) => ({ type: "Sequence", pretokenizers });
const digits = (one) => ({ type: "Digits", individual_digits: one });
const fold = "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
  word = "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+";
const lines = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  others = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" + lines;
const up = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]",
  low = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]",
  lead = "[^\\r\\n\\p{L}\\p{N}]?";
const cased = (tail) => `${lead}${up}*${low}+${tail}|${lead}${up}+${low}*${tail}`;
const slashed = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" + lines;
const gpt4o = cased(fold + "?") + "|\\p{N}{1,3}" + slashed;
const han = (s) => s.slice(0, -1) + "&&[^\\p{Han}]]";
const deepseek3 =
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const ideographs = "[一-龥ࠀ-一가-퟿]+";
// name of tokenizer.ggml.pre, or null where there is none: the pre_tokenizer of such models
const pre = [
  ["gpt-2", ByteLevel()],
  [null, ByteLevel({ add_prefix_space: true })],
  ["llama-bpe", seq(split(fold + word + "|\\p{N}{1,3}" + others), plain)],
  ["qwen2", seq(split(fold + word + "|\\p{N}" + others), plain)],
  [
    "qwen35",
    seq(
      split(fold + "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" + lines),
      plain,
    ),
  ],
  ["gpt-4o", seq(split(gpt4o), plain)],
  ["tekken", seq(split(cased("") + "|\\p{N}" + slashed), plain)],
  ["starcoder", seq(digits(true), ByteLevel())],
  [null, seq({ type: "Punctuation", behavior: "Contiguous" }, ByteLevel(), digits(false), split("[0-9][0-9][0-9]"))],
  [
    "deepseek-coder",
    seq(split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(ideographs), digits(true), plain),
  ],
  ["deepseek-v3", seq(split("\\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(deepseek3), plain)],
  ["bloom", seq(split(" ?[^(\\s|.,!?…。，、।۔،)]+"), plain)],
  ["tiny_aya", seq(split("\\d{1,3}(?=(?:\\d{3})*\\b)"), split(gpt4o), plain)],
  ["superbpe", seq(split("\\p{N}+"), split("(?=(\\d{3})+(?!\\d))"), plain)],
  [
    "bailingmoe",
    seq(
      split(
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      ),
      plain,
    ),
  ],
  [
    "kimi-k2",
    seq(
      split(
        `[\\p{Han}]+|${lead}${han(up)}*${han(low)}+${fold}?|${lead}${han(up)}+${han(low)}*${fold}?|\\p{N}{1,3}` +
          others,
      ),
      plain,
    ),
  ],
  [
    "exaone-moe",
    seq(
      split(
        fold +
          "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      ),
      plain,
    ),
  ],
  [
    "jais-2",
    seq(
      split(
        fold +
          word +
          "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" +
          [512, 256, 128, 64, 32, 16, 8, 4, "1,2"].map((n) => `|\\s{${n}}(?!\\S)`).join("") +
          "|\\s{1}",
      ),
      plain,
    ),
  ],
  [null, seq(split("\\s+$"), { type: "Whitespace" }, plain)],
  [null, seq({ type: "WhitespaceSplit" }, split("[aeiou ]", "MergedWithPrevious"), plain)],
  [null, seq(split("[aeiou ]", "MergedWithNext"), plain)],
  [null, seq(split("[aeiou ]", "Contiguous"), { type: "CharDelimiterSplit", delimiter: "x" }, plain)],
  [
    null,
    seq(
      split("\\w+|\\n", "Removed", true),
      { type: "Split", pattern: { String: "e." }, behavior: "Isolated", invert: false },
      plain,
    ),
  ],
];
const llama3 = pre[2][1];
const norm = [
  { type: "NFC" },
  { type: "NFD" },
  { type: "Lowercase" },
  { type: "Strip", strip_left: true, strip_right: true },
  {
    type: "Sequence",
    normalizers: [
      { type: "Replace", pattern: { Regex: " {2,}" }, content: "_" },
      { type: "Replace", pattern: { String: "the" }, content: "THE" },
    ],
  },
  { type: "Sequence", normalizers: [{ type: "NFC" }, { type: "Prepend", prepend: ">" }] },
];
const meta = (o) => ({ type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: false, ...o });
const cases = [
  ...pre.map(([name, pre_tokenizer]) => ({ base: "byte-level", pre: name, set: { pre_tokenizer } })),
  { base: "byte-level", pre: null, set: { pre_tokenizer: llama3, model: { ignore_merges: true } } },
  ...norm.map((normalizer) => ({ base: "byte-level", pre: null, set: { normalizer, pre_tokenizer: llama3 } })),
  { base: "spm-like", pre: null, set: {} },
  ...[{}, { prepend_scheme: "always" }, { split: true }].map((o) => ({
    base: "spm-like",
    pre: null,
    set: { normalizer: null, pre_tokenizer: meta(o) },
  })),
  { base: "spm-like", pre: null, set: { model: { byte_fallback: false } } },
  { base: "spm-like", pre: null, set: { model: { byte_fallback: false, fuse_unk: false } } },
];
const texts = [
  "",
  " ",
  "Hello world",
  "  The quick brown fox\tjumps over 1 lazy dog.\n\n\n",
  "it's I'LL we'Ve don'T 'sup ''s 'ſ",
  "HTTPServer camelCase ÄPFELäpfel ǅ ʰx",
  "1 12 123 1234 12345 1234567890 12,345.67 1234567abc ٣٤٥٦ ½² Ⅷ",
  " \n \r\n\t x  y   \u00a0z\u3000\u2028w ",
  'for (int i = 0; i < n; i++) {\n    a[i] += "x/y//z";\n}\n',
  "https://example.org/a/b?c=d&e=f#g !!! ... \\//\n",
  "中文测试，汉字和カタカナ・ひらがな〆々 한국어 조합",
  "é e\u0301 ạ\u0323\u0301 ॐ नमस्ते का के ไทย ກຳ עברית العربية",
  "🦊👩‍👩‍👧 ☃️ 𝟘𝟙 𝔘𝔫𝔦 〵〖x〗",
  "<|im_start|>user\nHi<|im_end|>  <mask>  x <nl> \n y<tool>z<|end|> \n<s> <unk>",
  "Ahab Ahab. xAhab Ahab_ (Ahab)",
  "see the end e  the ée e\u0301e E THE",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "\u200b\u180e\ufeff\u0085\u000b end",
  " ".repeat(700) + "x" + " ".repeat(7) + "y\n" + " ".repeat(16) + "\n  ".repeat(3) + " ".repeat(4),
];

const out = [JSON.stringify({ texts })],
  bases = { "byte-level": bytes, "spm-like": spm };
for (const c of cases) {
  const base = bases[c.base],
    { model, ...rest } = c.set;
  const t = Tokenizer.fromString(JSON.stringify({ ...base, ...rest, model: { ...base.model, ...model } }));
  const ids = [],
    decoded = [];
  for (const x of texts) {
    ids.push((await t.encode(x, null, { addSpecialTokens: false })).getIds());
    const back = await t.decode(ids.at(-1), true);
    decoded.push(back === x ? null : back);
  }
  // What a normalizer changed does not come back.
  out.push(JSON.stringify({ ...c, ids, decoded: c.set.normalizer ? [] : decoded }));
}
fs.writeFileSync(here + "byte-level.json", JSON.stringify(bytes) + "\n");
fs.writeFileSync(here + "spm-like.json", JSON.stringify(spm) + "\n");
fs.writeFileSync(here + "cases.jsonl", out.join("\n") + "\n");
