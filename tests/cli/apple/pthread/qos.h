/* pthread/qos.h - what inferd uses of macOS' header of this name. */
#ifndef INFERD_TESTS_QOS_H
#define INFERD_TESTS_QOS_H

typedef enum {
    QOS_CLASS_BACKGROUND = 0x09,
    QOS_CLASS_UTILITY = 0x11,
    QOS_CLASS_USER_INITIATED = 0x19
} qos_class_t;

int pthread_set_qos_class_self_np(qos_class_t qos, int relative_priority);

#endif
