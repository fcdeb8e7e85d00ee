/* audit.h - what commands note in the registry's audit log (registry/audit.h). Main thread. */
#ifndef INFERD_COMMANDS_AUDIT_H
#define INFERD_COMMANDS_AUDIT_H

#include "registry/registry.h"

/* Notes what this user did, and how it ended (0 or an err_code). object: the name of a key or a
 * model; NULL: none, or it was not found, as it may be a secret that was given by mistake. A log
 * that cannot be written is a line on stderr: the act is done. */
void audit_note(registry *r, const char *act, const char *object, int rc);
/* The same in the registry at path. */
void audit_note_at(const char *path, const char *act, const char *object, int rc);

#endif
