/* ignored.c - see ignored.h. Owns nothing. */
#include "api/http/ignored.h"

#include "core/text/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- the list of a body ---- */

/* "messages[2].audio" -> "messages.audio" */
static void drop_indices(char *dst, const char *name) {
    size_t n = 0;
    for (; *name; name++) {
        size_t digits = *name == '[' ? strspn(name + 1, "0123456789") : 0;
        if (digits && name[digits + 1] == ']')
            name += digits + 1;
        else
            dst[n++] = *name;
    }
    dst[n] = '\0';
}

/* A field has one row, under the name of its first occurrence; but items that are ignored as a
 * whole (by_name) have one each. */
static void list_name(struct ignored *list, const char *name, bool known, bool by_name) {
    struct ignored_row *row;
    char field[JSON_PATH_BYTES];
    drop_indices(field, name);
    for (uint32_t i = 0; i < list->n && (known || !list->more); i++) {
        row = &list->rows[i];
        if (row->known != known || strcmp(by_name ? row->name : row->field, by_name ? name : field))
            continue;
        row->n++;
        return;
    }
    if (list->n == IGNORED_MAX) {
        list->more = true;
        list->n_more++;
        return;
    }
    row = &list->rows[list->n++];
    *row = (struct ignored_row){.known = known, .n = 1};
    memcpy(row->name, name, strlen(name) + 1);
    memcpy(row->field, field, strlen(field) + 1);
}

/* A client's own name, safe in a header. */
static void add_plain_name(str *s, const char *name) {
    if (!*name) str_add_char(s, '?');
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     strchr("_-.[]", c);
        if (!utf8_continues((char)c)) str_add_char(s, plain ? (char)c : '?');
    }
}

/* path with the client's own name after it, safe in a header. */
static void add_client_name(char *dst, const char *path, const char *member) {
    str plain;
    str_init(&plain, JSON_PATH_BYTES); /* what is beyond would be cut */
    add_plain_name(&plain, member);
    json_path(dst, "%s%s", path, str_cstr(&plain));
    str_fini(&plain);
}

int ignored_add(struct ignored *list, const char *name, err *e) {
    if (!list) return 0;
    if (list->refuse)
        return err_set_param(e, ERR_UNSUPPORTED, name,
                             "Unsupported value for '%s': it would be ignored, which the server's "
                             "configuration forbids (unknown-fields = refuse).",
                             name);
    list_name(list, name, true, true);
    return 0;
}

int ignored_add_member(struct ignored *list, const char *path, const char *member, err *e) {
    char name[JSON_PATH_BYTES];
    if (!list) return 0;
    add_client_name(name, path, member);
    if (list->refuse) return ignored_add(list, name, e);
    list_name(list, name, false, false);
    return 0;
}

void ignored_tolerate(struct ignored *list, const char *name) {
    if (list) list_name(list, name, true, false);
}

void ignored_header(const struct ignored *list, char *dst) {
    static const char more[] = ", ...";
    size_t n = 0;
    bool cut = list->more;
    *dst = '\0';
    for (uint32_t i = 0; i < list->n; i++) {
        const char *name = list->rows[i].name;
        if (n + 2 + strlen(name) + sizeof more > IGNORED_HEADER_BYTES) {
            cut = true;
            break;
        }
        n += (size_t)snprintf(dst + n, IGNORED_HEADER_BYTES - n, "%s%s", n ? ", " : "", name);
    }
    if (cut) snprintf(dst + n, IGNORED_HEADER_BYTES - n, "%s", more);
}

/* ---- sifting a body ---- */

struct sift {
    struct ignored *list;
    err *e;
};

static int drop_unknown(const struct sift *s, cJSON *object, cJSON *member, const char *path,
                        bool echoed) {
    char name[JSON_PATH_BYTES];
    if (s->list->refuse && !echoed) {
        json_path(name, "%s%s", path, member->string);
        return json_refuse_unknown(name, s->e);
    }
    add_client_name(name, path, member->string);
    list_name(s->list, name, false, false);
    cJSON_Delete(cJSON_DetachItemViaPointer(object, member));
    return 0;
}

static int drop_advisory(const struct sift *s, cJSON *object, cJSON *member,
                         const struct json_field *f, const char *name, bool echoed) {
    if (!json_is_harmless(f, member)) {
        if (s->list->refuse && !echoed) return json_refuse_field(f, name, s->e);
        list_name(s->list, name, true, false);
    }
    if (!(f->flags & JSON_KEPT)) cJSON_Delete(cJSON_DetachItemViaPointer(object, member));
    return 0;
}

