// Writes wordpiece.json, unigram.json and cases.jsonl anew: two small vocabularies of the kinds that
// encoders have, and the ids that the tokenizers library (package `tokenizers`, 0.23.2) gives with
// each component in turn.
//   npm install tokenizers@0.23.2 && node make.mjs [full]   (needs spm_train, Debian package sentencepiece)
// full: with all rules of nmt_nfkc instead of a few, to compare once: 300 KB.
import { execFileSync } from "child_process";
import fs from "fs";
import os from "os";
import { createRequire } from "module";
const { Tokenizer } = createRequire(process.cwd() + "/x.js")("tokenizers");
const here = new URL(".", import.meta.url).pathname,
  full = process.argv[2] === "full";
const root = here + "../../../../";
const story = fs.readFileSync(root + "tests/golden/demo/heldout.txt", "utf8");
const lines = fs
  .readFileSync(here + "../texts.txt", "utf8")
  .split("\n")
  .slice(0, -1);
const texts = [
  ...JSON.parse(fs.readFileSync(here + "../bpe/cases.jsonl", "utf8").split("\n")[0]).texts,
  ...lines,
  "ＡＢＣ１２３　ﬁne ½ x² e\u0301té a\u0301\u0323b ｱ\u3099 \r\n\r x\u200by ａ\u0301 …",
  "İstanbul ÀÉÎÕÜ Straße ǅ ſ Σίσυφος ΆΈ",
  "[CLS] a [SEP] b [MASK] c[UNK]d <s>x</s> <mask>  y",
  "\u0001\u007f\u0085\ufffd\u00ad\u2060\ue000\u{1f9ff}\u{1fae8} x",
  "x".repeat(100) + " " + "x".repeat(101) + " " + "é".repeat(100),
  "㐀𠀀豈 漢字かなカナ𫝀 a中b",
];

// Tokens that occur often in the text: all characters, then parts of words.
function parts(mark, next, n) {
  const words = new Map(),
    found = new Map();
  for (const w of [...story.toLowerCase().split(/[^\p{L}\p{N}]+/u), ...story.split(/[^\p{L}\p{N}]+/u)])
    if (w) words.set(w, (words.get(w) ?? 0) + 1);
  for (const [w, count] of words) {
    const c = [...w];
    for (let i = 0; i < c.length; i++)
      for (let j = i + 2; j <= Math.min(c.length, i + 8); j++) {
        const t = (i ? next : mark) + c.slice(i, j).join("");
        found.set(t, (found.get(t) ?? 0) + count * (j - i));
      }
  }
  return [...found]
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .slice(0, n)
    .map((x) => x[0]);
}
const chars = [...new Set([...(story + lines.join("") + lines.join("").toLowerCase()).normalize("NFD")])]
  .filter((c) => c.trim() && c !== "\ufffd")
  .sort();
const special = (list) =>
  list.map((content, id) => ({
    id,
    content,
    single_word: false,
    lstrip: content === "<mask>",
    rstrip: false,
    normalized: false,
    special: true,
  }));

const bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const pieces = [
  ...bert,
  ...chars,
  ...chars.filter((c) => /[\p{L}\p{N}\p{M}]/u.test(c)).map((c) => "##" + c),
  ...parts("", "##", 600),
];
const wordpiece = {
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: special(bert),
  normalizer: {
    type: "BertNormalizer",
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: "BertPreTokenizer" },
  post_processor: {
    type: "TemplateProcessing",
    single: [
      { SpecialToken: { id: "[CLS]", type_id: 0 } },
      { Sequence: { id: "A", type_id: 0 } },
      { SpecialToken: { id: "[SEP]", type_id: 0 } },
    ],
    pair: [
      { SpecialToken: { id: "[CLS]", type_id: 0 } },
      { Sequence: { id: "A", type_id: 0 } },
      { SpecialToken: { id: "[SEP]", type_id: 0 } },
      { Sequence: { id: "B", type_id: 1 } },
      { SpecialToken: { id: "[SEP]", type_id: 1 } },
    ],
    special_tokens: {
      "[CLS]": { id: "[CLS]", ids: [2], tokens: ["[CLS]"] },
      "[SEP]": { id: "[SEP]", ids: [3], tokens: ["[SEP]"] },
    },
  },
  decoder: { type: "WordPiece", prefix: "##", cleanup: false },
  model: {
    type: "WordPiece",
    unk_token: "[UNK]",
    continuing_subword_prefix: "##",
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries([...new Set(pieces)].map((t, i) => [t, i])),
  },
};

