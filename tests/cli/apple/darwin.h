/* darwin.h - makes Linux' headers declare what macOS' declare that others do not, and hides what
 * macOS lacks: included before each file by tests/cli/macos, with -D__APPLE__ -U__linux__ and this
 * folder's headers. So a name that clashes on a Mac, or a call that is Linux' alone, does not
 * compile here either. Written from Apple's manual pages; types and values are not Apple's ABI. */
#ifndef INFERD_TESTS_DARWIN_H
#define INFERD_TESTS_DARWIN_H

/* Headers that declare a name that is hidden below come first. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* <stdlib.h> includes <sys/wait.h>, which has this union. */
union wait {
    int w_status;
};

/* Functions of <stdlib.h>, <string.h>, <stdio.h>, <unistd.h> and <math.h> that Linux lacks, or has
 * with other arguments. */
char *devname(dev_t, mode_t);
char *fgetln(FILE *, size_t *);
char *getbsize(int *, long *);
char *strnstr(const char *, const char *, size_t);
double __exp10(double);
float __exp10f(float);
int getpeereid(int, uid_t *, gid_t *);
int heapsort(void *, size_t, size_t, int (*)(const void *, const void *));
int issetugid(void);
int mergesort(void *, size_t, size_t, int (*)(const void *, const void *));
int radixsort(const unsigned char **, int, const unsigned char *, unsigned);
int sradixsort(const unsigned char **, int, const unsigned char *, unsigned);
long long strtonum(const char *, long long, long long, const char **);
void *reallocf(void *, size_t);
void psort(void *, size_t, size_t, int (*)(const void *, const void *));
void memset_pattern4(void *, const void *, size_t);
void memset_pattern8(void *, const void *, size_t);
void memset_pattern16(void *, const void *, size_t);
void srandomdev(void);
FILE *funopen(const void *, int (*)(void *, char *, int), int (*)(void *, const char *, int),
              fpos_t (*)(void *, fpos_t, int), int (*)(void *));

#define st_mtimespec st_mtim
#define st_ctimespec st_ctim
#define st_atimespec st_atim
#ifndef OPEN_MAX
#define OPEN_MAX 10240
#endif

int pthread_cond_timedwait_relative_np(pthread_cond_t *, pthread_mutex_t *,
                                       const struct timespec *);

/* A thread names itself only. */
int darwin_setname_np(const char *);
#define pthread_setname_np(name) darwin_setname_np(name)

/* Flags that macOS has not, or not in all versions. */
#undef EPOLL_CLOEXEC
#undef MADV_HUGEPAGE
#undef MAP_HUGETLB
#undef MAP_POPULATE
#undef MSG_MORE
#undef MSG_NOSIGNAL
#undef O_DIRECT
#undef O_PATH
#undef O_TMPFILE
#undef POLLRDHUP
#undef SOCK_CLOEXEC
#undef SOCK_NONBLOCK
#undef SO_REUSEPORT_LB
#undef TCP_KEEPIDLE
#undef TCP_QUICKACK
#undef CLOCK_BOOTTIME
#undef CLOCK_MONOTONIC_COARSE
#undef CLOCK_REALTIME_COARSE
#pragma GCC poison SOCK_CLOEXEC SOCK_NONBLOCK

/* Functions that it has not; qsort_r has its arguments in another order. */
#pragma GCC poison accept4 canonicalize_file_name clock_nanosleep copy_file_range dup3 euidaccess
#pragma GCC poison execvpe explicit_bzero fallocate fdatasync fputs_unlocked fwrite_unlocked       \
    getauxval
#pragma GCC poison get_current_dir_name get_nprocs getrandom gettid mempcpy memrchr mremap
#pragma GCC poison pipe2 posix_fadvise posix_fallocate ppoll prctl program_invocation_name
#pragma GCC poison program_invocation_short_name pthread_condattr_setclock pthread_getcpuclockid
#pragma GCC poison pthread_mutex_timedlock pthread_setaffinity_np pthread_spin_lock qsort_r
#pragma GCC poison rawmemchr renameat2 sched_getcpu sched_setaffinity secure_getenv sem_timedwait
#pragma GCC poison sendmmsg sighandler_t splice statx strchrnul strverscmp syncfs versionsort

#endif
