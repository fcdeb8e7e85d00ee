// The playground's examples.

export const SCHEMAS = [
  {
    name: "A person",
    prompt: "Invent a person and describe them as JSON.",
    schema: {
      type: "object",
      properties: {
        name: { type: "string", maxLength: 40 },
        age: { type: "integer", minimum: 0, maximum: 120 },
        hobbies: { type: "array", items: { type: "string", maxLength: 30 }, maxItems: 3 },
      },
      required: ["name", "age", "hobbies"],
      additionalProperties: false,
    },
  },
  {
    name: "Classification",
    prompt: "Is this review good or bad? “The food was cold, but the waiter was kind.”",
    schema: {
      type: "object",
      properties: { verdict: { enum: ["good", "mixed", "bad"] }, sure: { type: "boolean" } },
      required: ["verdict", "sure"],
      additionalProperties: false,
    },
  },
  {
    name: "A shopping list",
    prompt: "Write a shopping list for a fruit salad.",
    schema: {
      type: "object",
      properties: {
        items: {
          type: "array",
          minItems: 2,
          maxItems: 4,
          items: {
            type: "object",
            properties: {
              what: { type: "string", maxLength: 24 },
              count: { type: "integer", minimum: 1, maximum: 12 },
              unit: { enum: ["piece", "g", "ml"] },
            },
            required: ["what", "count", "unit"],
            additionalProperties: false,
          },
        },
      },
      required: ["items"],
      additionalProperties: false,
    },
  },
  {
    name: "A family ($ref)",
    prompt: "Describe a small family.",
    schema: {
      type: "object",
      properties: {
        mother: { $ref: "#/$defs/person" },
        children: { type: "array", maxItems: 3, items: { $ref: "#/$defs/person" } },
      },
      required: ["mother", "children"],
      additionalProperties: false,
      $defs: {
        person: {
          type: "object",
          properties: { name: { type: "string", maxLength: 16 }, age: { type: "integer", minimum: 0, maximum: 110 } },
          required: ["name", "age"],
          additionalProperties: false,
        },
      },
    },
  },
];

const tool = (name, description, properties) => ({
  type: "function",
  function: {
    name,
    description,
    parameters: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  },
});

export const TOOLS = [
  {
    name: "Weather",
    prompt: "What is the weather like in Oslo?",
    tools: [
      tool("get_weather", "The weather in a city, now.", {
        city: { type: "string", maxLength: 40 },
        unit: { enum: ["celsius", "fahrenheit"] },
      }),
    ],
  },
  {
    name: "Sums and notes",
    prompt: "What is 17 plus 25? Write it down, too.",
    tools: [
      tool("add", "Adds two numbers.", {
        a: { type: "integer", minimum: -1000, maximum: 1000 },
        b: { type: "integer", minimum: -1000, maximum: 1000 },
      }),
      tool("write_note", "Keeps a short note.", { text: { type: "string", maxLength: 60 } }),
    ],
  },
];
