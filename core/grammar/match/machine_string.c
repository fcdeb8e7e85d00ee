/* machine_string.c - JSON strings byte by byte: UTF-8, escapes, and the constraint on the content:
 * a count of code points, an automaton, or the names of an object's properties.
 *
 * Unescaped bytes are those of well-formed UTF-8 (RFC 3629) from 0x20 on, without quote and
 * backslash. Names and automata accept only well-formed UTF-8; a count checks it in acc. */
#include "core/grammar/match/machine.h"

#include "core/text/utf8.h"

#include <string.h>

enum { MAX_CODE_POINT = 0x10ffff, N_LENGTHS = 5 };

static enum content content_of(const struct frame *f) {
    return (enum content)(f->flags & FLAG_CONTENT);
}

void string_begin(const struct machine *m, struct frame *f, const struct g_string *s) {
    bool counts = s->dfa == GRAMMAR_NONE;
    f->kind = FRAME_STRING;
    f->phase = STRING_OPEN;
    f->flags |= counts ? CONTENT_COUNT : CONTENT_DFA;
    f->index = counts ? (uint32_t)(s - m->g->strings.at) : s->dfa;
    f->x = counts ? 0 : m->g->dfas.at[s->dfa].start;
}

/* ---- content ---- */

static bool count_byte(const struct machine *m, struct frame *f, uint8_t byte) {
    const struct g_string *s = &m->g->strings.at[f->index];
    bool first = !f->acc;
    if (!utf8_step(&f->acc, byte) || (first && f->x == s->max)) return false;
    if (!first) return true;
    if (s->max != GRAMMAR_UNLIMITED || f->x < s->min) f->x++;
    return true;
}

static const struct g_property *name_at(const struct machine *m, uint32_t place) {
    return &m->g->properties.at[m->g->sorted[place]];
}

static bool names_left(struct machine *m, const struct frame *f) {
    const struct frame *object = &m->frames[f->parent];
    uint32_t first = m->g->objects.at[f->index].first_property;
    for (uint32_t i = f->x; i < f->y; i++)
        if (json_may_name(m, object, m->g->sorted[i] - first))
            return true;
        else if (m->exhausted)
            break;
    return false;
}

/* The names in [x, y) share the first `used` bytes; those that end there come first. */
static bool names_byte(struct machine *m, struct frame *f, uint8_t byte) {
    uint32_t at = f->used, lo = f->x, hi = f->y;
    const char *names = m->g->names.at;
    while (lo < hi &&
           (name_at(m, lo)->name_bytes <= at || (uint8_t)names[name_at(m, lo)->name + at] < byte))
        lo++;
    while (lo < hi && (uint8_t)names[name_at(m, hi - 1)->name + at] > byte)
        hi--;
    f->x = lo;
    f->y = hi;
    f->used++;
    return lo < hi && names_left(m, f);
}

bool string_content_byte(struct machine *m, struct frame *f, uint8_t byte) {
    if (f->flags & FLAG_WATCHED) f->bits = hash_byte(f->bits, byte);
    switch (content_of(f)) {
    case CONTENT_COUNT:
        return count_byte(m, f, byte);
    case CONTENT_DFA:
        f->x = dfa_step(&m->g->dfas.at[f->index], f->x, byte);
        return f->x != 0;
    default:
        return names_byte(m, f, byte);
    }
}

static uint32_t used_of(const struct machine *m, const struct frame *f) {
    return f->flags & FLAG_WATCHED ? m->frames[f->parent].used : 0;
}

/* May the content end here? *property: the property of that name. */
static bool content_may_end(struct machine *m, const struct frame *f, uint32_t *property) {
    uint32_t used = used_of(m, f), first;
    *property = GRAMMAR_NONE;
    switch (content_of(f)) {
    case CONTENT_COUNT:
        if (f->acc || f->x < m->g->strings.at[f->index].min) return false;
        break;
    case CONTENT_DFA:
        if (!m->g->dfas.at[f->index].accept[f->x]) return false;
        break;
    default:
        first = m->g->objects.at[f->index].first_property;
        if (f->x >= f->y || name_at(m, f->x)->name_bytes != f->used) return false;
        *property = m->g->sorted[f->x] - first;
        return json_may_name(m, &m->frames[f->parent], *property);
    }
    return !used || !used_has(m, used, watch_hash(f));
}

