/* file.h - file system calls that retry after signals, with fault injection for tests. Any thread.
 */
#ifndef INFERD_BASE_FILE_H
#define INFERD_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* Each is the system call of that name, repeated after EINTR; -1 with errno on failure. file_open
 * adds O_CLOEXEC. */
int file_open(const char *path, int flags, unsigned mode);
int file_truncate(int fd, uint64_t n);
int file_sync(int fd);
int file_rename(const char *from, const char *to);

/* Up to n bytes from offset on; 0 at the end of the file, -1 with errno. */
int64_t file_read_some(int fd, void *to, uint64_t n, uint64_t offset);
/* All n bytes: 0, or -1 with errno; errno is 0 if the file is too short. */
int file_read_at(int fd, void *to, uint64_t n, uint64_t offset);
int file_write_at(int fd, const void *from, uint64_t n, uint64_t offset);

/* Syncs the folder of path, which makes its directory entry durable. 0, or -1 with errno: some file
 * systems do not support it. */
int file_sync_folder(const char *path);

/* Populates the pages of these bytes of a mapped file in one call. Page faults take several times
 * as long, ten times when distant rows are read in parallel. Only a hint. */
void file_read_pages(const void *data, uint64_t bytes);

/* Fault injection for tests: the n-th of the calls above from now on (1: the next; all threads,
 * except file_read_pages) fails with errno why. why 0: it succeeds, but a read or write transfers
 * only one byte in its first system call. n 0: no fault. Returns what was left of the previous n;
 * 0: that fault has happened, or none was set. */
uint64_t file_fail_at(uint64_t n, int why);
/* Counts as one of these calls; true, with errno set, if it must fail. For callers of other system
 * calls. */
bool file_fails(void);

#endif
