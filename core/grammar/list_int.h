/* list_int.h - private to core/grammar: lists whose elements refer to each other by index. */
#ifndef INFERD_GRAMMAR_LIST_INT_H
#define INFERD_GRAMMAR_LIST_INT_H

#include <stdint.h>

#define GRAMMAR_NONE UINT32_MAX /* not an index */

/* A growing list; zeroed it is empty. The owner grows it with mem_grow and frees at. */
#define G_LIST(type)                                                                               \
    struct {                                                                                       \
        type *at;                                                                                  \
        uint32_t n, capacity;                                                                      \
    }

#endif
