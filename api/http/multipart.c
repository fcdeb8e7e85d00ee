/* multipart.c - see multipart.h. A delimiter has CR only as its first byte, so bytes that turn out
 * not to be one are data as a whole. Owns nothing. */
#include "api/http/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- heads ---- */

static bool is_boundary_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("'()+_,-./:=? ", c));
}

/* The value of a parameter (name=token or name="quoted") of a header's value; cut to n bytes. out
 * is
 * "" if there is none, or a quote before it or its own does not end. */
static bool find_parameter(const char *value, const char *name, char *out, size_t n) {
    const char *at = value + strcspn(value, ";");
    while (*at == ';') {
        at += 1 + strspn(at + 1, " \t");
        size_t n_name = strcspn(at, "=;\"");
        bool found = n_name == strlen(name) && strncasecmp(at, name, n_name) == 0;
        size_t len = 0;
        at += n_name;
        if (*at != '=') {
            at += strcspn(at, ";");
            continue;
        }
        bool quoted = *++at == '"';
        at += quoted;
        while (*at && (quoted ? *at != '"' : !strchr("; \t", *at))) {
            if (quoted && *at == '\\' && (at[1] == '"' || at[1] == '\\')) at++;
            if (found && len + 1 < n) out[len++] = *at;
            at++;
        }
        if (quoted && *at != '"') {
            *out = '\0';
            return false;
        }
        if (found) {
            out[len] = '\0';
            return true;
        }
        at += strcspn(at, ";");
    }
    return false;
}

int multipart_init(struct multipart *m, const char *content_type, const struct multipart_ops *ops,
                   void *arg, err *e) {
    static const char kind[] = "multipart/form-data";
    char boundary[MULTIPART_BOUNDARY_BYTES + 2] = "";
    *m = (struct multipart){.ops = ops, .arg = arg};
    if (!content_type || strncasecmp(content_type, kind, sizeof kind - 1) != 0)
        return err_set(e, ERR_INVALID, "Content-Type must be multipart/form-data.");
    bool ok = find_parameter(content_type, "boundary", boundary, sizeof boundary);
    size_t n = strlen(boundary);
    ok = ok && n && n <= MULTIPART_BOUNDARY_BYTES && boundary[n - 1] != ' ';
    for (size_t i = 0; i < n; i++)
        ok = ok && is_boundary_char(boundary[i]);
    if (!ok) return err_set(e, ERR_INVALID, "Content-Type lacks a valid boundary.");
    m->n_delimiter = (size_t)snprintf(m->delimiter, sizeof m->delimiter, "\r\n--%.70s", boundary);
    m->n_matched = 2; /* the first delimiter may be at the start */
    return 0;
}

static bool is_token_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* type/subtype of a Content-Type's value, in lower case. */
static void read_type(const char *value, char *out, size_t n) {
    size_t len = 0, slash = 0;
    value += strspn(value, " \t");
    for (; is_token_char(value[len]) || (value[len] == '/' && len && !slash); len++)
        if (value[len] == '/') slash = len;
    const char *rest = value + len + strspn(value + len, " \t");
    *out = '\0';
    if (!slash || slash + 1 == len || len >= n || (*rest && *rest != ';')) return;
    for (size_t i = 0; i < len; i++)
        out[i] = value[i] >= 'A' && value[i] <= 'Z' ? (char)(value[i] + 'a' - 'A') : value[i];
    out[len] = '\0';
}

static int read_field(const char *line, struct multipart_part *part, bool *named, err *e) {
    static const char disposition[] = "Content-Disposition:", type[] = "Content-Type:",
                      coding[] = "Content-Transfer-Encoding:";
    if (strncasecmp(line, type, sizeof type - 1) == 0) {
        read_type(line + sizeof type - 1, part->type, sizeof part->type);
        return 0;
    }
    if (strncasecmp(line, coding, sizeof coding - 1) == 0) {
        const char *v = line + sizeof coding - 1;
        v += strspn(v, " \t");
        if (strncasecmp(v, "binary", 6) && strncasecmp(v, "8bit", 4) && strncasecmp(v, "7bit", 4))
            return err_set(e, ERR_FORMAT, "Content-Transfer-Encoding is not supported.");
        return 0;
    }
    if (strncasecmp(line, disposition, sizeof disposition - 1) != 0) return 0;
    if (*named) return err_set(e, ERR_FORMAT, "A part has two headers Content-Disposition.");
    *named = true;
    find_parameter(line, "name", part->name, sizeof part->name);
    part->is_file = find_parameter(line, "filename", part->file, sizeof part->file);
    return 0;
}

