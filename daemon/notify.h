/* notify.h - tells systemd (Type=notify) how far the service is; nothing without NOTIFY_SOCKET. */
#ifndef INFERD_NOTIFY_H
#define INFERD_NOTIFY_H

/* state: "READY=1", "STOPPING=1". A failure is only logged. */
void notify_send(const char *state);

#endif
