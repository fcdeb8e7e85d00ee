/* machine.h - private to core/grammar/match: a nondeterministic pushdown machine over bytes.
 *
 * The state of a text is a set of frames, each on top of a stack: the top frame consumes the next
 * byte, those below it say what follows. Top frames lie by value in a pool, one set after another;
 * the frames below are interned in an arena, so that equal stacks have equal indices. All memory is
 * allocated once; when it is exhausted the machine has failed for good.
 *
 * THREAD SAFETY: one thread at a time. */
#ifndef INFERD_GRAMMAR_MATCH_MACHINE_H
#define INFERD_GRAMMAR_MATCH_MACHINE_H

#include "core/grammar/grammar_int.h"

enum {
    MACHINE_MAX_SET = 512,       /* frames of one state */
    MACHINE_MAX_FRAMES = 16384,  /* of the arena */
    MACHINE_MAX_POOL = 8192,     /* frames of the sets along one token */
    MACHINE_SEEN = 256,          /* slots of the table of entered nodes */
    MACHINE_CONTAINER_DEPTH = 4, /* weight of an array or an object; of any other frame 1 */
    MACHINE_MAX_DEPTH = GRAMMAR_MAX_DEPTH * MACHINE_CONTAINER_DEPTH
};

enum frame_kind {
    FRAME_END,    /* the text may end */
    FRAME_SEQ,    /* index: node; x: the next child */
    FRAME_REPEAT, /* index: node; x: repetitions so far, including the current one */
    FRAME_DFA,    /* index: automaton; x: state; watched: bits and y, see machine_unique.c */
    FRAME_STRING, /* a JSON string or key: see enum content */
    FRAME_ARRAY,  /* index: array; x: items so far; y: those that contains matches; used */
    FRAME_OBJECT, /* index: object; x: members so far; y: the next value; used; bits, acc: the
                     properties seen */
    FRAME_CELL    /* of a list in the arena; parent: the rest of the list; bits, index: the element;
                     x: number of elements, in lists of hashes */
};

/* What the content of a string must match. */
enum content {
    CONTENT_COUNT, /* index: g_string; x: code points so far; acc: see below */
    CONTENT_DFA,   /* index: automaton; x: state; y: a key's g_keys */
    CONTENT_NAMES  /* index: object; [x, y): the names (in sorted) with this prefix; used: its bytes
                    */
};
enum frame_flags {
    FLAG_CONTENT = 3, /* enum content */
    FLAG_KEY = 4,     /* a key: its parent is the object */
    FLAG_WATCHED = 8, /* the value is hashed: it must differ from all in parent's used */
    FLAG_NEGATIVE = 16,
    FLAG_NEGATIVE_EXPONENT = 32,
    FLAG_PART = 7 << 6 /* enum number_part */
};
enum number_part { PART_START, PART_WHOLE, PART_FRACTION, PART_EXPONENT, PART_WORD };

/* Of strings. acc in STRING_BODY: the missing bytes of a code point (CONTENT_COUNT); in STRING_HEX:
 * 1, then the hex digits so far; after it: the upper half of a surrogate pair << 20, and in
 * STRING_LOW additionally 1, then the digits so far. */
enum string_phase {
    STRING_OPEN,
    STRING_BODY,
    STRING_ESCAPE,
    STRING_HEX,
    STRING_LOW_ESCAPE,
    STRING_LOW_U,
    STRING_LOW
};
enum container_phase {
    CONTAINER_OPEN,
    CONTAINER_FIRST, /* after the bracket */
    CONTAINER_AFTER, /* after an element */
    CONTAINER_COMMA, /* an array: the optional space; an object: the space or a key */
    CONTAINER_KEY,   /* after the comma's space */
    CONTAINER_COLON,
    CONTAINER_VALUE /* after ':': the optional space */
};

struct frame {
    uint32_t parent; /* in the arena; 0: nothing below */
    uint8_t kind, phase;
    uint16_t flags;
    uint32_t index, x, y;
    uint32_t used; /* of containers: list of the values (keys) so far; 0: empty */
    uint32_t acc;  /* of objects: list of the properties seen beyond the first 64 */
    uint32_t depth;
    uint64_t bits; /* objects: bit i: property i was seen; in_order: the next property. Otherwise
                      the hash of a value so far */
};

