/* logsink.h - where log lines go: stderr, as "2026-01-31T12:00:00Z info  text"; with systemd's
 * journal behind stderr as "<6>text", which keeps the level and leaves the time to the journal. */
#ifndef INFERD_LOGSINK_H
#define INFERD_LOGSINK_H

/* level: debug, info, warn or error. Once, before other threads start. */
void logsink_open(const char *level);

#endif
