/* file.h - system calls on files that are the same for all who read and write them, and the faults
 * that tests plant in these calls. Any thread. */
#ifndef INFERD_BASE_FILE_H
#define INFERD_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* As the system call of the name, repeated while a signal interrupts it: -1 with errno on failure.
 * flags of file_open get O_CLOEXEC. */
int file_open(const char *path, int flags, unsigned mode);
int file_truncate(int fd, uint64_t n);
int file_sync(int fd);
int file_rename(const char *from, const char *to);

/* Up to n bytes from offset on; 0 at the end of the file, -1 with errno. */
int64_t file_read_some(int fd, void *to, uint64_t n, uint64_t offset);
/* All n bytes: 0, or -1 with errno; errno is 0 if the file ends before. */
int file_read_at(int fd, void *to, uint64_t n, uint64_t offset);
int file_write_at(int fd, const void *from, uint64_t n, uint64_t offset);

/* Makes the name of path durable: syncs its folder. 0, or -1 with errno: some file systems cannot
 * do it. */
int file_sync_folder(const char *path);

/* Asks the system to read these bytes of a mapped file at once: a page fault for each page takes
 * several times as long, ten times if rows that lie apart are read in parallel. Only a hint. */
void file_read_pages(const void *data, uint64_t bytes);

/* For tests of failing disks: of the calls above (all threads, except file_read_pages) the n-th
 * from now on (1: the next) fails with errno why. why 0: it does not fail, but if it reads or
 * writes, its first system call transfers one byte only. n 0: no fault. Returns how many calls were
 * still to be made before a fault set earlier; 0: it has happened, or none was set. */
uint64_t file_fail_at(uint64_t n, int why);
/* Counts as one of these calls: true, with errno set, if it is to fail. For callers that use other
 * system calls. */
bool file_fails(void);

#endif
