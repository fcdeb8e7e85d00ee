/* charsmap.c - the map is a size in bytes (u32), a double array of that size, and texts that end
 * with NUL, to which its values point. A unit of the double array (darts-clone): bits 0-7 label,
 * bit 8 has a leaf, bit 9 the offset is shifted by 8, bits 10-30 offset, bit 31 is a leaf; a leaf's
 * bits 0-30 are its value. Nothing of it is trusted. Immutable once built. */
#include "core/tokenizer/charsmap.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20, WHOLE_BYTES = 6, ZWNJ = 0x200c, ZWJ = 0x200d };

struct charsmap {
    uint32_t *units; /* (n_units) */
    uint32_t n_units, n_texts;
    char *texts; /* (n_texts) valid UTF-8, the last is NUL */
};

int charsmap_new(const void *bytes, size_t n, struct charsmap **out, err *e) {
    uint32_t n_trie = 0;
    *out = NULL;
    if (n > sizeof n_trie) memcpy(&n_trie, bytes, sizeof n_trie);
    const char *text = (const char *)bytes + sizeof n_trie + n_trie;
    const size_t rest = n - sizeof n_trie;
    if (n <= sizeof n_trie || n > MAX_BYTES || !n_trie || n_trie % sizeof(uint32_t) ||
        n_trie >= rest || text[rest - n_trie - 1] || !utf8_valid(text, rest - n_trie))
        return err_set(e, ERR_FORMAT, "the precompiled map of characters is damaged");
    struct charsmap *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    m->n_units = n_trie / sizeof(uint32_t);
    m->n_texts = (uint32_t)(rest - n_trie);
    m->units = mem_new(m->n_units, sizeof *m->units);
    m->texts = mem_new(m->n_texts, 1);
    if (!m->units || !m->texts) {
        charsmap_free(m);
        return err_no_memory(e);
    }
    memcpy(m->units, (const char *)bytes + sizeof n_trie, n_trie);
    memcpy(m->texts, text, m->n_texts);
    *out = m;
    return 0;
}

int charsmap_new_base64(const char *text, struct charsmap **out, err *e) {
    struct base64_decode_ctx ctx;
    size_t n = strlen(text), used = BASE64_DECODE_LENGTH(n);
    uint8_t *bytes = mem_new(used, 1);
    *out = NULL;
    if (!bytes) return err_no_memory(e);
    base64_decode_init(&ctx);
    int rc = base64_decode_update(&ctx, &used, bytes, n, text) && base64_decode_final(&ctx)
                 ? charsmap_new(bytes, used, out, e)
                 : err_set(e, ERR_FORMAT, "the precompiled map of characters is not base64");
    free(bytes);
    return rc;
}

void charsmap_free(struct charsmap *m) {
    if (!m) return;
    free(m->units);
    free(m->texts);
    free(m);
}

static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << (unit >> 6 & 8);
}

/* What the shortest prefix of text that the map knows becomes, NULL: it knows none. */
static const char *find(const struct charsmap *m, const char *text, size_t n) {
    uint32_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < n && text[i]; i++) {
        const uint8_t c = (uint8_t)text[i];
        at ^= c;
        if (at >= m->n_units) return NULL;
        const uint32_t unit = m->units[at];
        if ((unit & (UINT32_C(1) << 31 | 0xff)) != c) return NULL;
        at ^= offset_of(unit);
        if (at >= m->n_units) return NULL;
        if (!(unit >> 8 & 1)) continue;
        const uint32_t value = m->units[at] & INT32_MAX;
        return value < m->n_texts && !utf8_continues(m->texts[value]) ? m->texts + value : NULL;
    }
    return NULL;
}

static bool joins(uint32_t c) {
    return c == ZWNJ || c == ZWJ || unicode_flags_search(c) & UNICODE_MARK;
}

/* Bytes of the first character with its combining marks, and of itself. */
static size_t cluster(const char *text, size_t n, unsigned *first) {
    const uint32_t c = utf8_decode_valid(text, first);
    unsigned size;
    size_t end = *first;
    if (c == '\r' && end < n && text[end] == '\n') return end + 1;
    if (c < ' ' || c == 0x7f) return end;
    while (end < n && joins(utf8_decode_valid(text + end, &size)))
        end += size;
    return end;
}

void charsmap_run(const struct charsmap *m, const char *text, size_t len, str *out) {
    for (size_t i = 0; i < len;) {
        unsigned size;
        const size_t n = cluster(text + i, len - i, &size);
        const char *whole = n < WHOLE_BYTES ? find(m, text + i, n) : NULL;
        if (whole) {
            str_add(out, whole);
            i += n;
            continue;
        }
        for (const size_t end = i + n; i < end; i += size) {
            utf8_decode_valid(text + i, &size);
            const char *to = find(m, text + i, size);
            if (to)
                str_add(out, to);
            else
                str_add_n(out, text + i, size);
        }
    }
}
