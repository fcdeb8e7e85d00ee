/* page.c - see page.h. Owns nothing. */
#include "api/http/page.h"

#include "api/http/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_limit(const char *value, int most, int *limit) {
    char *end;
    long n = strtol(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || n < 1 || n > most) return false;
    *limit = (int)n;
    return true;
}

bool page_take(struct page *p, const char *name, const char *value, err *e) {
    if (strcmp(name, "limit") == 0) {
        int most = p->most ? p->most : PAGE_MAX_LIMIT;
        if (!read_limit(value, most, &p->limit))
            err_set_param(e, ERR_INVALID, "limit",
                          "Invalid value for 'limit': must be between 1 and %d.", most);
        return true;
    }
    if (strcmp(name, "order") == 0) {
        p->ascending = strcmp(value, "asc") == 0;
        if (!p->ascending && strcmp(value, "desc") != 0)
            err_set_param(e, ERR_INVALID, "order",
                          "Invalid value for 'order': must be 'asc' or 'desc'.");
        return true;
    }
    if (strcmp(name, "after") != 0 || strlen(value) >= PAGE_ID_BYTES) return false;
    snprintf(p->after, sizeof p->after, "%s", value);
    return true;
}

int page_refuse(const char *name, err *e) {
    char param[JSON_PATH_BYTES];
    json_path(param, "%s", name);
    return err_set_param(e, ERR_INVALID, param, "Unrecognized request argument supplied: %s",
                         param);
}

void page_open(str *out) {
    str_add(out, "{\"object\":\"list\",\"data\":[");
}

void page_close(str *out, const char *first, const char *last, bool more) {
    str_add(out, "],\"first_id\":");
    json_add_cstr(out, first ? first : "");
    str_add(out, ",\"last_id\":");
    json_add_cstr(out, last ? last : "");
    str_addf(out, ",\"has_more\":%s}", more ? "true" : "false");
}

void page_list_open(struct page_list *l) {
    str_init(&l->body, REPLY_MAX_BYTES);
    page_open(&l->body);
}

void page_list_next(struct page_list *l, const char *id) {
    if (*l->first)
        str_add_char(&l->body, ',');
    else
        snprintf(l->first, sizeof l->first, "%s", id);
    snprintf(l->last, sizeof l->last, "%s", id);
}

void page_list_close(struct page_list *l, bool more) {
    page_close(&l->body, l->first, l->last, more);
}

static const char *id_of(const cJSON *item) {
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "id"));
    return id ? id : "";
}

/* The item after v in the page's order; NULL after the last. In cJSON, first->prev is the last. */
static const cJSON *next_item(const cJSON *items, const cJSON *v, const struct page *p) {
    if (p->ascending) return v ? v->next : items->child;
    if (!v) return items->child ? items->child->prev : NULL;
    return v == items->child ? NULL : v->prev;
}

int page_reply(struct request *r, const cJSON *items, const struct page *p, err *e) {
    const cJSON *v = NULL, *first = NULL, *last = NULL;
    if (*p->after) {
        while ((v = next_item(items, v, p)) && strcmp(id_of(v), p->after) != 0) {
        }
        if (!v)
            return err_set_param(e, ERR_INVALID, "after",
                                 "Invalid value for 'after': there is no item '%.64s'.", p->after);
    }
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    page_open(&body);
    for (int i = 0; i < p->limit && (v = next_item(items, v, p)); i++) {
        if (i) str_add_char(&body, ',');
        json_add_value(&body, v);
        if (!first) first = v;
        last = v;
    }
    page_close(&body, id_of(first), id_of(last), v && next_item(items, v, p));
    reply_json(r, 200, &body);
    return 0;
}