// A Unigram model trained by SentencePiece, for its pieces, scores and map of characters.
function train() {
  const dir = fs.mkdtempSync(os.tmpdir() + "/words-"),
    rules = [];
  for (let c = 0x21; c < 0x7f; c++) rules.push([[c + 0xfee0], [c]]);
  for (const c of [9, 10, 13, 0xa0, 0x3000]) rules.push([[c], [0x20]]);
  rules.push(
    [[0xfb01], [0x66, 0x69]],
    [[0xbd], [0x31, 0x2044, 0x32]],
    [[0xb2], [0x32]],
    [[0x2026], [0x2e, 0x2e, 0x2e]],
  );
  rules.push([[0x65, 0x301], [0xe9]], [[0x200b], [0x20]], [[0xff71, 0x3099], [0x30a2]], [[0x1], []]);
  const hex = (list) => list.map((c) => c.toString(16).toUpperCase()).join(" ");
  fs.writeFileSync(dir + "/rules.tsv", rules.map(([a, b]) => hex(a) + "\t" + hex(b) + "\n").join(""));
  fs.writeFileSync(dir + "/text", story + lines.join("\n") + "\n");
  const how = full ? ["--normalization_rule_name=nmt_nfkc"] : ["--normalization_rule_tsv=" + dir + "/rules.tsv"];
  execFileSync("spm_train", [
    "--input=" + dir + "/text",
    "--model_prefix=" + dir + "/m",
    "--model_type=unigram",
    "--vocab_size=900",
    "--character_coverage=0.9999",
    "--hard_vocab_limit=false",
    "--num_threads=1",
    "--minloglevel=2",
    ...how,
  ]);
  return fs.readFileSync(dir + "/m.model");
}
function* fields(b) {
  for (let i = 0; i < b.length;) {
    const varint = () => {
      let v = 0,
        k = 1;
      for (; ; k *= 128) {
        v += (b[i] & 127) * k;
        if (b[i++] < 128) return v;
      }
    };
    const key = varint();
    if ((key & 7) === 0) yield [key >> 3, varint()];
    else {
      const n = (key & 7) === 2 ? varint() : (key & 7) === 5 ? 4 : 8;
      yield [key >> 3, b.subarray(i, (i += n))];
    }
  }
}
const proto = [...fields(train())],
  list = proto.filter(([k]) => k === 1).map(([, v]) => Object.fromEntries(fields(v)));
const map = Object.fromEntries(fields(proto.find(([k]) => k === 3)[1]))[2];
const roberta = ["<s>", "<pad>", "</s>", "<unk>"];
const vocab = [
  ...roberta.map((t) => [t, 0]),
  ...list.slice(3).map((p) => [p[1].toString(), p[2].readFloatLE(0)]),
  ["<mask>", 0],
];
const Metaspace = (o) => ({ type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true, ...o });
const precompiled = { type: "Precompiled", precompiled_charsmap: Buffer.from(map).toString("base64") };
const added = special([...roberta, "<mask>"]);
added.at(-1).id = vocab.length - 1;
const unigram = {
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: added,
  normalizer: {
    type: "Sequence",
    normalizers: [precompiled, { type: "Replace", pattern: { Regex: " {2,}" }, content: " " }],
  },
  pre_tokenizer: Metaspace(),
  post_processor: {
    type: "RobertaProcessing",
    sep: ["</s>", 2],
    cls: ["<s>", 0],
    trim_offsets: true,
    add_prefix_space: true,
  },
  decoder: Metaspace(),
  model: { type: "Unigram", unk_id: 3, vocab, byte_fallback: false },
};

const seq = (...pretokenizers) => ({ type: "Sequence", pretokenizers });
const clean = (o) => ({ ...wordpiece.normalizer, ...o });
const cases = [
  { base: "wordpiece", set: {} },
  ...[
    { lowercase: false },
    { lowercase: false, strip_accents: true },
    { strip_accents: false },
    { handle_chinese_chars: false },
    { clean_text: false },
  ].map((o) => ({ base: "wordpiece", set: { normalizer: clean(o) } })),
  { base: "wordpiece", set: { normalizer: null, pre_tokenizer: { type: "Whitespace" } } },
  { base: "unigram", set: {} },
  { base: "unigram", set: { normalizer: precompiled, pre_tokenizer: seq({ type: "WhitespaceSplit" }, Metaspace()) } },
  { base: "unigram", set: { normalizer: null } },
  { base: "unigram", set: { pre_tokenizer: Metaspace({ split: false, prepend_scheme: "first" }) } },
];
const bases = { wordpiece, unigram },
  out = [JSON.stringify({ texts })];
for (const c of cases) {
  const t = Tokenizer.fromString(JSON.stringify({ ...bases[c.base], ...c.set })),
    ids = [],
    pairs = [];
  for (const x of texts) ids.push((await t.encode(x, null, { addSpecialTokens: false })).getIds());
  // Joined with the next text; control tokens in it stay text, so those with any are left out.
  for (let i = 0; i < 40; i++) {
    const p = [texts[i], texts[i + 1]];
    pairs.push(p.some((x) => /\[[A-Z]+\]|<\/?[a-z]+>/.test(x)) ? null : (await t.encode(...p)).getIds());
  }
  out.push(JSON.stringify({ ...c, pre: null, ids, decoded: [], pairs }));
}
const to = full ? os.tmpdir() + "/words-full/" : here;
fs.mkdirSync(to, { recursive: true });
fs.writeFileSync(to + "wordpiece.json", JSON.stringify(wordpiece) + "\n");
fs.writeFileSync(to + "unigram.json", JSON.stringify(unigram) + "\n");
fs.writeFileSync(to + "cases.jsonl", out.join("\n") + "\n");
