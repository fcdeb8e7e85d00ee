/* machine.h - states of a text. Private to core/grammar.
 *
 * Where a text may stand is a set of frames, each on top of a stack: the top one takes the next
 * byte, those below say what comes after it. Tops lie by value in a pool, one set after the other;
 * what is below a top is interned in an arena, so that equal stacks are one index. All memory is
 * taken once; when it is used up the machine has failed, and stays so.
 *
 * THREAD SAFETY: one thread at a time. */
#ifndef INFERD_GRAMMAR_MATCH_MACHINE_H
#define INFERD_GRAMMAR_MATCH_MACHINE_H

#include "core/grammar/grammar_int.h"

enum {
    MACHINE_MAX_SET = 512,       /* frames that a text may stand in at once */
    MACHINE_MAX_FRAMES = 16384,  /* of the arena */
    MACHINE_MAX_POOL = 8192,     /* of the sets along one token */
    MACHINE_SEEN = 256,          /* places of the table of nodes that were entered */
    MACHINE_CONTAINER_DEPTH = 4, /* weight of an array or an object; of any other frame 1 */
    MACHINE_MAX_DEPTH = GRAMMAR_MAX_DEPTH * MACHINE_CONTAINER_DEPTH
};

enum frame_kind {
    FRAME_END,    /* the text may end */
    FRAME_SEQ,    /* index: node; x: the child that comes next */
    FRAME_REPEAT, /* index: node; x: times so far, with the one that is under way */
    FRAME_DFA,    /* index: automaton; x: state; watched: bits and y, see unique */
    FRAME_STRING, /* a JSON string or key: see enum content */
    FRAME_ARRAY,  /* index: array; x: places so far; y: of them counted by contains; used */
    FRAME_OBJECT, /* index: object; x: members so far; y: value that comes next; used; bits, acc:
                     which properties were seen */
    FRAME_CELL    /* of a list in the arena: parent: the rest of it; bits, index: its element; x: of
                     hashes, their number */
};

/* What the content of a string is held against. */
enum content {
    CONTENT_COUNT, /* index: g_string; x: code points so far; acc: see below */
    CONTENT_DFA,   /* index: automaton; x: state; y: a key's g_keys */
    CONTENT_NAMES  /* index: object; x..y: names (places in sorted) that begin so; used: bytes */
};
enum frame_flags {
    FLAG_CONTENT = 3, /* enum content */
    FLAG_KEY = 4,     /* a key: its parent is the object */
    FLAG_WATCHED = 8, /* the value is hashed: no other one in parent's used may equal it */
    FLAG_NEGATIVE = 16,
    FLAG_NEGATIVE_EXPONENT = 32,
    FLAG_PART = 7 << 6 /* enum number_part */
};
enum number_part { PART_START, PART_WHOLE, PART_FRACTION, PART_EXPONENT, PART_WORD };

/* Of strings. acc in STRING_BODY: which bytes of a code point are missing (CONTENT_COUNT); in
 * STRING_HEX: 1 and the hex digits so far; afterwards: the upper half of a pair << 20, and in
 * STRING_LOW likewise 1 and the digits. */
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
    uint32_t used; /* of containers: cells of the values (keys) that were there; 0: none */
    uint32_t acc;  /* of objects: cells of the properties seen beyond the first 64 */
    uint32_t depth;
    uint64_t bits; /* objects: bit i: property i was seen; in order: the next property. Else the
                      hash of a value so far */
};

struct machine {
    const grammar *g;
    struct frame *frames; /* (MACHINE_MAX_FRAMES) arena; 0 is no frame */
    uint32_t n_frames;
    uint32_t *table;      /* (2 * MACHINE_MAX_FRAMES) frames by content; 0: free */
    uint32_t *place;      /* (MACHINE_MAX_FRAMES) in table */
    struct frame *pool;   /* (MACHINE_MAX_POOL) */
    uint32_t n_pool, out; /* the set that is being made: [out, n_pool) */
    struct {
        uint32_t step, node, parent;
    } * seen; /* (MACHINE_SEEN) */
    uint32_t step;
    bool failed;
    uint64_t spent, limit; /* units of work; beyond the limit the machine is exhausted */
    bool exhausted; /* what was under way is worth nothing. Whoever set the limit clears it */
};

