// Attacks through constraints of the answer: grammars, patterns, schemas, tools.

const letters = (n, of = "a") => of.repeat(n);

// Grammars that must be refused, with errors that are late, early, deep and many.
function badGrammars() {
  const items = (n, item) => Array.from({ length: n }, () => item).join(" ");
  const list = [];
  for (const n of [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 1000])
    for (const end of ["!", "(", "[", '"', "{", "*", "[^", "\\", "{2,1}"]) {
      list.push(`root ::= ${items(n, '"a"')} ${end}`);
      if (n < 100)
        list.push(
          `root ::= ${"(".repeat(n)} ${end}`,
          `root ::= ${items(n, '"a" |')} ${end}`,
          `root ::= x${n}\n${items(n, '\nx ::= "a"')} ${end}`,
        );
    }
  list.push(
    "",
    "root",
    "root ::=",
    "root ::= root",
    "a ::= b",
    'root ::= "a"{99999999999}',
    'root ::= ("a"{1000}){1000}',
    "root ::= [z-a]",
    "root ::= [\\x]",
    "root ::= \u0000",
    `root ::= ${"(".repeat(100000)}`,
    `root ::= "${letters(200000)}`,
  );
  return list;
}

// Patterns with large automata or trees, and invalid ones. Any answer but a 5xx is right; other
// clients must not be delayed.
const patterns = [
  "(?=.*a.{12})(?=.*b.{12})(?=.*c.{10})(?=.*d.{9})(?=.*e.{9})(?=.*f.{9}).*",
  "(a|a)*b",
  "((a*)*)*",
  "(.*a.{18})",
  "(x{1000}){1000}",
  "(((((a{30}){30}){30}){30}){30})",
  "[\\p{L}\\p{N}]{0,2000}",
  "(a?){5000}a{5000}",
  `${"(".repeat(20000)}a${")".repeat(20000)}`,
  `(${Array.from({ length: 5000 }, (_, i) => `k${i}x`).join("|")})*`,
  "(?!(?!(?!(?!.*a.{10}))))",
  "[^\\u0000-\\u{10ffff}]",
  ".{262144}",
  "(\\w+\\s?)*$",
  "(?=a{5000})(?=[ab]{5000})a*",
  "a{0,100000}",
  "(",
  "[",
  "a{3,2}",
  "\\",
  "(?<x>a)\\k<x>",
  "\\u{110000}",
  "*",
];

const masks = {
  type: "object",
  minProperties: 50,
  patternProperties: Object.fromEntries(
    Array.from({ length: 40 }, (_, i) => [`^[a-z]{${i + 1},}$`, { type: "integer" }]),
  ),
  additionalProperties: false,
};

const unique = { type: "array", items: { type: "integer" }, uniqueItems: true, minItems: 4000 };

const json = (schema) => ({ structured_outputs: { json: schema } });

// n clients that stream with an expensive schema.
const expensive =
  (schema, n, max_tokens = 400) =>
  async (c) => {
    await c.crowd(n, async (i, round) => {
      const r = await c.chat(
        { ...json(schema), max_tokens, seed: i, temperature: 1, stream: true },
        { limitMs: c.seconds * 1000 },
      );
      if (r.status) c.answered(r, "answer"); // otherwise the attack's time is over
    });
  };

function nested(depth) {
  let schema = { type: "string" };
  for (let i = 0; i < depth; i++)
    schema = i % 2 ? { type: "array", items: schema } : { type: "object", properties: { a: schema }, required: ["a"] };
  return schema;
}

const schemas = () => [
  nested(50),
  nested(400),
  nested(1500),
  {
    anyOf: Array.from({ length: 2000 }, (_, i) => ({
      type: "object",
      properties: { [`k${i}`]: { const: i } },
      required: [`k${i}`],
    })),
  },
  { allOf: Array.from({ length: 12 }, (_, i) => ({ anyOf: [{ required: [`a${i}`] }, { required: [`b${i}`] }] })) },
  { oneOf: Array.from({ length: 64 }, (_, i) => ({ type: "string", pattern: `.*${i}.{6}` })) },
  { enum: Array.from({ length: 20000 }, (_, i) => `value ${i}`) },
  { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } },
  {
    type: "object",
    properties: Object.fromEntries(
      Array.from({ length: 3000 }, (_, i) => [`p${i}`, { type: "string", pattern: `^[a-z]{${i % 50},}$` }]),
    ),
  },
  { type: "string", minLength: 100000, maxLength: 2000000 },
  { type: "array", minItems: 1000000, items: { type: "null" } },
  { type: "integer", multipleOf: 999999937 },
  { type: "number", minimum: `1${"0".repeat(300)}` },
  { not: { not: { not: { not: { type: "object", properties: { a: { not: {} } } } } } } },
  {
    type: "object",
    patternProperties: Object.fromEntries(
      Array.from({ length: 64 }, (_, i) => [`${String.fromCharCode(97 + (i % 26))}.{${i % 8}}z`, { minimum: i }]),
    ),
    minProperties: 3,
  },
  { type: "object", propertyNames: { pattern: patterns[0] } },
  { if: { pattern: ".*a.{9}" }, then: { pattern: ".*b.{9}" }, else: { pattern: ".*c.{9}" } },
];

