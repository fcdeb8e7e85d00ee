/* list.h - doubly linked lists of structs with the members prev and next, in a struct with the
 * members first and last. A zeroed list is empty. The names differ from those of sys/queue.h, which
 * macOS includes in other headers. */
#ifndef INFERD_LIST_H
#define INFERD_LIST_H

#include <stddef.h>

/* Enters item after the element `after`; NULL: at the front. The arguments are evaluated more than
 * once. */
#define LINKED_INSERT(list, after, item)                                                           \
    do {                                                                                           \
        (item)->prev = (after);                                                                    \
        (item)->next = (item)->prev ? (item)->prev->next : (list)->first;                          \
        *((item)->next ? &(item)->next->prev : &(list)->last) = (item);                            \
        *((item)->prev ? &(item)->prev->next : &(list)->first) = (item);                           \
    } while (0)

#define LINKED_APPEND(list, item) LINKED_INSERT(list, (list)->last, item)

#define LINKED_REMOVE(list, item)                                                                  \
    do {                                                                                           \
        *((item)->prev ? &(item)->prev->next : &(list)->first) = (item)->next;                     \
        *((item)->next ? &(item)->next->prev : &(list)->last) = (item)->prev;                      \
        (item)->prev = (item)->next = NULL;                                                        \
    } while (0)

#endif
