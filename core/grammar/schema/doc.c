/* schema/doc.c - the document of a schema: its nodes, base URIs, anchors and references; and error
 * messages with JSON pointers. Does not interpret what keywords require. */
#include "core/grammar/schema/schema_int.h"

#include "core/base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URI_MAX_BYTES = 64 << 10, POINTER_MAX_BYTES = 320 };

int s_full(struct s_ctx *c) {
    c->full = true;
    return err_set(c->e, ERR_NOMEM, "the schema needs too much memory");
}

void *s_new(struct s_ctx *c, uint64_t n, size_t size) {
    uint64_t bytes;
    void *p = mem_mul(n, size, &bytes) ? arena_alloc(c->mem, bytes ? bytes : 1) : NULL;
    if (!p) s_full(c);
    return p;
}

int s_grow(struct s_ctx *c, void *list_at, uint32_t n, uint32_t *capacity, size_t size) {
    if (n < *capacity) return 0;
    uint32_t more = *capacity ? *capacity * 2 : 8;
    void *p = n < UINT32_MAX / 2 ? s_new(c, more, size) : NULL;
    if (!p) return ERR_NOMEM;
    void *old;
    memcpy(&old, list_at, sizeof old);
    if (n) memcpy(p, old, n * size);
    memcpy(list_at, &p, sizeof p);
    *capacity = more;
    return 0;
}

/* ---- messages ---- */

static void add_escaped(str *s, const char *key) {
    for (; *key; key++) {
        if (*key == '~')
            str_add(s, "~0");
        else if (*key == '/')
            str_add(s, "~1");
        else
            str_add_char(s, *key);
    }
}

static void add_pointer(const struct s_ctx *c, uint32_t node, str *s) {
    uint32_t path[GRAMMAR_MAX_DEPTH], n = 0;
    for (; node && n < GRAMMAR_MAX_DEPTH; node = c->doc.nodes.at[node].parent)
        path[n++] = node;
    while (n-- > 0) {
        const cJSON *at = s_at(c, path[n]);
        const cJSON *parent = s_at(c, c->doc.nodes.at[path[n]].parent);
        str_add_char(s, '/');
        if (cJSON_IsArray(parent)) {
            int index = 0;
            for (const cJSON *p = parent->child; p && p != at; p = p->next)
                index++;
            str_addf(s, "%d", index);
        } else {
            add_escaped(s, at->string);
        }
    }
}

int s_fail(struct s_ctx *c, int code, uint32_t node, const char *fmt, ...) {
    char text[300];
    str pointer;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    str_init(&pointer, POINTER_MAX_BYTES);
    add_pointer(c, node, &pointer);
    err_set_param(c->e, code, str_cstr(&pointer), "#%.120s: %s", str_cstr(&pointer), text);
    str_fini(&pointer);
    return code;
}

int s_fail_at(struct s_ctx *c, int rc, uint32_t node) {
    char text[300];
    if (!c->e || c->e->msg[0] == '#') return rc; /* the place is named already */
    snprintf(text, sizeof text, "%.290s", c->e->msg);
    return s_fail(c, rc, node, "%s", text);
}

static int fail_refused(struct s_ctx *c, uint32_t node) {
    int reason = c->g->work->reason;
    if (reason != ERR_WORK) return work_error(reason, c->e);
    return s_fail(c, reason, node,
                  "the schema takes more work to compile than is allowed; nest fewer alternatives, "
                  "use fewer and smaller patterns and bounds");
}

int s_work(struct s_ctx *c, uint64_t n, uint32_t node) {
    return work_spend(c->g->work, n) ? 0 : fail_refused(c, node);
}

int s_spend(struct s_ctx *c, uint64_t n, uint32_t node) {
    c->g->schema_work += n;
    /* Includes what was added to schema_work directly since the last call. */
    if (!work_spend(c->g->work, c->g->schema_work - c->work_spent)) return fail_refused(c, node);
    c->work_spent = c->g->schema_work;
    if (c->g->schema_work <= SCHEMA_MAX_WORK) return 0;
    return s_fail(c, ERR_TOO_LONG, node, "has too many combinations; nest fewer alternatives");
}

