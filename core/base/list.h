/* list.h - doubly linked lists of structs with the members prev and next, in a struct with the
 * members first and last. A zeroed list is empty. */
#ifndef INFERD_LIST_H
#define INFERD_LIST_H

#include <stddef.h>

/* Enters item after the element `after`; NULL: at the front. The arguments are evaluated more than
 * once. */
#define LIST_INSERT(list, after, item)                                                             \
    do {                                                                                           \
        (item)->prev = (after);                                                                    \
        (item)->next = (item)->prev ? (item)->prev->next : (list)->first;                          \
        *((item)->next ? &(item)->next->prev : &(list)->last) = (item);                            \
        *((item)->prev ? &(item)->prev->next : &(list)->first) = (item);                           \
    } while (0)

#define LIST_APPEND(list, item) LIST_INSERT(list, (list)->last, item)

#define LIST_REMOVE(list, item)                                                                    \
    do {                                                                                           \
        *((item)->prev ? &(item)->prev->next : &(list)->first) = (item)->next;                     \
        *((item)->next ? &(item)->next->prev : &(list)->last) = (item)->prev;                      \
        (item)->prev = (item)->next = NULL;                                                        \
    } while (0)

#endif
