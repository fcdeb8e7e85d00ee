/* json.h - strict JSON in, plain JSON out, and the table-driven reader of request fields.
 * Private to api/. cJSON holds the tree; the parser is ours because cJSON's own one accepts
 * trailing bytes, duplicate keys, invalid UTF-8 and lone surrogates, and keeps numbers as doubles
 * only. json.c parses and writes, json_read.c goes by tables.
 *
 * THREAD SAFETY: pure functions, any thread. */
#ifndef INFERD_API_HTTP_JSON_H
#define INFERD_API_HTTP_JSON_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_MAX_DEPTH = 64, JSON_MAX_VALUES = 512 * 1024 };

/* Parses text[0..n) by RFC 8259 and nothing more: one value, valid UTF-8, paired surrogates, no
 * duplicate keys, at most JSON_MAX_DEPTH objects and arrays in each other, up to JSON_MAX_VALUES
 * values (bounds the memory of a body). U+0000 in a string stands there as TEXT_NUL. Two things
 * that the RFC allows are refused: U+0000 in a key and numbers outside the range of a double.
 * ERR_FORMAT names the byte. The caller frees with cJSON_Delete. */
int json_parse(const char *text, size_t n, cJSON **out, err *e);

/* v as an exact int64: integer literals beyond 2^53 keep their digits. false: no number, a
 * fraction, or out of range. */
bool json_int64(const cJSON *v, int64_t *out);

/* "a string", "an integer", "null", ... for messages. */
const char *json_type_name(const cJSON *v);
/* ERR_INVALID: the field has v where `wanted` ("a string") is expected. */
int json_wrong_type(const char *name, const char *wanted, const cJSON *v, err *e);

/* Does one of v's strings hold TEXT_NUL? v is of the parser, which bounds its depth. */
bool json_holds_nul(const cJSON *v);

/* Values that ask for nothing, for json_field.accepts. */
bool json_is_false(const cJSON *v);
bool json_is_empty_list(const cJSON *v);

/* Appends a JSON string with its quotes. Malformed UTF-8 becomes U+FFFD. */
void json_add_string(str *s, const char *bytes, size_t n);
void json_add_cstr(str *s, const char *text); /* TEXT_NUL is U+0000 */
/* Appends a finite number; not-a-number and infinities, which JSON lacks, become +-9999. */
void json_add_number(str *s, double v);

/* Appends v; integers keep the digits that they were parsed with, TEXT_NUL is U+0000. */
void json_add_value(str *s, const cJSON *v);

/* What a field holds, and the member that its value goes to. */
enum json_type {
    JSON_BOOL,   /* bool */
    JSON_INT,    /* int64_t in [min, max] */
    JSON_NUMBER, /* double in [min, max] */
    JSON_STRING, /* const char *, borrowed from the tree; min to max characters */
    JSON_ENUM,   /* const char *, one of words */
    JSON_OBJECT, /* const cJSON *, borrowed; table: its members */
    JSON_ARRAY,  /* const cJSON *, borrowed; min to max items; table: members of its objects */
    JSON_VALUE,  /* const cJSON *, borrowed: of one of the types in flags, any without them */
    JSON_REFUSED /* not stored: refused with `why` unless words or accepts(value) let it pass */
};

enum json_flags {
    JSON_NULLABLE = 1, /* null counts as absent */
    JSON_REQUIRED = 2,
    /* JSON_VALUE: the types that it may have */
    JSON_OR_BOOL = 4,
    JSON_OR_NUMBER = 8,
    JSON_OR_STRING = 16,
    JSON_OR_ARRAY = 32,
    JSON_OR_OBJECT = 64,
    /* Its strings may hold TEXT_NUL: text that reaches the tokenizer with its length. Of an object
     * or an array: what is in it is refused by the rows of its own table. */
    JSON_WITH_NUL = 128
};

/* One field of a request object. The reader, its errors and GET /v1/inferd/fields go by it; what no
 * row can say (a value that depends on another field) is checked by the endpoint. */
struct json_field {
    const char *name;
    enum json_type type;
    int flags;
    size_t offset;   /* of the member in the caller's struct */
    size_t has;      /* 1 + offset of a bool that tells whether it was given; 0: none */
    double min, max; /* both 0: no bounds; a string or an array with max 0 has no upper one */
    bool (*accepts)(const cJSON *v); /* JSON_REFUSED: values that ask for nothing; NULL: none */
    const char *why;                 /* JSON_REFUSED: the reason */
    const char *words;               /* JSON_ENUM: "a|b|c"; JSON_REFUSED: those that pass */
    const char *initial;             /* what absent means, as JSON; NULL: nothing */
    const char *help;                /* one line; NULL where the name says it */
    const struct json_table *table;  /* members of the object, or of the objects in the array. The
                                        endpoint reads them with json_read by the same table */
};

/* Tables are chained, so that endpoints share rows. */
struct json_table {
    const struct json_field *fields;
    size_t n;
    const struct json_table *next;
};
#define JSON_TABLE(rows, after)                                                                    \
    { rows, sizeof(rows) / sizeof *(rows), after }

/* Prints a field's path for messages; dst holds JSON_PATH_BYTES, longer ones are cut. */
enum { JSON_PATH_BYTES = 64 }; /* as err.param; our longest path is far shorter */
void json_path(char *dst, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Reads object's members into *out, whose defaults the caller has set. path ("" or "messages[2].")
 * goes before names in messages and err.param. ERR_INVALID: unknown field, wrong type, out of
 * bounds, missing, no object at all; ERR_UNSUPPORTED: a refused field. */
int json_read(const cJSON *object, const struct json_table *table, const char *path, void *out,
              err *e);

/* Deletes the members that table does not know, at every level that tables describe, and appends
 * their paths to ignored, ", " between, only letters, digits and "_-.[]" of them kept (the others
 * become '?'): harmless in a header. */
void json_drop_unknown(cJSON *object, const struct json_table *table, str *ignored);

/* Appends the table as the JSON array of GET /v1/inferd/fields, nested tables to a bounded depth.
 */
void json_add_table(str *s, const struct json_table *table);

#endif