/* m->head has the part's header lines with their CR LF. */
static int begin_part(struct multipart *m, err *e) {
    struct multipart_part part = {0};
    bool named = false;
    m->head[m->n_head] = '\0';
    if (memchr(m->head, 0, m->n_head)) return err_set(e, ERR_FORMAT, "A part's head has a NUL.");
    if (++m->n_parts > MULTIPART_MAX_PARTS)
        return err_set(e, ERR_FORMAT, "The body has more than %d parts.", MULTIPART_MAX_PARTS);
    for (char *line = m->head, *end; (end = strstr(line, "\r\n")); line = end + 2) {
        *end = '\0';
        int rc = read_field(line, &part, &named, e);
        if (rc) return rc;
    }
    if (!*part.name) return err_set(e, ERR_FORMAT, "A part of the body has no name.");
    m->state = MULTIPART_DATA;
    m->n_matched = 0;
    m->n_head = 0;
    return m->ops->begin(m->arg, &part, e);
}

/* ---- states ---- */

static int give(struct multipart *m, const char *bytes, size_t n, err *e) {
    return n && m->state == MULTIPART_DATA ? m->ops->data(m->arg, bytes, n, e) : 0;
}

/* Takes bytes up to the next delimiter. *used: how many. */
static int take_data(struct multipart *m, const char *bytes, size_t n, size_t *used, err *e) {
    size_t i = 0;
    int rc = 0;
    while (i < n && !rc) {
        if (m->n_matched == 0) {
            const char *cr = memchr(bytes + i, '\r', n - i);
            size_t plain = cr ? (size_t)(cr - bytes) - i : n - i;
            rc = give(m, bytes + i, plain, e);
            i += plain;
            if (i < n) m->n_matched = 1;
            i += i < n;
        } else if (bytes[i] == m->delimiter[m->n_matched]) {
            i++;
            if (++m->n_matched < m->n_delimiter) continue;
            m->state = MULTIPART_LINE;
            m->n_head = 0;
            break;
        } else {
            size_t was = m->n_matched;
            m->n_matched = 0; /* the byte is looked at again */
            rc = give(m, m->delimiter, was, e);
        }
    }
    *used = i;
    return rc;
}

/* Behind a delimiter: "--", or white space and CR LF. */
static int take_line(struct multipart *m, char c, err *e) {
    const char *h = m->head;
    m->head[m->n_head++] = c;
    if (m->n_head == 2 && h[0] == '-' && h[1] == '-') {
        m->state = MULTIPART_EPILOGUE;
    } else if (c == '\n' && m->n_head > 1 && h[m->n_head - 2] == '\r') {
        m->state = MULTIPART_HEAD;
        m->n_head = 0;
    } else if (m->n_head > 64 ||
               !(c == ' ' || c == '\t' || c == '\r' || (c == '-' && m->n_head == 1))) {
        return err_set(e, ERR_FORMAT, "The line of a boundary goes on.");
    }
    return 0;
}

static int take_head(struct multipart *m, char c, err *e) {
    if (m->n_head == MULTIPART_HEAD_BYTES)
        return err_set(e, ERR_FORMAT, "A part's head is larger than %d bytes.",
                       MULTIPART_HEAD_BYTES);
    m->head[m->n_head++] = c;
    size_t n = m->n_head;
    if (c != '\n' || n < 2 || m->head[n - 2] != '\r') return 0;
    if (n > 2 && (n < 4 || memcmp(m->head + n - 4, "\r\n", 2) != 0)) return 0;
    return begin_part(m, e);
}

int multipart_take(struct multipart *m, const char *bytes, size_t n, err *e) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        size_t used = 1;
        if (m->state == MULTIPART_EPILOGUE) return 0;
        if (m->state == MULTIPART_LINE)
            rc = take_line(m, bytes[i], e);
        else if (m->state == MULTIPART_HEAD)
            rc = take_head(m, bytes[i], e);
        else
            rc = take_data(m, bytes + i, n - i, &used, e);
        i += used;
    }
    return rc;
}

int multipart_end(const struct multipart *m, err *e) {
    if (m->state == MULTIPART_EPILOGUE) return 0;
    return err_set(e, ERR_FORMAT, "The body ends before its last boundary.");
}