/* ---- keywords ---- */

const cJSON *s_key(const cJSON *schema, const char *key) {
    for (const cJSON *p = cJSON_IsObject(schema) ? schema->child : NULL; p; p = p->next)
        if (strcmp(p->string, key) == 0) return p;
    return NULL;
}

static bool is_kind(const cJSON *v, const char *kind) {
    switch (kind[0]) {
    case 'o':
        return cJSON_IsObject(v);
    case 'a':
        return cJSON_IsArray(v);
    case 'n':
        return cJSON_IsNumber(v);
    case 'b':
        return cJSON_IsBool(v);
    default:
        return strcmp(kind, "string") == 0 ? cJSON_IsString(v)
                                           : cJSON_IsObject(v) || cJSON_IsBool(v);
    }
}

int s_typed(struct s_ctx *c, const cJSON *schema, const char *key, const char *kind,
            const cJSON **out) {
    *out = s_key(schema, key);
    if (!*out || is_kind(*out, kind)) return 0;
    return s_fail(c, ERR_INVALID, s_node_of(c, *out), "must be %s %s",
                  strchr("ao", kind[0]) ? "an" : "a", kind);
}

int s_count(struct s_ctx *c, const cJSON *schema, const char *key, uint32_t *n, bool *has) {
    const cJSON *v;
    int rc = s_typed(c, schema, key, "number", &v);
    *has = v != NULL;
    if (rc || !v) return rc;
    double d = v->valuedouble;
    if (!(d >= 0) || d != floor(d))
        return s_fail(c, ERR_INVALID, s_node_of(c, v), "must be a non-negative integer");
    *n = d >= (double)(GRAMMAR_UNLIMITED - 1) ? GRAMMAR_UNLIMITED - 1 : (uint32_t)d;
    return 0;
}

/* ---- nodes ---- */

static uint32_t node_slot(const struct s_doc *d, const cJSON *at) {
    uint64_t h = (uint64_t)(uintptr_t)at * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(h >> 32) & (d->table_size - 1);
    while (d->table[i] && d->nodes.at[d->table[i] - 1].at != at)
        i = (i + 1) & (d->table_size - 1);
    return i;
}

uint32_t s_node_of(const struct s_ctx *c, const cJSON *at) {
    uint32_t found = c->doc.table[node_slot(&c->doc, at)];
    return found ? found - 1 : 0;
}

