/* lacking.h - known families that this build cannot run, and what it lacks for them. */
#ifndef INFERD_LACKING_H
#define INFERD_LACKING_H

#include <stddef.h>

/* By general.architecture of a GGUF file (n bytes), or by model_type of a folder. NULL: unknown. */
const char *lacking_for_arch(const char *name, size_t n);
const char *lacking_for_folder(const char *model_type);

#endif
