/* miss.c - see miss.h. Owns the maps of messages. Pool threads and HTTP threads; nothing is done
 * unless a request asks for it. */
#include "api/generate/miss.h"

#include "api/generate/api_state.h"
#include "api/generate/gen.h"
#include "api/http/auth.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "core/base/mem.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PLACES = 4096,
    NEAR_TOKENS = 12,
    NEAR_BYTES = 48,
    LIKE_BYTES = 256,
    MAX_COMPARED = 8 << 20
};

/* A message's text, or a part of it. */
struct place {
    size_t start, end; /* bytes in the decoded prompt */
    uint32_t message;
};

struct miss_map {
    size_t n;
    struct place places[]; /* (n) in order */
};

const char *gen_miss_name(enum engine_miss miss) {
    static const char *const names[] = {[ENGINE_MISS_NONE] = "none",
                                        [ENGINE_MISS_NEW] = "new_text",
                                        [ENGINE_MISS_EMPTY] = "nothing_cached",
                                        [ENGINE_MISS_EVICTED] = "evicted",
                                        [ENGINE_MISS_TENANT] = "another_tenant",
                                        [ENGINE_MISS_STATE] = "state_missing",
                                        [ENGINE_MISS_DIFFERS] = "differs"};
    return names[miss];
}

bool miss_is_asked(const struct request *r) {
    const char *value = request_header(r, "x-inferd-explain-cache");
    if (value) return strcmp(value, "1") == 0 || strcmp(value, "true") == 0;
    return r->api->live.explain_cache;
}

/* ---- messages in a prompt ---- */

struct search {
    struct miss_map *map;
    const char *text;
    size_t n, at; /* at: what comes before it is found */
    size_t left;  /* bytes that may still be compared: texts that repeat themselves end it */
};

/* The next place that begins with the first LIKE_BYTES bytes of a text; NULL: none. */
static const char *find_text(struct search *s, const char *what, size_t len) {
    const char *p = s->text + s->at, *end = s->text + s->n;
    if (len > LIKE_BYTES) len = LIKE_BYTES;
    for (; len && (size_t)(end - p) >= len; p++) {
        const char *next = memchr(p, what[0], (size_t)(end - p) - len + 1);
        if (!next) return NULL;
        size_t k = 1, cost = (size_t)(next - p) / 16 + 1;
        while (k < len && next[k] == what[k])
            k++;
        if (k == len) return next;
        if (cost + k > s->left) return NULL;
        s->left -= cost + k;
        p = next;
    }
    return NULL;
}

/* Templates often drop white space around a text. */
static void find_part(struct search *s, const cJSON *text, uint32_t message) {
    if (!cJSON_IsString(text) || s->map->n == MAX_PLACES) return;
    static const char white[] = " \t\r\n";
    const char *from = text->valuestring + strspn(text->valuestring, white);
    size_t len = strlen(from);
    while (len && strchr(white, from[len - 1]))
        len--;
    const char *found = find_text(s, from, len);
    if (!found) return;
    size_t start = (size_t)(found - s->text);
    if (len > s->n - start) len = s->n - start;
    s->map->places[s->map->n++] = (struct place){start, start + len, message};
    s->at = start + len;
}

static int decode(const tokenizer *tok, const int32_t *ids, size_t n, char **out, size_t *len) {
    *out = NULL;
    *len = 0;
    return n ? tokenizer_decode(tok, ids, n, true, out, len, NULL) : 0;
}

void miss_map_new(const tokenizer *tok, const struct gen_prompt *p, const cJSON *messages,
                  struct miss_map **out) {
    struct search s = {.left = MAX_COMPARED};
    char *text;
    uint32_t message = 0;
    *out = NULL;
    if (decode(tok, p->ids, p->n, &text, &s.n)) return;
    s.text = text;
    s.map = mem_new(1, sizeof *s.map + MAX_PLACES * sizeof s.map->places[0]);
    for (const cJSON *m = messages->child; m && s.map && text; m = m->next, message++) {
        const cJSON *content = cJSON_GetObjectItemCaseSensitive(m, "content");
        find_part(&s, content, message);
        const cJSON *part = cJSON_IsArray(content) ? content->child : NULL;
        for (; part; part = part->next)
            find_part(&s, cJSON_GetObjectItemCaseSensitive(part, "text"), message);
    }
    free(text);
    if (!s.map) return;
    struct miss_map *fit = mem_resize(s.map, 1, sizeof *fit + s.map->n * sizeof fit->places[0]);
    *out = fit ? fit : s.map;
}

void miss_map_free(struct miss_map *m) {
    free(m);
}

/* ---- writing ---- */

/* The message at a byte of the prompt: the last one that begins at or before it; NULL: the
 * template's text before the first message. */
static const struct place *place_of(const struct miss_map *m, size_t byte) {
    const struct place *at = NULL;
    for (size_t i = 0; m && i < m->n && m->places[i].start <= byte; i++)
        at = &m->places[i];
    return at;
}

/* Of text, from `from` on, whole characters only. */
static void add_near(const char *text, size_t n, size_t from, str *out) {
    size_t end = n - from > NEAR_BYTES ? from + NEAR_BYTES : n;
    while (from < end && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    while (end > from && end < n && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    str_add(out, ",\"near\":");
    json_add_string(out, text + from, end - from);
}

static void add_place(const struct gen *g, const struct gen_prompt *p, str *out) {
    size_t n_cached = (size_t)p->n_cached < p->n ? (size_t)p->n_cached : p->n, n, n_before;
    size_t end = p->n - n_cached > NEAR_TOKENS ? n_cached + NEAR_TOKENS : p->n;
    char *text, *before = NULL;
    if (decode(g->tok, p->ids, end, &text, &n) || !text) return;
    if (!decode(g->tok, p->ids, n_cached, &before, &n_before) && n_before <= n) {
        const struct place *at = place_of(p->miss_map, n_before);
        if (at) str_addf(out, ",\"message\":%" PRIu32, at->message);
        str_addf(out, ",\"byte\":%zu", at ? n_before - at->start : n_before);
        add_near(text, n, n_before, out);
    }
    free(before);
    free(text);
}

void miss_add(const struct gen *g, str *out) {
    const struct gen_prompt *p = &g->prompts[0];
    if (!g->explains) return;
    enum engine_miss why = p->miss;
    if (why == ENGINE_MISS_TENANT && !g->explains_tenants) why = ENGINE_MISS_EMPTY;
    str_addf(out, ",\"cache_miss\":{\"reason\":\"%s\",\"missed_tokens\":%zu", gen_miss_name(why),
             p->n - (size_t)p->n_cached);
    if (why == ENGINE_MISS_DIFFERS || why == ENGINE_MISS_EVICTED || why == ENGINE_MISS_STATE)
        add_place(g, p, out);
    str_add_char(out, '}');
}