static int sift_members(const struct sift *s, cJSON *object, const struct json_table *table,
                        const char *path, bool echoed);

static int sift_object(const struct sift *s, cJSON *v, const struct json_table *table,
                       const char *path, bool echoed) {
    char below[JSON_PATH_BYTES];
    if (!cJSON_IsObject(v)) return 0;
    if (table->of && !(table = table->of(v))) {
        if (!echoed) return ignored_add(s->list, path, s->e);
        list_name(s->list, path, true, true);
        return 0;
    }
    json_path(below, "%s.", path);
    return sift_members(s, v, table, below, echoed);
}

/* The objects that v holds: itself, or an array's items. */
static int sift_objects(const struct sift *s, cJSON *v, const struct json_table *table,
                        const char *path, bool echoed) {
    int i = 0, rc = 0;
    if (!cJSON_IsArray(v)) return sift_object(s, v, table, path, echoed);
    for (cJSON *item = v->child; item && !rc; item = item->next) {
        char name[JSON_PATH_BYTES];
        json_path(name, "%s[%d]", path, i++);
        rc = sift_object(s, item, table, name, echoed);
    }
    return rc;
}

static int sift_members(const struct sift *s, cJSON *object, const struct json_table *table,
                        const char *path, bool echoed) {
    int rc = 0;
    for (cJSON *m = object->child, *next; m && !rc; m = next) {
        char name[JSON_PATH_BYTES];
        const struct json_field *f = json_find_field(table, m->string);
        next = m->next;
        if (!f) {
            rc = drop_unknown(s, object, m, path, echoed);
            continue;
        }
        json_path(name, "%s%s", path, f->name);
        /* SDKs echo every member of their types, those that are not set as null. */
        if (echoed && cJSON_IsNull(m) && !(f->flags & JSON_NULLABLE))
            cJSON_Delete(cJSON_DetachItemViaPointer(object, m));
        else if (f->type == JSON_ADVISORY)
            rc = drop_advisory(s, object, m, f, name, echoed);
        else if (f->table)
            rc = sift_objects(s, m, f->table, name, echoed || (f->flags & JSON_ECHOED));
    }
    return rc;
}

int ignored_sift(struct ignored *list, cJSON *body, const struct json_table *table, err *e) {
    const struct sift s = {list, e};
    return cJSON_IsObject(body) ? sift_members(&s, body, table, "", false) : 0;
}

/* ---- counts ---- */

void ignored_counts_init(struct ignored_counts *c) {
    struct ignored_count *rest = &c->slots[IGNORED_COUNTS - 1];
    pthread_mutex_init(&c->mu, NULL);
    rest->row = SIZE_MAX;
    snprintf(rest->field, sizeof rest->field, "other");
}

void ignored_counts_fini(struct ignored_counts *c) {
    pthread_mutex_destroy(&c->mu);
}

/* Its slot, taken if it is new; the last slot is for all that find none. */
static struct ignored_count *find_slot(struct ignored_counts *c, size_t row, const char *field) {
    size_t i = row;
    for (const char *p = field; *p; p++)
        i = i * 31 + (unsigned char)*p;
    for (size_t probes = 0; probes < IGNORED_COUNTS - 1; probes++) {
        struct ignored_count *slot = &c->slots[(i + probes) % (IGNORED_COUNTS - 1)];
        if (!*slot->field) {
            slot->row = row;
            snprintf(slot->field, sizeof slot->field, "%s", field);
            return slot;
        }
        if (slot->row == row && strcmp(slot->field, field) == 0) return slot;
    }
    return &c->slots[IGNORED_COUNTS - 1];
}

void ignored_counts_add(struct ignored_counts *c, size_t row, const struct ignored *list) {
    static const char unknown[] = "unknown";
    if (!list->n) return;
    pthread_mutex_lock(&c->mu);
    for (uint32_t i = 0; i < list->n; i++) {
        const struct ignored_row *one = &list->rows[i];
        find_slot(c, row, one->known ? one->field : unknown)->n += one->n;
    }
    if (list->n_more) find_slot(c, row, unknown)->n += list->n_more;
    pthread_mutex_unlock(&c->mu);
}
