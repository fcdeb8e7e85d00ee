/* file.h - what writers of files share, and readers of mapped ones. Any thread. */
#ifndef INFERD_BASE_FILE_H
#define INFERD_BASE_FILE_H

#include <stdint.h>

/* Has the name of path outlive a power cut: syncs the folder that it stands in. 0, or -1 with
 * errno: not every file system can. */
int file_sync_folder(const char *path);

/* Has the system read these bytes of a mapped file at once: a fault for each page takes several
 * times as long, ten times where rows that lie apart are read side by side. Only a wish. */
void file_read_pages(const void *data, uint64_t bytes);

#endif
