/* logsink.h - writes log lines to stderr, as "2026-01-31T12:00:00Z info  text"; if stderr leads to
 * systemd's journal, as "<6>text", since the journal adds the time. */
#ifndef INFERD_LOGSINK_H
#define INFERD_LOGSINK_H

/* level: debug, info, warn or error. Once, before other threads start. */
void logsink_open(const char *level);
void logsink_set_level(const char *level); /* any thread */

#endif