static uint32_t member_slot(const struct s_ctx *c, const cJSON *object, const char *name) {
    const struct s_doc *d = &c->doc;
    uint64_t h = (uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15u;
    for (const char *p = name; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    for (uint32_t i = (uint32_t)(h ^ h >> 32);; i++) {
        uint32_t at = i & (d->table_size - 1);
        work_spend(c->g->work, 1); /* a refusal shows when the caller spends next */
        if (!d->members[at]) return at;
        const struct s_node *node = &d->nodes.at[d->members[at] - 1];
        if (d->nodes.at[node->parent].at == object && strcmp(node->at->string, name) == 0)
            return at;
    }
}

const cJSON *s_member(const struct s_ctx *c, const cJSON *object, const char *name) {
    uint32_t found = object ? c->doc.members[member_slot(c, object, name)] : 0;
    return found ? s_at(c, found - 1) : NULL;
}

bool s_is_legacy(const struct s_ctx *c, uint32_t node) {
    return c->doc.resources.at[c->doc.nodes.at[node].resource].legacy;
}

/* ---- URIs (RFC 3986, section 5.2) ---- */

/* Length of "scheme:" at the start of uri, or 0. */
static size_t scheme_len(const char *uri) {
    size_t n = strspn(uri, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    bool letter = (uri[0] | 32) >= 'a' && (uri[0] | 32) <= 'z';
    return n && letter && uri[n] == ':' ? n + 1 : 0;
}

/* Length of "scheme://authority" at the start of uri. */
static size_t authority_end(const char *uri) {
    size_t n = scheme_len(uri);
    if (strncmp(uri + n, "//", 2) != 0) return n;
    return n + 2 + strcspn(uri + n + 2, "/?#");
}

static void remove_dots(char *path) {
    char *out = path, *in = path;
    while (*in) {
        size_t n = (*in == '/') + strcspn(in + (*in == '/'), "/");
        bool slash = *in == '/';
        if (n == (size_t)1 + slash && in[slash] == '.') {
            if (!in[n] && slash) *out++ = '/';
        } else if (n == (size_t)2 + slash && in[slash] == '.' && in[slash + 1] == '.') {
            while (out > path && *--out != '/') {
            }
            if (!in[n] && slash) *out++ = '/';
        } else {
            memmove(out, in, n);
            out += n;
        }
        in += n;
    }
    *out = 0;
}

/* Resolves ref, without its fragment, against base. NULL: no memory. */
static const char *uri_join(struct s_ctx *c, const char *base, const char *ref) {
    size_t n = strcspn(ref, "#");
    str s;
    str_init(&s, URI_MAX_BYTES);
    if (n == 0) {
        str_add(&s, base);
    } else if (scheme_len(ref)) {
        str_add_n(&s, ref, n);
    } else {
        size_t authority = authority_end(base), path;
        if (strncmp(ref, "//", 2) == 0) {
            str_add_n(&s, base, scheme_len(base));
        } else if (ref[0] == '/') {
            str_add_n(&s, base, authority);
        } else {
            path = authority + strcspn(base + authority, "?#");
            while (path > authority && base[path - 1] != '/')
                path--;
            str_add_n(&s, base, path);
            if (path == authority && strstr(base, "://")) str_add_char(&s, '/');
        }
        str_add_n(&s, ref, n);
        if (s.data) remove_dots(s.data + authority_end(s.data));
    }
    char *copy = s.failed ? NULL : arena_strndup(c->mem, str_cstr(&s), strlen(str_cstr(&s)));
    str_fini(&s);
    if (!copy) s_full(c);
    return copy;
}

/* ---- the walk ---- */

enum place { PLACE_VALUE, PLACE_SCHEMA, PLACE_SCHEMAS /* list or object of schemas */ };

static enum place place_of(const cJSON *keyword) {
    static const char *const one[] = {"additionalProperties",
                                      "additionalItems",
                                      "contains",
                                      "propertyNames",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      "unevaluatedItems",
                                      "unevaluatedProperties",
                                      "contentSchema"};
    static const char *const many[] = {"allOf",
                                       "anyOf",
                                       "oneOf",
                                       "prefixItems",
                                       "properties",
                                       "$defs",
                                       "definitions",
                                       "dependentSchemas",
                                       "patternProperties",
                                       "dependencies"};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        if (strcmp(keyword->string, one[i]) == 0) return PLACE_SCHEMA;
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++)
        if (strcmp(keyword->string, many[i]) == 0) return PLACE_SCHEMAS;
    if (strcmp(keyword->string, "items") == 0)
        return cJSON_IsArray(keyword) ? PLACE_SCHEMAS : PLACE_SCHEMA;
    return PLACE_VALUE;
}

/* Drafts 3 to 7, which ignore keywords beside $ref. */
static bool is_legacy_name(const cJSON *name, bool otherwise) {
    static const char *const old[] = {"draft-07", "draft-06", "draft-05", "draft-04", "draft-03"};
    if (!cJSON_IsString(name)) return otherwise;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strstr(name->valuestring, old[i])) return true;
    return false;
}

static int add_anchor(struct s_ctx *c, uint32_t node, const cJSON *name, bool dynamic) {
    if (!cJSON_IsString(name)) return 0;
    const char *text = name->valuestring + (name->valuestring[0] == '#');
    return s_push(c, &c->doc.anchors,
                  ((struct s_anchor){c->doc.nodes.at[node].resource, node, text, dynamic}));
}

/* Notes the anchors of the schema at node, and a new resource if it has an id. */
static int enter_schema(struct s_ctx *c, uint32_t node) {
    const cJSON *at = s_at(c, node);
    if (!cJSON_IsObject(at)) return 0;
    const struct s_resource outer = c->doc.resources.at[c->doc.nodes.at[node].resource];
    bool legacy = is_legacy_name(s_key(at, "$schema"), outer.legacy);
    const cJSON *id = s_key(at, "$id");
    if (!id && legacy) id = s_key(at, "id");
    if (legacy && s_key(at, "$ref")) id = NULL;
    if (node == 0) c->doc.resources.at[0].legacy = legacy;
    int rc = 0;
    if (cJSON_IsString(id) && id->valuestring[0] == '#' && id->valuestring[1]) {
        rc = add_anchor(c, node, id, false);
    } else if (cJSON_IsString(id)) {
        const char *uri = uri_join(c, outer.uri, id->valuestring);
        if (!uri) return ERR_NOMEM;
        if (node == 0) {
            c->doc.resources.at[0].uri = uri;
        } else {
            c->doc.nodes.at[node].resource = c->doc.resources.n;
            rc = s_push(c, &c->doc.resources, ((struct s_resource){node, uri, legacy}));
        }
    }
    if (!rc) rc = add_anchor(c, node, s_key(at, "$anchor"), false);
    if (!rc) rc = add_anchor(c, node, s_key(at, "$dynamicAnchor"), true);
    return rc;
}

/* The parser of the document has bounded its nesting. */
static int walk_document(struct s_ctx *c, const cJSON *at, uint32_t parent, enum place place) {
    uint32_t node = c->doc.nodes.n;
    uint32_t resource = node ? c->doc.nodes.at[parent].resource : 0;
    int rc = s_push(c, &c->doc.nodes, ((struct s_node){at, parent, resource}));
    if (!rc && place == PLACE_SCHEMA) rc = enter_schema(c, node);
    for (const cJSON *p = at->child; p && !rc; p = p->next) {
        enum place inner = PLACE_VALUE;
        if (place == PLACE_SCHEMA && cJSON_IsObject(at)) inner = place_of(p);
        if (place == PLACE_SCHEMAS) inner = PLACE_SCHEMA;
        rc = walk_document(c, p, node, inner);
    }
    return rc;
}

int s_doc_init(struct s_ctx *c, const cJSON *schema) {
    struct s_doc *d = &c->doc;
    int rc = s_push(c, &d->resources, ((struct s_resource){0, "", false}));
    if (!rc) rc = walk_document(c, schema, 0, PLACE_SCHEMA);
    if (rc) return rc;
    for (d->table_size = 16; d->table_size < 2 * (uint64_t)d->nodes.n; d->table_size *= 2) {
    }
    d->table = s_new(c, d->table_size, sizeof *d->table);
    d->members = s_new(c, d->table_size, sizeof *d->members);
    if (!d->table || !d->members) return ERR_NOMEM;
    rc = s_work(c, d->nodes.n, 0);
    for (uint32_t i = 0; i < d->nodes.n && !rc; i++) {
        const cJSON *at = d->nodes.at[i].at, *parent = d->nodes.at[d->nodes.at[i].parent].at;
        d->table[node_slot(d, at)] = i + 1;
        if (!i || !cJSON_IsObject(parent)) continue;
        uint32_t *member = &d->members[member_slot(c, parent, at->string)];
        if (!*member) *member = i + 1;
        if (i % 1024 == 0) rc = s_work(c, 0, 0);
    }
    return rc;
}

/* ---- references ---- */

static int hex_value(char h) {
    return h >= '0' && h <= '9'                 ? h - '0'
           : (h | 32) >= 'a' && (h | 32) <= 'f' ? (h | 32) - 'a' + 10
                                                : -1;
}

static void percent_decode(char *s) {
    char *out = s;
    for (; *s; s++) {
        if (*s == '%' && hex_value(s[1]) >= 0 && hex_value(s[2]) >= 0) {
            *out++ = (char)(hex_value(s[1]) << 4 | hex_value(s[2]));
            s += 2;
        } else {
            *out++ = *s;
        }
    }
    *out = 0;
}

/* One step of a JSON pointer; token ends with a NUL and is rewritten. */
static const cJSON *step_pointer(struct s_ctx *c, const cJSON *at, char *token) {
    if (cJSON_IsArray(at)) {
        char *end;
        unsigned long i = strtoul(token, &end, 10);
        if (*token < '0' || *token > '9' || *end) return NULL;
        const cJSON *p = at->child;
        for (; p && i > 0; i--, c->g->schema_work += i % 8 == 0)
            p = p->next;
        return p;
    }
    if (!cJSON_IsObject(at)) return NULL;
    char *out = token;
    for (const char *in = token; *in; in++) {
        if (in[0] == '~' && (in[1] == '0' || in[1] == '1'))
            *out++ = *++in == '0' ? '~' : '/';
        else
            *out++ = *in;
    }
    *out = 0;
    return s_member(c, at, token);
}

static const cJSON *find_pointer(struct s_ctx *c, const cJSON *root, char *pointer) {
    const cJSON *at = root;
    while (at && *pointer == '/') {
        char *token = pointer + 1;
        pointer = token + strcspn(token, "/");
        char stopped = *pointer;
        *pointer = 0;
        at = step_pointer(c, at, token);
        *pointer = stopped;
    }
    return *pointer ? NULL : at;
}

static const struct s_anchor *find_anchor(struct s_ctx *c, uint32_t resource, const char *name) {
    for (uint32_t i = 0; i < c->doc.anchors.n; i++) {
        const struct s_anchor *a = &c->doc.anchors.at[i];
        c->g->schema_work += i % 8 == 0;
        if (a->resource == resource && strcmp(a->name, name) == 0) return a;
    }
    return NULL;
}

/* A dynamic reference is treated as a plain one; refuses it if another anchor has the same name. */
static int check_dynamic(struct s_ctx *c, const cJSON *ref, const struct s_anchor *to) {
    if (!to || !to->dynamic || strcmp(ref->string, "$dynamicRef") != 0) return 0;
    uint32_t n = 0;
    c->g->schema_work += c->doc.anchors.n / 8;
    for (uint32_t i = 0; i < c->doc.anchors.n; i++)
        n += c->doc.anchors.at[i].dynamic && strcmp(c->doc.anchors.at[i].name, to->name) == 0;
    if (n == 1) return 0;
    return s_fail(c, ERR_UNSUPPORTED, s_node_of(c, ref),
                  "several schemas have this $dynamicAnchor, and choosing among them is not "
                  "supported; use $ref");
}

int s_resolve(struct s_ctx *c, const cJSON *ref, uint32_t *target) {
    uint32_t node = s_node_of(c, ref), r = 0;
    if (!cJSON_IsString(ref)) return s_fail(c, ERR_INVALID, node, "must be a string");
    const char *base = c->doc.resources.at[c->doc.nodes.at[node].resource].uri;
    const char *uri = uri_join(c, base, ref->valuestring);
    if (!uri) return ERR_NOMEM;
    if (uri == base || strcmp(uri, base) == 0) r = c->doc.nodes.at[node].resource;
    while (r < c->doc.resources.n && strcmp(c->doc.resources.at[r].uri, uri) != 0)
        c->g->schema_work += ++r % 4 == 0;
    if (r == c->doc.resources.n)
        return s_fail(
            c, ERR_UNSUPPORTED, node,
            "refers to another document (%.80s), which is not fetched; copy it into $defs", uri);
    const char *hash = strchr(ref->valuestring, '#');
    char *fragment = arena_strndup(c->mem, hash ? hash + 1 : "", hash ? strlen(hash + 1) : 0);
    if (!fragment) return s_full(c);
    percent_decode(fragment);
    const cJSON *at = s_at(c, c->doc.resources.at[r].root);
    if (fragment[0] == '/') {
        at = find_pointer(c, at, fragment);
    } else if (fragment[0]) {
        const struct s_anchor *a = find_anchor(c, r, fragment);
        int rc = check_dynamic(c, ref, a);
        if (rc) return rc;
        at = a ? s_at(c, a->node) : NULL;
    }
    if (!at) return s_fail(c, ERR_INVALID, node, "refers to nothing (%.80s)", ref->valuestring);
    *target = s_node_of(c, at);
    if (cJSON_IsObject(at) || cJSON_IsBool(at)) return 0;
    return s_fail(c, ERR_INVALID, node, "refers to a value that is not a schema (%.80s)",
                  ref->valuestring);
}
