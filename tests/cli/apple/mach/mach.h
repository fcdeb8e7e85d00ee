/* mach/mach.h - what inferd uses of macOS' header of this name. */
#ifndef INFERD_TESTS_MACH_H
#define INFERD_TESTS_MACH_H

#include <stdint.h>

typedef int kern_return_t;
typedef unsigned mach_port_t, task_flavor_t, mach_msg_type_number_t;
typedef int *task_info_t;

struct mach_task_basic_info {
    uint64_t virtual_size, resident_size, resident_size_max;
};

#define MACH_TASK_BASIC_INFO       20
#define MACH_TASK_BASIC_INFO_COUNT (sizeof(struct mach_task_basic_info) / sizeof(int))

mach_port_t mach_task_self(void);
kern_return_t task_info(mach_port_t, task_flavor_t, task_info_t, mach_msg_type_number_t *);

#endif
