/* python.h - private to core/chat: arguments that are not written as JSON, turned into a JSON
 * object while they arrive: keyword arguments of a Python call, such as those of LFM2
 * (`city="Rome", days=[1, 2]`), and bare objects, such as those of Gemma 4
 * (`{city:<|"|>Rome<|"|>,days:[1,2]}`), whose keys have no quotes and whose strings have a mark
 * around them and no escapes. JSON objects are bare objects, too.
 *
 * THREAD SAFETY: one thread at a time. */
#ifndef INFERD_CHAT_PYTHON_H
#define INFERD_CHAT_PYTHON_H

#include "core/base/str.h"

#include <stdint.h>

/* Grammars allow as deep values, and numbers of any length. */
enum { CHAT_PYTHON_DEPTH = 256, CHAT_PYTHON_WORD_BYTES = 1024 };

struct chat_python {
    uint8_t state;                     /* of python.c */
    uint16_t depth;                    /* open brackets */
    char open[CHAT_PYTHON_DEPTH];      /* (depth) their closers in Python */
    char word[CHAT_PYTHON_WORD_BYTES]; /* (n_word) a number or constant so far */
    uint16_t n_word;
    bool comma;       /* owed before the next member */
    bool is_key;      /* the string is a key of a dict */
    bool bare;        /* a bare object */
    bool marked;      /* marks are around the string */
    bool triple;      /* three quotes around the string */
    char quote;       /* around the string */
    uint8_t n_quotes; /* quotes in a row within a triple string */
    uint8_t n_digits; /* left in an escape */
    uint8_t base;     /* of those digits */
    uint32_t code;    /* the escape's value so far */
};

enum chat_python_result { CHAT_PYTHON_MORE, CHAT_PYTHON_END, CHAT_PYTHON_BAD };

/* Begins after the call's parenthesis, and adds the object's brace to out. */
void chat_python_begin(struct chat_python *p, str *out);
/* Begins after the brace of a bare object, likewise. */
void chat_python_begin_bare(struct chat_python *p, str *out);
/* Takes the next byte and adds the JSON that it decides to out. END: c is the parenthesis that ends
 * the call, or the bare object's brace, and the object is complete. BAD: c cannot follow; the
 * object stays incomplete. Accepts literals only: strings ('', "" and tripled, with escapes),
 * numbers, None, True, False and their JSON names, lists, and dicts with strings as keys. */
enum chat_python_result chat_python_put(struct chat_python *p, char c, str *out);
/* The same for the mark around strings of a bare object. */
enum chat_python_result chat_python_quote(struct chat_python *p, str *out);

#endif