export const grammars = [
  {
    name: "bad-grammars",
    short: true,
    brief: true,
    about: "GBNF that is broken at every length of the parser's stack",
    async run(c) {
      const list = badGrammars();
      for (let i = 0; i < list.length && !c.server.over; i += 8)
        await Promise.all(
          list
            .slice(i, i + 8)
            .map(async (grammar) =>
              c.answered(
                await c.chat({ max_tokens: 1, structured_outputs: { grammar } }),
                `grammar ${JSON.stringify(grammar.slice(0, 40))}`,
              ),
            ),
        );
    },
  },
  {
    name: "masks-1",
    about: "one client whose object has 40 patternProperties and 50 members at least",
    run: expensive(masks, 1),
  },
  { name: "masks-4", short: true, about: "four of them", run: expensive(masks, 4) },
  { name: "unique-items", seconds: 20, about: "4,000 unique integers", run: expensive(unique, 2, 8000) },
  {
    name: "regex-compile",
    short: true,
    about: "a pattern with six look-aheads, whose automaton is the product of all",
    async run(c) {
      await c.crowd(2, async () =>
        c.answered(await c.chat({ max_tokens: 8, structured_outputs: { regex: patterns[0] } }), "regex"),
      );
    },
  },
  {
    name: "patterns",
    about: "each of many large patterns",
    seconds: 10,
    async run(c) {
      let next = 0;
      await c.crowd(3, async () => {
        const regex = patterns[next++ % patterns.length];
        c.answered(
          await c.chat({ max_tokens: 20, structured_outputs: { regex } }, { limitMs: 60_000 }),
          `pattern ${regex.slice(0, 30)}`,
        );
      });
    },
  },
  {
    name: "schemas",
    about: "each of many large or wrong schemas",
    seconds: 10,
    async run(c) {
      const list = schemas();
      let next = 0;
      await c.crowd(3, async () => {
        const at = next++ % list.length;
        c.answered(await c.chat({ max_tokens: 30, ...json(list[at]) }, { limitMs: 60_000 }), `schema ${at}`);
      });
    },
  },
  {
    name: "compile-storm",
    short: true,
    about: "8 clients, each request with a schema that has not been seen",
    async run(c) {
      await c.crowd(8, async (i, round) => {
        const schema = {
          type: "object",
          properties: Object.fromEntries(
            Array.from({ length: 30 }, (_, k) => [
              `k${i}_${round}_${k}`,
              { type: "string", pattern: `^[a-z]{1,${10 + k}}-\\d{4}$` },
            ]),
          ),
          additionalProperties: false,
        };
        c.answered(await c.chat({ max_tokens: 4, ...json(schema) }), "schema");
      });
    },
  },
  {
    name: "tools-128",
    about: "128 tools, each with a schema of 40 members",
    seconds: 6,
    async run(c) {
      const tools = Array.from({ length: 128 }, (_, i) => ({
        type: "function",
        function: {
          name: `tool_${i}`,
          description: letters(200),
          parameters: {
            type: "object",
            properties: Object.fromEntries(
              Array.from({ length: 40 }, (_, k) => [`p${k}`, { type: "string", pattern: `^x{${k}}[a-z]*$` }]),
            ),
            required: ["p1"],
          },
        },
      }));
      await c.crowd(2, async (i, round) => {
        tools[0].function.name = `tool_${i}_${round}`;
        c.answered(await c.chat({ tools, tool_choice: round % 2 ? "required" : "auto", max_tokens: 20 }), "tools");
      });
    },
  },
  {
    name: "choice-4096",
    about: "4,096 choices of 1,000 characters with common beginnings",
    async run(c) {
      const choice = Array.from(
        { length: 4096 },
        (_, i) => letters(990, "ab").slice(0, 990) + String(i).padStart(10, "0"),
      );
      await c.crowd(2, async () =>
        c.answered(await c.chat({ max_tokens: 20, structured_outputs: { choice } }), "choice"),
      );
    },
  },
  {
    name: "grammar-rules",
    about: "GBNF with very many rules, alternatives and empty recursion",
    brief: true,
    seconds: 10,
    async run(c) {
      const rules = (n) =>
        `root ::= r0\n${Array.from({ length: n }, (_, i) => `r${i} ::= "a" r${(i + 1) % n} | r${(i * 7) % n} "b" |`).join("\n")}`;
      const list = [
        rules(100),
        rules(3000),
        rules(20000),
        "root ::= (root)* | ",
        "root ::= a\na ::= b | \nb ::= a a a a | ",
        `root ::= ${'("a"? '.repeat(500)}${")*".repeat(500)}`,
        `root ::= ${'"a" | '.repeat(50000)} "b"`,
        'root ::= "a"* "a"* "a"* "a"* "a"* "a"* "a"* "a"* "a"* "a"*',
        "root ::= s s s s s s s s\ns ::= s s s | [a-z] | ",
      ];
      await Promise.all(
        list.map(async (grammar) =>
          c.answered(
            await c.chat({ max_tokens: 60, structured_outputs: { grammar } }, { limitMs: 60_000 }),
            `grammar ${grammar.slice(0, 30)}`,
          ),
        ),
      );
    },
  },
];
