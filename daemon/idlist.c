/* idlist.c - parses lists of token ids. Pure. */
#include "daemon/idlist.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

int idlist_parse(const char *text, int32_t n_vocab, int32_t **ids, size_t *n, err *e) {
    /* A list has at most one id for every two bytes. */
    int32_t *list = mem_new(strlen(text) / 2 + 1, sizeof *list);
    size_t count = 0;
    if (!list) return err_set(e, ERR_NOMEM, "no memory for the token ids");
    for (const char *p = text + strspn(text, " \n\t"); *p;) {
        char *end;
        unsigned long id = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
        if (*p < '0' || *p > '9' || id >= (unsigned long)n_vocab) {
            free(list);
            return err_set(e, ERR_INVALID,
                           "token ids are numbers from 0 to %d with commas between, not \"%.24s\"",
                           (int)n_vocab - 1, p);
        }
        list[count++] = (int32_t)id;
        p = end + strspn(end, " \n\t");
        if (*p == ',')
            p += 1 + strspn(p + 1, " \n\t");
        else if (*p && p == end) {
            free(list);
            return err_set(e, ERR_INVALID, "a comma is missing before \"%.24s\"", p);
        }
    }
    *ids = list;
    *n = count;
    return 0;
}
