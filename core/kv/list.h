/* list.h - lists whose links are indices that stand in the elements: the free lists of blocks,
 * state blocks and window blocks, and the chains of the prefix table. Private to this folder. */
#ifndef INFERD_KV_LIST_H
#define INFERD_KV_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_NONE UINT32_MAX /* no element */

/* An element's place in a list. */
struct kv_link {
    uint32_t prev, next;
};

/* The links of one kind in an array of elements. */
struct kv_links {
    void *first;   /* struct kv_link of element 0 */
    size_t stride; /* bytes from one element to the next */
};
#define KV_LINKS(elements, member) ((struct kv_links){&(elements)->member, sizeof *(elements)})

static inline struct kv_link *kv_link_of(struct kv_links l, uint32_t i) {
    return (struct kv_link *)((char *)l.first + i * l.stride);
}

/* ---- chains: only the head is known ---- */

static inline void kv_chain_push(struct kv_links l, uint32_t *head, uint32_t i) {
    *kv_link_of(l, i) = (struct kv_link){.prev = KV_NONE, .next = *head};
    if (*head != KV_NONE) kv_link_of(l, *head)->prev = i;
    *head = i;
}

static inline void kv_chain_remove(struct kv_links l, uint32_t *head, uint32_t i) {
    const struct kv_link *at = kv_link_of(l, i);
    if (at->next != KV_NONE) kv_link_of(l, at->next)->prev = at->prev;
    if (at->prev != KV_NONE)
        kv_link_of(l, at->prev)->next = at->next;
    else
        *head = at->next;
}

/* ---- lists with both ends ---- */

struct kv_list {
    uint32_t head, tail;
};
#define KV_LIST_EMPTY ((struct kv_list){KV_NONE, KV_NONE})

static inline void kv_list_add(struct kv_links l, struct kv_list *to, uint32_t i, bool at_tail) {
    if (!at_tail || to->tail == KV_NONE) {
        kv_chain_push(l, &to->head, i);
        if (to->tail == KV_NONE) to->tail = i;
        return;
    }
    *kv_link_of(l, i) = (struct kv_link){.prev = to->tail, .next = KV_NONE};
    kv_link_of(l, to->tail)->next = i;
    to->tail = i;
}

static inline void kv_list_remove(struct kv_links l, struct kv_list *from, uint32_t i) {
    if (from->tail == i) from->tail = kv_link_of(l, i)->prev;
    kv_chain_remove(l, &from->head, i);
}

#endif
