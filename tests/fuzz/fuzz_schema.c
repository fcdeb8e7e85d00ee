/* fuzz_schema.c - a JSON Schema is refused with an error, or its masks can be walked. Input:
 * grammar_fuzz.h. */
#include "tests/fuzz/grammar_fuzz.h"
#include "tests/fuzz/mutate.h"

#ifdef LIBFUZZER
static const fuzz_rule rules[] = {
    {"{@B}", "{@B,@B}", "{@B,@B,@B}", "{@B,@B,@B,\"$defs\":{\"a\":@A,\"b\":@A}}",
     "{@B,@B,@B,@B,@B}", "true", "false"},
    {"\"type\":\"@C\"", "\"type\":\"object\"", "\"type\":\"array\"", "@D", "@E", "@F", "@G", "@H",
     "@D", "@E", "@F", "@G", "@H", "\"type\":[\"@C\",\"@C\"]"},
    {"string", "integer", "number", "object", "array", "null", "boolean"},
    {"\"properties\":{\"@I\":@A}", "\"required\":[\"@I\",\"@I\"]",
     "\"properties\":{\"@I\":@A,\"@I\":@A}", "\"patternProperties\":{\"@J\":@A}",
     "\"patternProperties\":{\"@J\":@A,\"@J\":@A}", "\"additionalProperties\":@A",
     "\"minProperties\":@K", "\"maxProperties\":@K", "\"propertyNames\":@A",
     "\"unevaluatedProperties\":@A", "\"dependentRequired\":{\"@I\":[\"@I\"]}",
     "\"dependentSchemas\":{\"@I\":@A}"},
    {"\"items\":@A", "\"minItems\":@K", "\"maxItems\":@K", "\"prefixItems\":[@A,@A]",
     "\"contains\":@A", "\"minContains\":@K", "\"maxContains\":@K", "\"uniqueItems\":true",
     "\"unevaluatedItems\":@A"},
    {"\"minimum\":@K", "\"maximum\":@K", "\"exclusiveMinimum\":@K", "\"exclusiveMaximum\":@K",
     "\"multipleOf\":@K", "\"enum\":[@L]", "\"const\":@L", "\"minLength\":@K", "\"maxLength\":@K"},
    {"\"anyOf\":[@A,@A]", "\"allOf\":[@A,@A]", "\"oneOf\":[@A,@A]", "\"not\":@A",
     "\"if\":@A,\"then\":@A,\"else\":@A", "\"$ref\":\"#/$defs/a\"", "\"$ref\":\"#\"",
     "\"$ref\":\"#/$defs/b\"", "\"$dynamicRef\":\"#x\"", "\"$anchor\":\"x\"",
     "\"$id\":\"http://a/b\""},
    {"\"pattern\":\"@J\"", "\"format\":\"@M\"", "\"nullable\":true", "\"title\":\"x\""},
    {"a", "b", "ab", "\xc3\xa9", "", "a\\\"b"},
    {"^a", "[a-z]{@K,}", "^(ab|c)*$", "x", "^.{@K}$", "(?=.*a)", "\\\\d+", "^[a-z]{1,@K}$", "[",
     "(?!b)"},
    {"0", "1", "2", "3", "5", "50", "-1", "0.5", "1e2", "100000", "4294967295", "2.50"},
    {"1", "\"a\"", "null", "1,\"a\",true", "[1,2]", "{\"a\":1}", "1.0,\"ab\",\"b\"", "-0", "1e400"},
    {"date", "time", "email", "uuid", "regex", "ipv6", "hostname", "uri", "nothing"},
};
FUZZ_MUTATOR(rules)
#endif

static grammar_node make(grammar_builder *b, void *arg) {
    return grammar_json(b, &(struct grammar_schema){.schema = arg, .in_order = false});
}

static grammar_node make_in_order(grammar_builder *b, void *arg) {
    return grammar_json(b, &(struct grammar_schema){.schema = arg, .in_order = true});
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct fuzz_input in;
    cJSON *json = fuzz_input_init(&in, bytes, n) ? cJSON_ParseWithLength(in.notation, in.n) : NULL;
    if (json) fuzz_build(&in, n % 2 ? make : make_in_order, json);
    cJSON_Delete(json);
    free(in.notation);
    return 0;
}
