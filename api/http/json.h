/* json.h - strict JSON in, plain JSON out, and the table-driven reader of request fields. cJSON
 * holds the tree, core/text/json.h parses. json.c parses and writes; json_read.c reads by tables,
 * json_doc.c documents them.
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

/* Parses text[0..n) strictly by RFC 8259: one value, after a byte order mark if there is one, valid
 * UTF-8, paired surrogates, no duplicate keys, at most JSON_MAX_DEPTH nested objects and arrays, up
 * to JSON_MAX_VALUES values (which bounds the memory of a body). U+0000 in a string becomes
 * TEXT_NUL. Two things that the RFC allows are refused: U+0000 in a key, and numbers outside the
 * range of a double. ERR_FORMAT names the byte. The caller frees with cJSON_Delete. */
int json_parse(const char *text, size_t n, cJSON **out, err *e);

/* v as an exact int64: integer literals beyond 2^53 keep their digits. false: not a number, a
 * fraction, or out of range. */
bool json_int64(const cJSON *v, int64_t *out);

/* "a string", "an integer", "null", ... for messages. */
const char *json_type_name(const cJSON *v);
/* ERR_INVALID: the field name must be `wanted` ("a string"), but is v. */
int json_wrong_type(const char *name, const char *wanted, const cJSON *v, err *e);

/* Does one of v's strings contain TEXT_NUL? v comes from the parser, which bounds its depth. */
bool json_holds_nul(const cJSON *v);

/* Appends a JSON string with its quotes. Malformed UTF-8 becomes U+FFFD. */
void json_add_string(str *s, const char *bytes, size_t n);
void json_add_cstr(str *s, const char *text); /* TEXT_NUL is U+0000 */
/* Appends a number; NaN and infinities, which JSON lacks, become +-9999. */
void json_add_number(str *s, double v);

/* Appends v; integers keep the digits that they were parsed with, TEXT_NUL is U+0000. */
void json_add_value(str *s, const cJSON *v);

/* A field's type, and the type of the member that its value goes to. */
enum json_type {
    JSON_BOOL,    /* bool */
    JSON_INT,     /* int64_t in [min, max] */
    JSON_NUMBER,  /* double in [min, max] */
    JSON_STRING,  /* const char *, borrowed from the tree; min to max characters */
    JSON_ENUM,    /* const char *, one of words */
    JSON_OBJECT,  /* const cJSON *, borrowed; table: its members */
    JSON_ARRAY,   /* const cJSON *, borrowed; min to max items; table: members of its objects */
    JSON_VALUE,   /* const cJSON *, borrowed: one of the types in flags, or any if there are none */
    JSON_REFUSED, /* it would change the answer: refused with `why`; not stored */
    JSON_ADVISORY /* it changes no answer: any value is accepted and named as ignored, with `why`;
                     not stored, unless JSON_KEPT */
};

enum json_flags {
    JSON_NULLABLE = 1, /* null counts as absent */
    JSON_REQUIRED = 2,
    /* JSON_VALUE: the allowed types. JSON_BOOL with JSON_OR_STRING: also "true" and "false". */
    JSON_OR_BOOL = 4,
    JSON_OR_NUMBER = 8,
    JSON_OR_STRING = 16,
    JSON_OR_ARRAY = 32,
    JSON_OR_OBJECT = 64,
    JSON_SHAPES = JSON_OR_BOOL | JSON_OR_NUMBER | JSON_OR_STRING | JSON_OR_ARRAY | JSON_OR_OBJECT,
    /* Its strings may contain TEXT_NUL: text that reaches the tokenizer with its length. In an
     * object or array the rows of its own table decide. */
    JSON_WITH_NUL = 128,
    JSON_KEPT = 256, /* JSON_ADVISORY: stored (const cJSON *, of any type) to be echoed */
    /* Clients echo what is in it from earlier answers: unknown and advisory members are always
     * tolerated, and null counts as absent. */
    JSON_ECHOED = 512
};

/* One field of a request object. The reader, its errors and GET /v1/inferd/fields are derived from
 * it. The endpoint checks what a row cannot express (a value that depends on another field). */
struct json_field {
    const char *name;
    enum json_type type;
    int flags;
    size_t offset;   /* of the member in the caller's struct */
    size_t has;      /* 1 + offset of a bool that is set if the field was given; 0: none */
    double min, max; /* both 0: no bounds; strings and arrays: max 0 is no upper bound */
    /* JSON_REFUSED, JSON_ADVISORY: is v as good as absent? See json_is_harmless. */
    bool (*accepts)(const cJSON *v);
    const char *why;     /* JSON_REFUSED, JSON_ADVISORY: the reason */
    const char *words;   /* JSON_ENUM: "a|b|c"; JSON_REFUSED, JSON_ADVISORY: harmless words */
    const char *initial; /* the default, as JSON; NULL: none */
    const char *help;    /* one line; NULL if the name says enough */
    const struct json_table *table; /* members of the object, or of the objects in the array. The
                                       endpoint reads them with json_read by the same table */
};

/* Tables are chained, so that endpoints can share rows. A row hides those of the same name in the
 * tables after its own. */
struct json_table {
    const struct json_field *fields;
    size_t n;
    const struct json_table *next;
    /* The table of this object, if it depends on the object (on its type); NULL: the object is
     * advisory as a whole, and its reader skips it. */
    const struct json_table *(*of)(const cJSON *object);
};
#define JSON_TABLE(rows, after)                                                                    \
    { .fields = rows, .n = sizeof(rows) / sizeof *(rows), .next = after }

/* Prints a field's path for messages; dst holds JSON_PATH_BYTES, longer paths are cut. */
enum { JSON_PATH_BYTES = 64 }; /* as err.param; our longest path is far shorter */
void json_path(char *dst, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Are min and max bounds? */
static inline bool json_has_bounds(const struct json_field *f) {
    return f->min != 0 || f->max != 0;
}

/* The row with that name, or NULL. */
const struct json_field *json_find_field(const struct json_table *table, const char *name);
/* Does v mean the same as leaving the refused or advisory field out? A value that says nothing
 * (null, false, "", [], {}) does, as do the row's words, and what accepts() decides instead. */
bool json_is_harmless(const struct json_field *f, const cJSON *v);

/* Reads object's members into *out, whose defaults the caller has set. Rows of the same offset are
 * names of one value: different values are ERR_INVALID, which names both. path ("" or
 * "messages[2].") is the prefix of names in messages and err.param. ERR_INVALID: an unknown or
 * missing field, a wrong type, a value out of bounds, not an object; ERR_UNSUPPORTED: a refused
 * field. Unknown members of a body are gone after ignored_sift (ignored.h). */
int json_read(const cJSON *object, const struct json_table *table, const char *path, void *out,
              err *e);
/* ERR_INVALID: an unknown field; ERR_UNSUPPORTED: a refused one, with its reason. */
int json_refuse_unknown(const char *name, err *e);
int json_refuse_field(const struct json_field *f, const char *name, err *e);

/* Appends the table as the JSON array of GET /v1/inferd/fields, nested tables to a bounded depth.
 */
void json_add_table(str *s, const struct json_table *table);
/* Appends the table as a JSON Schema (draft 2020-12) of the body: looser than the reader where a
 * row says less than the endpoint checks, and never stricter. */
void json_add_schema(str *s, const struct json_table *table);

#endif
