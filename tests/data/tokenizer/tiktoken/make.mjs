// Makes tiktoken.model and ids.json: the first ranks of OpenAI's cl100k_base, split into words as Kimi's code does
// (tokenization_kimi.py, pat_str), and the ids of js-tiktoken for the texts beside. Run in this folder:
//   node make.mjs      (uses tests/http/node_modules)
import fs from "node:fs";
import { createRequire } from "node:module";
const require = createRequire(new URL("../../../http/package.json", import.meta.url));
const { Tiktoken } = require("js-tiktoken/lite");
const all = require("js-tiktoken/ranks/cl100k_base");
const N = 1500;

const base64 = [];
for (const line of (all.default ?? all).bpe_ranks.split("\n").filter(Boolean)) {
  const [, offset, ...tokens] = line.split(" ");
  tokens.forEach((token, i) => {
    base64[Number(offset) + i] = token;
  });
}
const first = base64.slice(0, N);
// JavaScript has neither && in classes (without flag v) nor (?i:...).
const han = "\\p{Script=Han}",
  not = (set) => `(?:(?!${han})[${set}])`;
const upper = not("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"),
  lower = not("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}");
const lead = "[^\\r\\n\\p{L}\\p{N}]?",
  tail = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
const pat_str = [
  `${han}+`,
  `${lead}${upper}*${lower}+${tail}`,
  `${lead}${upper}+${lower}*${tail}`,
  "\\p{N}{1,3}",
  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*",
  "\\s*[\\r\\n]+",
  "\\s+(?!\\S)",
  "\\s+",
].join("|");
const special_tokens = { "[BOS]": N, "[EOS]": N + 1, "<|im_end|>": N + 2 };
const tok = new Tiktoken({ pat_str, special_tokens, bpe_ranks: `! 0 ${first.join(" ")}` });

const texts = fs.readFileSync("../texts.txt", "utf8").split("\n").slice(0, -1);
texts.push("它说：Hello世界Is HERE'S isn'T ОДНОВременно 12345 6", "aaaaaaaaaaaaaaaaa  \n\n  b\r\n\tc", "它它它 it它");
fs.writeFileSync("tiktoken.model", first.map((token, rank) => `${token} ${rank}\n`).join(""));
fs.writeFileSync("ids.json", JSON.stringify(texts.map((text) => ({ text, ids: tok.encode(text, [], []) }))) + "\n");
fs.writeFileSync(
  "tokenizer_config.json",
  JSON.stringify(
    {
      added_tokens_decoder: Object.fromEntries(
        Object.entries(special_tokens).map(([content, id]) => [id, { content, special: true }]),
      ),
      auto_map: { AutoTokenizer: ["tokenization_kimi.TikTokenTokenizer", null] },
      bos_token: "[BOS]",
      eos_token: "[EOS]",
      tokenizer_class: "TikTokenTokenizer",
    },
    null,
    1,
  ) + "\n",
);
