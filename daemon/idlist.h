/* idlist.h - token ids as people write them: "1,2,3", blanks allowed. */
#ifndef INFERD_IDLIST_H
#define INFERD_IDLIST_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* *ids (n) is the caller's; ids are >= 0 and < n_vocab. ERR_INVALID says which piece is wrong, an
 * empty list is allowed. */
int idlist_parse(const char *text, int32_t n_vocab, int32_t **ids, size_t *n, err *e);

#endif
