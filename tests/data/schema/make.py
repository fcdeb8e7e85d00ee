#!/usr/bin/env python3
"""Makes the cases of this folder that come from elsewhere.

    make.py random [N] > random.json      random schemas and instances; verdicts of the Python package
                                          jsonschema (4.26), draft 2020-12
    make.py suite DIR > suite.json        a part of the JSON Schema Test Suite; DIR is a clone's tests/

The form is the suite's: a list of {description, schema, tests: [{data, valid}]}.
"""
import json
import os
import random
import sys

NAMES = ["a", "b", "ab", "foo", "bar", "x"]
STRINGS = ["", "a", "b", "ab", "abc", "foo", "bar", "ba", "x", "1", "\u00e9", "aaaa"]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, -1, -2, 1.5, 2.5, 0.5, 10, 12]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object",
         ["string", "null"], ["integer", "array"], ["object", "string"]]
LEAVES = [True, False, {"type": "string"}, {"type": "integer"}, {"const": 1}, {"minLength": 2},
          {"type": "object"}]
KEYWORDS = ["type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
            "multipleOf", "minLength", "maxLength", "pattern", "items", "prefixItems", "contains",
            "minItems", "maxItems", "uniqueItems", "properties", "patternProperties",
            "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames",
            "dependentRequired", "dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if",
            "unevaluatedProperties", "unevaluatedItems", "$ref"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def instance(self, depth=0):
        r = self.r
        kind = r.randrange(12 if depth < 3 else 8)
        if kind == 0:
            return None
        if kind == 1:
            return r.choice([True, False])
        if kind < 4:
            return r.choice(NUMBERS)
        if kind < 8:
            return r.choice(STRINGS)
        if kind < 10:
            return [self.instance(depth + 1) for _ in range(r.randrange(4))]
        return {r.choice(NAMES + ["c"]): self.instance(depth + 1) for _ in range(r.randrange(4))}

    def sub(self, depth):
        return self.schema(depth + 1) if depth < 2 else self.r.choice(LEAVES)

    def keyword(self, key, depth):
        r = self.r
        if key == "type":
            return r.choice(TYPES)
        if key == "enum":
            return [self.instance(1) for _ in range(r.randrange(1, 4))]
        if key == "const":
            return self.instance(1)
        if key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            return r.choice([0, 1, 2, 3, 5, 1.5, -1])
        if key == "multipleOf":
            return r.choice([1, 2, 3, 0.5])
        if key.startswith(("min", "max")):
            return r.randrange(4)
        if key == "pattern":
            return r.choice(["a", "^a", "b$", "^a*$", "^[a-f]+$", "o"])
        if key == "uniqueItems":
            return True
        if key == "required":
            return r.sample(NAMES, r.randrange(1, 3))
        if key == "dependentRequired":
            return {r.choice(NAMES): r.sample(NAMES, r.randrange(3))}
        if key in ("properties", "dependentSchemas"):
            return {r.choice(NAMES): self.sub(depth) for _ in range(r.randrange(1, 4))}
        if key == "patternProperties":
            return {r.choice(["a", "^b", "o", "^.$", "r$"]): self.sub(depth)
                    for _ in range(r.randrange(1, 3))}
        if key in ("allOf", "anyOf", "oneOf", "prefixItems"):
            return [self.sub(depth) for _ in range(r.randrange(1, 4))]
        if key == "$ref":
            return r.choice(["#/$defs/x", "#/$defs/y", "#"] if depth else ["#/$defs/x"])
        return self.sub(depth)

    def schema(self, depth=0):
        r = self.r
        if r.random() < 0.08:
            return r.choice([True, False, {}])
        out = {}
        for _ in range(r.choice([1, 1, 2, 2, 3, 4])):
            key = r.choice(KEYWORDS)
            out[key] = self.keyword(key, depth)
            if key == "if":
                out["then"] = self.sub(depth)
                out["else"] = self.sub(depth)
            if key == "contains" and r.random() < 0.5:
                out[r.choice(["minContains", "maxContains"])] = r.randrange(3)
            if key == "uniqueItems" and r.random() < 0.8:
                out["items"] = {"type": r.choice(["integer", "string", "boolean"])}
        return out


def make_random(n):
    from jsonschema import Draft202012Validator
    cases = []
    maker = Maker(1)
    while len(cases) < n:
        schema = maker.schema()
        if not isinstance(schema, dict):
            continue
        schema["$defs"] = {"x": maker.schema(1), "y": maker.schema(1)}
        data = [maker.instance() for _ in range(10)]
        try:
            validator = Draft202012Validator(schema)
            tests = [{"data": d, "valid": validator.is_valid(d)} for d in data]
        except BaseException:  # a schema that applies itself without end
            continue
        if len({t["valid"] for t in tests}) == 2:
            cases.append({"description": f"random {len(cases)}", "schema": schema, "tests": tests})
    return cases


# File of the suite, and which of its groups (all: None).
PARTS = [
    ("draft2020-12/additionalProperties.json", None), ("draft2020-12/anyOf.json", None),
    ("draft2020-12/boolean_schema.json", [0]), ("draft2020-12/const.json", range(12)),
    ("draft2020-12/defs.json", None), ("draft2020-12/dependentRequired.json", None),
    ("draft2020-12/enum.json", range(12)), ("draft2020-12/exclusiveMinimum.json", None),
    ("draft2020-12/items.json", None), ("draft2020-12/maxItems.json", None),
    ("draft2020-12/maxLength.json", None), ("draft2020-12/minContains.json", None),
    ("draft2020-12/minProperties.json", None), ("draft2020-12/minimum.json", None),
    ("draft2020-12/not.json", None), ("draft2020-12/pattern.json", None),
    ("draft2020-12/prefixItems.json", None), ("draft2020-12/properties.json", None),
    ("draft2020-12/ref.json", None), ("draft2020-12/type.json", None),
    ("draft2020-12/unevaluatedProperties.json", None), ("draft7/additionalItems.json", None),
    ("draft7/items.json", None), ("draft7/ref.json", None),
]


def make_suite(folder):
    cases = []
    for name, groups in PARTS:
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            whole = json.load(f)
        for i in groups if groups is not None else range(len(whole)):
            if "\\u0000" in json.dumps(whole[i]):
                continue
            schema = whole[i]["schema"]
            if name.startswith("draft7") and isinstance(schema, dict):
                schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
            cases.append({
                "description": f"{name}: {whole[i]['description']}",
                "schema": schema,
                "tests": [{"data": t["data"], "valid": t["valid"]} for t in whole[i]["tests"]]})
    return cases


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "random":
        cases = make_random(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
    elif len(sys.argv) == 3 and sys.argv[1] == "suite":
        cases = make_suite(sys.argv[2])
    else:
        sys.exit(__doc__)
    print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")


main()