/* Some continuation can end the string: always true, unless values are watched and the language is
 * finite. */
static bool content_is_alive(struct machine *m, const struct frame *f) {
    uint32_t property;
    uint8_t lo = 0, hi = 0xff;
    if (!used_of(m, f)) return true;
    if (content_of(f) == CONTENT_COUNT) {
        if (f->x < m->g->strings.at[f->index].max) return true;
        if (!f->acc) return content_may_end(m, f, &property);
        lo = (uint8_t)(f->acc >> 8);
        hi = (uint8_t)f->acc;
    } else if (m->g->n_texts[f->index][f->x] > used_n(m, used_of(m, f))) {
        return true; /* more texts than used ones: at least one is left */
    }
    if (content_may_end(m, f, &property)) return true;
    machine_spend(m, 1u + (hi - lo) / 8u);
    for (int b = lo; b <= hi && !m->exhausted; b++) {
        struct frame g = *f;
        if (string_content_byte(m, &g, (uint8_t)b) && content_is_alive(m, &g)) return true;
    }
    return false;
}

bool string_is_alive(struct machine *m, const struct frame *f) {
    if (content_of(f) == CONTENT_NAMES) return names_left(m, f);
    return content_is_alive(m, f);
}

/* The code points of n bytes from lo to hi. */
struct cp_range {
    size_t n;
    uint8_t lo[4], hi[4];
};

/* Can bytes i and following be completed within the range? bounds: 1: the bytes before equal the
 * lower bound's, 2: the upper bound's. */
static bool range_from(struct machine *m, const struct frame *f, const struct cp_range *r, size_t i,
                       int bounds) {
    if (i == r->n) return content_is_alive(m, f);
    if (i && !bounds && !(f->flags & FLAG_WATCHED)) return true;
    int lo = bounds & 1 ? r->lo[i] : 0x80, hi = bounds & 2 ? r->hi[i] : 0xbf;
    machine_spend(m, 1 + (uint64_t)(hi - lo) / 4);
    for (int b = lo; b <= hi && !m->exhausted; b++) {
        struct frame g = *f;
        int next = (b == lo ? bounds & 1 : 0) | (b == hi ? bounds & 2 : 0);
        if (string_content_byte(m, &g, (uint8_t)b) && range_from(m, &g, r, i + 1, next))
            return true;
    }
    return false;
}

/* May a code point from lo to hi (except surrogates) come next? */
static bool range_any(struct machine *m, const struct frame *f, uint32_t lo, uint32_t hi) {
    static const uint32_t lengths[N_LENGTHS][2] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, MAX_CODE_POINT}};
    for (int i = 0; i < N_LENGTHS; i++) {
        uint32_t from = lo > lengths[i][0] ? lo : lengths[i][0];
        uint32_t to = hi < lengths[i][1] ? hi : lengths[i][1];
        struct cp_range r;
        if (from > to) continue;
        r.n = utf8_encode(from, (char *)r.lo);
        utf8_encode(to, (char *)r.hi);
        if (range_from(m, f, &r, 0, 3)) return true;
    }
    return false;
}

/* ---- the string ---- */

/* f with its escapes undone. */
static struct frame without_escapes(const struct frame *f) {
    struct frame g = *f;
    g.phase = STRING_BODY;
    g.acc = 0;
    return g;
}

static void take_code_point(struct machine *m, const struct frame *f, uint32_t cp) {
    struct frame g = without_escapes(f);
    uint8_t bytes[4];
    size_t n = utf8_encode(cp, (char *)bytes);
    for (size_t i = 0; i < n; i++)
        if (!string_content_byte(m, &g, bytes[i])) return;
    if (content_is_alive(m, &g)) machine_emit(m, &g);
}

static void close_string(struct machine *m, const struct frame *f) {
    uint32_t property;
    if (!content_may_end(m, f, &property)) return;
    if (f->flags & FLAG_KEY)
        json_took_key(m, f, property);
    else
        machine_pop(m, f);
}

static void body_step(struct machine *m, const struct frame *f, uint8_t byte) {
    struct frame g = *f;
    if (byte == '"') {
        close_string(m, f);
    } else if (byte == '\\') {
        if (f->acc || !range_any(m, f, 0, MAX_CODE_POINT)) return;
        g.phase = STRING_ESCAPE;
        machine_emit(m, &g);
    } else if (byte >= 0x20 && string_content_byte(m, &g, byte) && content_is_alive(m, &g)) {
        machine_emit(m, &g);
    }
}

