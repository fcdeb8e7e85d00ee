/* page.h - lists in pages, as OpenAI's API has them: the query's limit, order and after, and the
 * list object. Pool threads. */
#ifndef INFERD_API_HTTP_PAGE_H
#define INFERD_API_HTTP_PAGE_H

#include "api/http/json.h"

struct request;

enum { PAGE_ID_BYTES = 128, PAGE_MAX_LIMIT = 100, PAGE_LIMIT = 20 };

struct page {
    int limit;
    int most; /* of limit; 0: PAGE_MAX_LIMIT */
    bool ascending;
    char after[PAGE_ID_BYTES]; /* "": from the beginning */
};

/* Takes a parameter of a query. false: not a parameter of a page. ERR_INVALID in e: a wrong value.
 */
bool page_take(struct page *p, const char *name, const char *value, err *e);
/* Sets ERR_INVALID: the query has an unknown parameter. */
int page_refuse(const char *name, err *e);

/* Opens a list; the caller adds its data. */
void page_open(str *out);
/* Closes it; first and last are ids, NULL for an empty list. */
void page_close(str *out, const char *first, const char *last, bool more);
/* A list whose items come one by one. Zeroed at first; the body is the caller's to send or free. */
struct page_list {
    str body;
    char first[PAGE_ID_BYTES], last[PAGE_ID_BYTES];
};
void page_list_open(struct page_list *l);
void page_list_next(struct page_list *l, const char *id); /* the caller adds the item then */
void page_list_close(struct page_list *l, bool more);
/* Replies with the page of an array of objects with ids. ERR_INVALID: there is no item p->after. */
int page_reply(struct request *r, const cJSON *items, const struct page *p, err *e);

#endif
