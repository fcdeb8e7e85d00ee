/* ignored.h - what a body asks for and the server ignores: unknown fields, and advisory ones, which
 * change no answer. Each is named in the answer's header x-inferd-ignored-fields and counted at
 * /metrics; or, if the configuration says so, refused.
 *
 * THREAD SAFETY: a list belongs to one request; counts are for any thread. */
#ifndef INFERD_API_HTTP_IGNORED_H
#define INFERD_API_HTTP_IGNORED_H

#include "api/http/json.h"

#include <pthread.h>

enum { IGNORED_MAX = 32, IGNORED_HEADER_BYTES = 240 };

/* Of one body. Zeroed, except refuse. */
struct ignored {
    bool refuse;     /* outside of echoed objects, each is an error instead */
    bool more;       /* there are more than IGNORED_MAX */
    uint64_t n_more; /* occurrences that are in no row */
    uint32_t n;
    struct ignored_row {
        char name[JSON_PATH_BYTES];  /* "messages[2].annotations" */
        char field[JSON_PATH_BYTES]; /* "messages.annotations": of all occurrences */
        bool known;                  /* a table or a reader knows the field */
        uint64_t n;                  /* occurrences */
    } rows[IGNORED_MAX];
};

/* Deletes the members of body that table does not know, at every level that tables describe, and
 * the advisory ones that are not kept. Lists them, but not those with a harmless value. With
 * refuse, the error of the first one. */
int ignored_sift(struct ignored *list, cJSON *body, const struct json_table *table, err *e);
/* A reader ignores the field or item with that path; list NULL: not recorded. With refuse
 * ERR_UNSUPPORTED. */
int ignored_add(struct ignored *list, const char *name, err *e);
/* The same of a member whose name is the client's own: in the header, other characters than
 * letters, digits and "_-.[]" become '?', and it is counted as an unknown one. */
int ignored_add_member(struct ignored *list, const char *path, const char *member, err *e);
/* The same inside of an object that a client echoes: never an error. */
void ignored_tolerate(struct ignored *list, const char *name);

/* The header's value: whole names, separated by ", ", then "..." if there are more; "" for none.
 * dst holds IGNORED_HEADER_BYTES. Characters of names except letters, digits and "_-.[]" are '?'.
 */
void ignored_header(const struct ignored *list, char *dst);

/* Occurrences by route and field since the start. Fields come from tables, which bounds their
 * number; all unknown ones share a row. */
enum { IGNORED_COUNTS = 1024 };
struct ignored_counts {
    pthread_mutex_t mu; /* guards the rest */
    struct ignored_count {
        size_t row;                  /* SIZE_MAX: of all routes */
        char field[JSON_PATH_BYTES]; /* "": free */
        uint64_t n;
    } slots[IGNORED_COUNTS];
};
void ignored_counts_init(struct ignored_counts *c);
void ignored_counts_fini(struct ignored_counts *c);
/* Adds the list of a request of the route in row (request.row). */
void ignored_counts_add(struct ignored_counts *c, size_t row, const struct ignored *list);

#endif
