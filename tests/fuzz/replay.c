/* replay.c - main of a fuzz target without a fuzzer: runs every file of its corpus once.
 * usage: fuzz_NAME [FOLDER]; the folder is tests/fuzz/corpus/NAME below the project root. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static int replay(const char *path) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    uint8_t *bytes = NULL;
    /* Exactly as large as the file, so that a sanitizer detects every read past its end. */
    int rc = fstat(fileno(f), &st) || !S_ISREG(st.st_mode) ? -1 : 0;
    if (!rc && st.st_size) {
        bytes = malloc((size_t)st.st_size);
        rc = bytes && fread(bytes, 1, (size_t)st.st_size, f) == (size_t)st.st_size ? 0 : -1;
    }
    fclose(f);
    if (!rc) LLVMFuzzerTestOneInput(bytes, (size_t)st.st_size);
    free(bytes);
    return rc;
}

int main(int argc, char **argv) {
    char folder[512], path[1024];
    int n_passed = 0, n_failed = 0;
    const char *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    if (strncmp(name, "fuzz_", 5) == 0) name += 5;
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    if (argc > 1) snprintf(folder, sizeof folder, "%s", argv[1]);
    DIR *dir = opendir(folder);
    for (struct dirent *it = dir ? readdir(dir) : NULL; it; it = readdir(dir)) {
        if (it->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, it->d_name);
        if (replay(path)) {
            printf("cannot read %s\n", path);
            n_failed++;
        } else {
            n_passed++;
        }
    }
    if (dir) closedir(dir);
    if (!n_passed) {
        printf("no corpus in %s\n", folder);
        n_failed++;
    }
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
