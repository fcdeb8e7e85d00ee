// The playground's examples. The demo model has learnt JSON only in the forms "Give me a JSON object
// with ..." and "Write this as JSON: ...", from the members that are used here, and no tools: so the
// prompts ask in these forms. Larger models need none of that. tests/http/examples.test.mjs measures how
// often the demo model's answers are right.

const object = (properties, more) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
  ...more,
});
const text = { type: "string", minLength: 1, maxLength: 40 };
const age = { type: "integer", minimum: 0, maximum: 120 };

// An answer's limit, so that a model that goes astray stops soon.
const max_tokens = 200;

export const SCHEMAS = [
  {
    name: "A person",
    prompt: "Give me a JSON object with name, age and hobby.",
    schema: object({ name: text, age, hobby: text }),
    max_tokens,
  },
  {
    name: "A sentence as data",
    prompt: "Write this as JSON: the name is Emma, the age is 30, the city is Paris.",
    schema: object({ name: text, age, city: text }),
    max_tokens,
  },
  {
    name: "Choices and yes or no",
    prompt: "Write this as JSON: the animal is fox, the colour is red, happy is true.",
    schema: object({ animal: text, colour: { enum: ["red", "green", "blue", "brown"] }, happy: { type: "boolean" } }),
    max_tokens,
  },
  {
    name: "A list without repetition",
    prompt: "Name three fruits.",
    schema: object({
      fruits: {
        type: "array",
        items: { enum: ["apple", "banana", "cherry", "grape", "lemon", "orange", "pear"] },
        minItems: 3,
        maxItems: 3,
        uniqueItems: true,
      },
    }),
    max_tokens,
  },
  {
    name: "One definition, used thrice ($ref)",
    prompt: "Write this as JSON: the name is Ben, the city is Rome, the food is pizza.",
    schema: object(
      { name: { $ref: "#/$defs/word" }, city: { $ref: "#/$defs/word" }, food: { $ref: "#/$defs/word" } },
      { $defs: { word: { type: "string", pattern: "^[A-Za-z]{2,20}$" } } },
    ),
    max_tokens,
  },
];

const tool = (name, description, properties) => ({
  type: "function",
  function: { name, description, parameters: object(properties) },
});
const weather = tool("get_weather", "The weather in a city, now.", { city: { enum: ["Oslo", "Rome", "Madrid"] } });
const setAge = tool("set_age", "Sets the age of a person.", { age });
const paint = tool("paint", "Paints the wall.", { colour: { enum: ["red", "green", "blue", "yellow"] } });

// choice: "required", or "function NAME"; a model that has not learnt to call tools calls none by itself.
export const TOOLS = [
  {
    name: "Weather",
    prompt: "What is the weather? Write this as JSON: the city is Oslo.",
    tools: [weather],
    choice: "required",
    max_tokens,
  },
  {
    name: "A number",
    prompt: "Write this as JSON: the age is 42.",
    tools: [setAge],
    choice: "required",
    max_tokens,
  },
  {
    name: "One of two tools, by its name",
    prompt: "Write this as JSON: the colour is blue.",
    tools: [weather, paint],
    choice: "function paint",
    max_tokens,
  },
];