/* ---- machine.c ---- */

int machine_init(struct machine *m, const grammar *g); /* ERR_NOMEM */
void machine_fini(struct machine *m);
/* Counts work: a unit is about one frame stepped by one byte. */
static inline void machine_spend(struct machine *m, uint64_t units) {
    m->spent += units;
    if (m->spent > m->limit) m->exhausted = true;
}
/* Nothing that is done from here on counts. */
static inline bool machine_is_stopped(const struct machine *m) {
    return m->failed || m->exhausted;
}
/* Each appends a set to the pool and returns its size; the caller takes it away by setting n_pool.
 * in: n frames, elsewhere. */
uint32_t machine_start(struct machine *m);
uint32_t machine_step(struct machine *m, const struct frame *in, uint32_t n, uint8_t byte);
/* Forgets the frames that were interned since there were n. */
void machine_roll_back(struct machine *m, uint32_t n);
/* Keeps what the n frames at set stand on and forgets the rest. */
void machine_compact(struct machine *m, struct frame *set, uint32_t n);
bool machine_may_end(const struct frame *set, uint32_t n);

/* For the other parts. GRAMMAR_NONE: too deep, or failed. */
uint32_t machine_intern(struct machine *m, const struct frame *f);
void machine_emit(struct machine *m, const struct frame *f);
/* done, on top of its parent, is complete. */
void machine_pop(struct machine *m, const struct frame *done);

/* ---- machine_json.c. The bools: something was entered, or could be ---- */

bool json_enter_value(struct machine *m, uint32_t value, uint32_t parent, bool watched);
void json_array_step(struct machine *m, const struct frame *f, uint8_t byte);
void json_object_step(struct machine *m, const struct frame *f, uint8_t byte);
/* An element of the array p (an interned frame) is complete. */
void json_array_took(struct machine *m, const struct frame *p, const struct frame *done);
/* May the object's property i come as the next member? */
bool json_may_name(struct machine *m, const struct frame *object, uint32_t i);
/* The key is complete: the object goes on behind it. property: GRAMMAR_NONE for one of its keys. */
void json_took_key(struct machine *m, const struct frame *key, uint32_t property);

/* ---- machine_string.c ---- */

void string_step(struct machine *m, const struct frame *f, uint8_t byte);
void string_begin(const struct machine *m, struct frame *f, const struct g_string *s);
/* One byte of the content itself, a code point's first or a later one. false: nothing begins so.
 * Does not ask string_is_alive. */
bool string_content_byte(struct machine *m, struct frame *f, uint8_t byte);
/* Some content can follow and end the string (watched: which is not used). */
bool string_is_alive(struct machine *m, const struct frame *f);

/* ---- machine_unique.c ---- */

/* A list of hashes is a cell: x of them, its own and those of the cells below. */
static inline uint32_t used_n(const struct machine *m, uint32_t used) {
    return used ? m->frames[used].x : 0;
}

bool used_has(struct machine *m, uint32_t used, uint64_t hash);
uint32_t used_add(struct machine *m, uint32_t used, uint64_t hash); /* GRAMMAR_NONE: failed */
/* Hashes of values: equal numbers have one, however they are written. */
uint64_t hash_byte(uint64_t hash, uint8_t byte);
void watch_byte(struct frame *f, uint8_t byte);                /* of a FRAME_DFA */
uint64_t watch_hash(const struct frame *f);                    /* of a complete value */
bool watch_is_alive(struct machine *m, const struct frame *f); /* some unused one is left */

#endif