static void escape_step(struct machine *m, const struct frame *f, uint8_t byte) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *at = byte ? strchr(names, byte) : NULL;
    if (at) take_code_point(m, f, (uint8_t)meant[at - names]);
    if (byte != 'u') return;
    struct frame g = *f;
    g.phase = STRING_HEX;
    g.acc = 1;
    machine_emit(m, &g);
}

/* Adds a hex digit to *digits (1, then the digits so far). Returns the number of missing digits;
 * -1: not a hex digit. [*lo, *hi]: the values that the four digits can still have. */
static int add_digit(uint32_t *digits, uint8_t byte, uint32_t *lo, uint32_t *hi) {
    uint8_t lower = byte | 0x20;
    int missing = 3;
    if (!(byte >= '0' && byte <= '9') && !(lower >= 'a' && lower <= 'f')) return -1;
    for (uint32_t d = *digits; d > 1; d >>= 4)
        missing--;
    *digits = *digits << 4 | (uint32_t)(byte <= '9' ? byte - '0' : lower - 'a' + 10);
    *lo = (*digits << 4 * missing) & 0xffff;
    *hi = *lo | ((1u << 4 * missing) - 1);
    return missing;
}

static uint32_t combine_pair(uint32_t upper, uint32_t lower) {
    return 0x10000 + (((upper & 0x3ff) << 10) | (lower & 0x3ff));
}

static void hex_step(struct machine *m, const struct frame *f, uint8_t byte) {
    struct frame g = *f, content = without_escapes(f);
    uint32_t lo, hi;
    int missing = add_digit(&g.acc, byte, &lo, &hi);
    if (missing < 0) return;
    bool upper = lo <= 0xdbff && hi >= 0xd800;
    if (!missing && !upper) {
        if (lo < 0xd800 || lo > 0xdfff) take_code_point(m, f, lo);
        return;
    }
    uint32_t from = lo > 0xd800 ? lo : 0xd800, to = hi < 0xdbff ? hi : 0xdbff;
    bool alive =
        upper && range_any(m, &content, combine_pair(from, 0xdc00), combine_pair(to, 0xdfff));
    if (!alive && !(missing && range_any(m, &content, lo, hi))) return;
    if (!missing) {
        g.phase = STRING_LOW_ESCAPE;
        g.acc = (lo & 0x3ff) << 20;
    }
    machine_emit(m, &g);
}

static void low_step(struct machine *m, const struct frame *f, uint8_t byte) {
    struct frame g = *f, content = without_escapes(f);
    uint32_t upper = f->acc >> 20, digits = f->acc & 0xfffff, lo, hi;
    int missing = add_digit(&digits, byte, &lo, &hi);
    if (missing < 0 || lo > 0xdfff || hi < 0xdc00) return;
    if (lo < 0xdc00) lo = 0xdc00;
    if (hi > 0xdfff) hi = 0xdfff;
    if (!missing) {
        take_code_point(m, f, combine_pair(upper, lo));
    } else if (range_any(m, &content, combine_pair(upper, lo), combine_pair(upper, hi))) {
        g.acc = upper << 20 | digits;
        machine_emit(m, &g);
    }
}

void string_step(struct machine *m, const struct frame *f, uint8_t byte) {
    struct frame g = *f;
    switch ((enum string_phase)f->phase) {
    case STRING_OPEN:
        if (byte != '"') return;
        g.phase = STRING_BODY;
        machine_emit(m, &g);
        return;
    case STRING_BODY:
        body_step(m, f, byte);
        return;
    case STRING_ESCAPE:
        escape_step(m, f, byte);
        return;
    case STRING_HEX:
        hex_step(m, f, byte);
        return;
    case STRING_LOW_ESCAPE:
    case STRING_LOW_U:
        if (byte != (f->phase == STRING_LOW_U ? 'u' : '\\')) return;
        g.phase++;
        if (f->phase == STRING_LOW_U) g.acc |= 1;
        machine_emit(m, &g);
        return;
    case STRING_LOW:
        low_step(m, f, byte);
        return;
    }
}
