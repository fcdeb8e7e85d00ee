/* scan.h - the split patterns that most models use, as scanners by hand: several times as fast as
 * the regular expressions that they stand for, and linear where those are not. Private to
 * core/tokenizer. Pure; any thread. */
#ifndef INFERD_TOKENIZER_SCAN_H
#define INFERD_TOKENIZER_SCAN_H

#include "core/text/unicode.h"

enum scan_kind {
    SCAN_NONE,
    SCAN_GPT2,      /* contractions, " ?" before words, numbers and other runs */
    SCAN_LLAMA3,    /* one character before a word, short numbers, line ends with what is before */
    SCAN_CASED,     /* as LLAMA3, words cut where lower case is followed by upper */
    SCAN_TAIL,      /* \s+$ */
    SCAN_GROUPS_B,  /* digits in threes from the right, only before a word's border */
    SCAN_GROUPS_RUN /* the same as cuts between the threes */
};

struct scan {
    enum scan_kind kind;
    unsigned max_digits; /* of LLAMA3 and CASED: longest number */
    bool marks;          /* LLAMA3: combining marks count as letters */
    bool cascade;        /* LLAMA3: runs of spaces in powers of two, 512 at most */
    bool slash;          /* CASED: slashes go with the line ends */
    bool han;            /* CASED: Han characters are words of their own */
    bool contractions;   /* CASED: words take 's and the like along */
    bool ascii_fold;     /* contractions know no long s (U+017F) */
};

/* The scanner of a regular expression, kind SCAN_NONE if it has none. The text must be equal. */
struct scan scan_of_pattern(const char *pattern);

/* A search: zeroed before the first call, then handed from call to call. */
struct scan_match {
    size_t from;       /* look at or behind this place */
    size_t start, end; /* the match */
    size_t run_end;    /* end of the digits or spaces that are being grouped, 0: none */
};

/* Finds the next match in text[0..n), valid UTF-8. False: none is left. */
bool scan_next(const struct scan *s, const struct unicode_flags *u, const char *text, size_t n,
               struct scan_match *m);

#endif