struct machine {
    const grammar *g;
    struct frame *frames; /* (MACHINE_MAX_FRAMES) arena; 0: none */
    uint32_t n_frames;
    uint32_t *table;      /* (2 * MACHINE_MAX_FRAMES) frames by content; 0: free */
    uint32_t *slot;       /* (MACHINE_MAX_FRAMES) of each frame in table */
    struct frame *pool;   /* (MACHINE_MAX_POOL) */
    uint32_t n_pool, out; /* the set under construction: [out, n_pool) */
    struct {
        uint32_t step, node, parent;
    } * seen; /* (MACHINE_SEEN) */
    uint32_t step;
    bool failed;
    uint64_t spent, limit; /* units of work; beyond the limit the machine is exhausted */
    bool exhausted; /* the current operation is void; the caller that set the limit clears it */
};

/* ---- machine_arena.c, machine.c ---- */

int machine_init(struct machine *m, const grammar *g); /* ERR_NOMEM */
void machine_fini(struct machine *m);
/* Charges work: a unit is about one frame stepped by one byte. */
static inline void machine_spend(struct machine *m, uint64_t units) {
    m->spent += units;
    if (m->spent > m->limit) m->exhausted = true;
}
/* Results from now on are void. */
static inline bool machine_is_stopped(const struct machine *m) {
    return m->failed || m->exhausted;
}
/* Each appends a set to the pool and returns its size; the caller removes it by resetting n_pool.
 * in: n frames, outside the new set. */
uint32_t machine_start(struct machine *m);
uint32_t machine_step(struct machine *m, const struct frame *in, uint32_t n, uint8_t byte);
/* Drops the frames interned since there were n. */
void machine_roll_back(struct machine *m, uint32_t n);
/* Keeps the frames below the n frames at set and drops all others. */
void machine_compact(struct machine *m, struct frame *set, uint32_t n);
bool machine_may_end(const struct frame *set, uint32_t n);

/* The arena's index of f. GRAMMAR_NONE: too deep, or failed. */
uint32_t machine_intern(struct machine *m, const struct frame *f);
/* Adds f to the set under construction. */
void machine_emit(struct machine *m, const struct frame *f);
/* done is complete: continues with the frames below it. */
void machine_pop(struct machine *m, const struct frame *done);

/* ---- machine_json.c; the functions that return bool: something was, or could be, entered ---- */

bool json_enter_value(struct machine *m, uint32_t value, uint32_t parent, bool watched);
void json_array_step(struct machine *m, const struct frame *f, uint8_t byte);
void json_object_step(struct machine *m, const struct frame *f, uint8_t byte);
/* The item done of the array p (an interned frame) is complete. */
void json_array_took(struct machine *m, const struct frame *p, const struct frame *done);
/* May the object's property i come as the next member? */
bool json_may_name(struct machine *m, const struct frame *object, uint32_t i);
/* The key is complete: continues the object. property: GRAMMAR_NONE for a key outside of them. */
void json_took_key(struct machine *m, const struct frame *key, uint32_t property);

/* ---- machine_string.c ---- */

void string_step(struct machine *m, const struct frame *f, uint8_t byte);
void string_begin(const struct machine *m, struct frame *f, const struct g_string *s);
/* Consumes one byte of the unescaped content. false: no content has this prefix. Does not check
 * string_is_alive. */
bool string_content_byte(struct machine *m, struct frame *f, uint8_t byte);
/* Some continuation can end the string (watched: with a value that is not used yet). */
bool string_is_alive(struct machine *m, const struct frame *f);

/* ---- machine_unique.c ---- */

/* Length of a list of hashes. */
static inline uint32_t used_n(const struct machine *m, uint32_t used) {
    return used ? m->frames[used].x : 0;
}

bool used_has(struct machine *m, uint32_t used, uint64_t hash);
uint32_t used_add(struct machine *m, uint32_t used, uint64_t hash); /* GRAMMAR_NONE: failed */
/* Hashes of values: equal numbers have equal hashes, however they are written. */
uint64_t hash_byte(uint64_t hash, uint8_t byte);
void watch_byte(struct frame *f, uint8_t byte);                /* of a FRAME_DFA */
uint64_t watch_hash(const struct frame *f);                    /* of a complete value */
bool watch_is_alive(struct machine *m, const struct frame *f); /* some unused value is left */

#endif
