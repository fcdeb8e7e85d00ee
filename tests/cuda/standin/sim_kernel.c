/* sim_kernel.c - properties of a kernel: its name and its static shared memory (both from the
 * program's own symbols: a __shared__ array is a static variable named after its function), and its
 * limit of dynamic shared memory. */
#include "sim_int.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *__cxa_demangle(const char *name, char *out, size_t *n, int *status);

static struct {
    const char *file; /* the program, mapped */
    const ElfW(Sym) * symbols;
    size_t n_symbols;
    const char *names;
    uintptr_t bias, low, high;
} program;
static struct sim_function functions[2048];
static size_t n_functions;

static int first_object(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    program.bias = info->dlpi_addr;
    program.low = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + h->p_vaddr;
        if (h->p_type != PT_LOAD) continue;
        if (at < program.low) program.low = at;
        if (at + h->p_memsz > program.high) program.high = at + h->p_memsz;
    }
    return 1;
}

bool sim_in_program(const void *p) {
    return (uintptr_t)p >= program.low && (uintptr_t)p < program.high;
}

uintptr_t sim_program_bias(void) {
    return program.bias;
}

static void read_program(void) {
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) cudasim_fail("no /proc/self/exe");
    program.file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (program.file == MAP_FAILED) cudasim_fail("cannot map the program");
    const ElfW(Ehdr) *e = (const void *)program.file;
    const ElfW(Shdr) *s = (const void *)(program.file + e->e_shoff);
    for (int i = 0; i < e->e_shnum; i++)
        if (s[i].sh_type == SHT_SYMTAB) {
            program.symbols = (const void *)(program.file + s[i].sh_offset);
            program.n_symbols = s[i].sh_size / sizeof *program.symbols;
            program.names = program.file + s[s[i].sh_link].sh_offset;
        }
    if (!program.symbols) cudasim_fail("the program has no symbols");
    dl_iterate_phdr(first_object, NULL);
}

/* Symbols are read once a kernel. */
static void describe(struct sim_function *f) {
    const char *mangled = NULL;
    for (size_t i = 0; i < program.n_symbols && !mangled; i++)
        if (ELF64_ST_TYPE(program.symbols[i].st_info) == STT_FUNC &&
            program.symbols[i].st_value + program.bias == (uintptr_t)f->fn)
            mangled = program.names + program.symbols[i].st_name;
    if (!mangled || strncmp(mangled, "_Z", 2)) {
        snprintf(f->name, sizeof f->name, "%s", mangled ? mangled : "?");
        return;
    }
    int status;
    char *plain = __cxa_demangle(mangled, NULL, NULL, &status);
    snprintf(f->name, sizeof f->name, "%s", plain ? plain : mangled);
    free(plain);
    size_t n = strlen(mangled + 2);
    for (size_t i = 0; i < program.n_symbols; i++) { /* _ZZ function E variable */
        const ElfW(Sym) *s = &program.symbols[i];
        const char *name = program.names + s->st_name;
        if (ELF64_ST_TYPE(s->st_info) != STT_OBJECT || strncmp(name, "_ZZ", 3) ||
            strncmp(name + 3, mangled + 2, n) || name[3 + n] != 'E')
            continue;
        if (f->n_statics == sizeof f->statics / sizeof *f->statics)
            cudasim_fail("kernel %s: more than %zu __shared__ variables", f->name, f->n_statics);
        f->statics[f->n_statics].at = (void *)(s->st_value + program.bias);
        f->statics[f->n_statics++].bytes = s->st_size;
        f->static_bytes += (uint32_t)(s->st_size + 15) / 16 * 16;
    }
}

struct sim_function *sim_function(const void *fn) {
    for (size_t i = 0; i < n_functions; i++)
        if (functions[i].fn == fn) return &functions[i];
    if (n_functions == sizeof functions / sizeof *functions)
        cudasim_fail("more than %zu kernels", n_functions);
    if (!program.file) read_program();
    struct sim_function *f = &functions[n_functions++];
    f->fn = fn;
    describe(f);
    f->dynamic_max = SIM_SHARED > f->static_bytes ? SIM_SHARED - f->static_bytes : 0;
    return f;
}
