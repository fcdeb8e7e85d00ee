/* file.h - what writers of files share. Any thread. */
#ifndef INFERD_BASE_FILE_H
#define INFERD_BASE_FILE_H

/* Has the name of path outlive a power cut: syncs the folder that it stands in. 0, or -1 with
 * errno: not every file system can. */
int file_sync_folder(const char *path);

#endif
