/* scan.h - hand-written scanners for the split patterns of most models: several times as fast as
 * the regular expressions, and linear where those are not. Private to core/tokenizer. Pure; any
 * thread.
 */
#ifndef INFERD_TOKENIZER_SCAN_H
#define INFERD_TOKENIZER_SCAN_H

#include "core/text/unicode.h"

enum scan_kind {
    SCAN_NONE,
    SCAN_GPT2,      /* contractions, " ?" before words, numbers and other runs */
    SCAN_LLAMA3,    /* one character before a word, short numbers, line ends with their text */
    SCAN_CASED,     /* as LLAMA3; words are split where upper case follows lower case */
    SCAN_TAIL,      /* \s+$ */
    SCAN_GROUPS_B,  /* groups of three digits from the right, only before a word boundary */
    SCAN_GROUPS_RUN /* empty matches between groups of three digits */
};

struct scan {
    enum scan_kind kind;
    unsigned max_digits; /* of LLAMA3 and CASED: longest number */
    bool marks;          /* LLAMA3: combining marks count as letters */
    bool cascade;        /* LLAMA3: runs of spaces in powers of two, 512 at most */
    bool slash;          /* CASED: slashes count as line ends after punctuation */
    bool han;            /* CASED: runs of Han characters are separate words */
    bool contractions;   /* CASED: words include 's, 't, ... */
    bool ascii_fold;     /* contractions do not match the long s (U+017F) */
};

/* The scanner of a regular expression, compared as text; kind SCAN_NONE: there is none. */
struct scan scan_of_pattern(const char *pattern);

/* The state of a search: zeroed before the first call, then passed to each call. */
struct scan_match {
    size_t from;       /* search from here */
    size_t start, end; /* the match */
    size_t run_end;    /* end of the current run of digits or spaces, 0: none */
};

/* Finds the next match in text[0..n), valid UTF-8. false: no more matches. */
bool scan_next(const struct scan *s, const struct unicode_flags *u, const char *text, size_t n,
               struct scan_match *m);

#endif
