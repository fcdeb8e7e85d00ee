/* help.c - one writer per format; what they write comes from the tables alone. Main thread. */
#include "daemon/help.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, COLUMN = 26, OUT_MAX_BYTES = 1 << 18, SHORT_BYTES = 64, WORDS_BYTES = 64 };

/* One option as a user sees it. */
struct row {
    const char *name, *value; /* "" takes none */
    bool repeats;
    const char *help; /* '\n' is a blank */
};

typedef void row_writer(const struct options *o, const struct row *row, str *out);

/* NULL members write nothing. */
struct help_format {
    const char *name;
    bool recurses; /* a table is followed by what its commands write */
    void (*table_begin)(const struct command_table *t, str *out);
    void (*table_end)(const struct command_table *t, str *out);
    void (*options_begin)(const struct options *o, str *out);
    row_writer *row;
    void (*options_end)(const struct options *o, str *out);
};

/* ---- what tables say ---- */

static bool is_root(const struct command_table *t) {
    return !strchr(t->prefix, ' ');
}

/* "models" of a table below the root. */
static const char *table_words(const struct command_table *t) {
    const char *blank = strchr(t->prefix, ' ');
    return blank ? blank + 1 : "";
}

/* "models add" of "models add PATH". */
static const char *command_words(const struct options *o, char words[WORDS_BYTES]) {
    size_t n = 0;
    for (const char *p = o->usage; *p; n = (size_t)(p - o->usage)) {
        size_t word = strspn(p, "abcdefghijklmnopqrstuvwxyz");
        if (!word || (p[word] && p[word] != ' ')) break;
        p += word + (p[word] == ' ');
    }
    while (n && o->usage[n - 1] == ' ')
        n--;
    snprintf(words, WORDS_BYTES, "%.*s", (int)n, o->usage);
    return words;
}

/* What the positional arguments are: "PATH" of "models add PATH"; "" if there are none. */
static const char *argument_kind(const struct options *o, char kind[WORDS_BYTES]) {
    command_words(o, kind);
    const char *p = o->usage + strlen(kind);
    p += strspn(p, " [");
    snprintf(kind, WORDS_BYTES, "%.*s",
             (int)(o->max_args ? strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0), p);
    return kind;
}

static bool is_file(const char *value) {
    return words_hold("FILE|PATH|FOLDER|SRC|DST", value);
}

const char *help_key_value(const struct config_key *key) {
    size_t n = strlen(key->name);
    if (key->kind == CONFIG_CHOICE) return key->choices;
    if (key->kind == CONFIG_SWITCH) return "on|off";
    if (key->kind == CONFIG_NUMBER) return "N";
    if (key->kind == CONFIG_BYTES) return "SIZE";
    if (key->kind == CONFIG_PART) return "X";
    if (strcmp(key->name, "model") == 0) return "MODEL";
    if (strcmp(key->name, "models-dir") == 0) return "FOLDER";
    if (words_hold("registry|chat-template", key->name)) return "FILE";
    return n > 5 && strcmp(key->name + n - 5, "-file") == 0 ? "FILE" : "VALUE";
}

static void write_row(const struct options *o, const struct help_format *f, const struct row *row,
                      str *out) {
    if (f->row) f->row(o, row, out);
}

static void write_rows(const struct options *o, const struct help_format *f, str *out) {
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < o->n_options; i++) {
        const struct option *p = &o->options[i];
        write_row(o, f,
                  &(struct row){p->name, p->kind == OPTION_SWITCH ? "" : p->value,
                                p->kind == OPTION_LIST, p->help},
                  out);
    }
    if (o->config)
        write_row(
            o, f,
            &(struct row){"config", "FILE", false, "read daemon.conf; options take precedence"},
            out);
    for (size_t i = 0; i < n; i++) {
        if (!options_take_key(o, &keys[i])) continue;
        str help;
        str_init(&help, OUT_MAX_BYTES);
        str_addf(&help, "%s (", keys[i].help);
        config_add_bounds(&help, &keys[i]);
        str_add_char(&help, ')');
        write_row(o, f,
                  &(struct row){keys[i].name, help_key_value(&keys[i]), false, str_cstr(&help)},
                  out);
        str_fini(&help);
    }
    write_row(o, f, &(struct row){"help", "", false, "print this"}, out);
}

/* The first sentence, at most SHORT_BYTES of it, cut between words, without its full stop, inside
 * single quotes of a shell. quote: what the shell writes for a quote inside them. */
static void add_short(str *out, const char *help, const char *quote) {
    size_t n = strcspn(help, "(;");
    const char *stop = strstr(help, ". ");
    if (stop && (size_t)(stop - help) < n) n = (size_t)(stop - help);
    if (n > SHORT_BYTES)
        for (n = SHORT_BYTES; n && help[n] != ' ' && help[n] != '\n';)
            n--;
    while (n && strchr(" \n.,", help[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++) {
        if (help[i] == '\'')
            str_add(out, quote);
        else if (!strchr("[]\\", help[i])) /* zsh takes brackets for its own */
            str_add_char(out, help[i] == '\n' ? ' ' : help[i]);
    }
}

/* ---- text ---- */

void help_add_wrapped(str *out, const char *text, size_t column, size_t indent) {
    bool begins = true;
    while (*(text += strspn(text, " \n"))) {
        size_t n = strcspn(text, " \n");
        if (!begins && column + 1 + n > WIDTH) {
            str_addf(out, "\n%*s", (int)indent, "");
            column = indent;
            begins = true;
        }
        if (!begins) str_add_char(out, ' ');
        str_add_n(out, text, n);
        column += n + !begins;
        begins = false;
        text += n;
    }
    str_add_char(out, '\n');
}

/* A name and its text in two columns. */
static void add_columns(str *out, size_t start, size_t indent, const char *text) {
    size_t used = out->len - start;
    if (used + 2 > indent) {
        str_add_char(out, '\n');
        used = 0;
    }
    str_addf(out, "%*s", (int)(indent - used), "");
    help_add_wrapped(out, text, indent, indent);
}

static void text_table(const struct command_table *t, str *out) {
    enum { NAMES = 14 };
    str_addf(out, "usage: %s COMMAND [options]\n%s\n\n", t->prefix, t->summary);
    for (size_t i = 0; i < t->n; i++) {
        size_t start = out->len;
        str_addf(out, "  %s", t->commands[i].name);
        add_columns(out, start, NAMES, t->commands[i].summary);
    }
    str_addf(out, "\n`%s COMMAND --help` describes a command.\n", t->prefix);
}

static void text_begin(const struct options *o, str *out) {
    str_addf(out, "usage: inferd %s [options]\n", o->usage);
    help_add_wrapped(out, o->summary, 0, 0);
    str_add_char(out, '\n');
}

static void text_row(const struct options *o, const struct row *row, str *out) {
    size_t start = out->len;
    (void)o;
    str_addf(out, "  --%s%s%s", row->name, *row->value ? " " : "", row->value);
    add_columns(out, start, COLUMN, row->help);
}

/* ---- manual pages ---- */

/* Text for roff: backslashes and hyphens escaped, no line that begins with a control character. */
static void man_text(str *out, const char *text) {
    bool begins = true;
    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\'')) str_add(out, "\\&");
        begins = *text == '\n';
        if (*text == '\\')
            str_add(out, "\\e");
        else if (*text == '-')
            str_add(out, "\\-");
        else
            str_add_char(out, *text);
    }
}

static void man_head(str *out, const char *title, const char *section, const char *manual) {
    str_addf(out, ".TH %s %s \"\" \"inferd " INFERD_VERSION "\" \"%s\"\n", title, section, manual);
}

static void man_table_begin(const struct command_table *t, str *out) {
    if (!is_root(t)) return;
    man_head(out, "INFERD", "1", "User Commands");
    str_add(out, ".SH NAME\ninferd \\- serve language models to many clients\n"
                 ".SH SYNOPSIS\n.B inferd\n.I command\n[\n.I options\n]\n.SH DESCRIPTION\n"
                 "A daemon that serves language models over the HTTP APIs of OpenAI, Anthropic\n"
                 "and Ollama, and the commands that belong to it.\n.SH COMMANDS\n");
}

static void man_table_end(const struct command_table *t, str *out) {
    if (!is_root(t)) return;
    str_add(out,
            ".SH EXIT STATUS\n0: done; 1: failed; 2: wrong arguments.\n"
            ".SH ENVIRONMENT\n"
            ".TP\n.B INFERD_API_KEY\nThe API key that clients of the daemon send.\n"
            ".TP\n.BR HF_TOKEN \", \" HF_ENDPOINT\nToken and address for\n.BR \"inferd pull\" .\n"
            ".TP\n.B SSL_CERT_FILE\nCertificates to trust, for https.\n"
            ".TP\n.BR XDG_DATA_HOME \", \" XDG_STATE_HOME\n"
            "Folders of the registry and models, and of histories and running daemons.\n"
            ".SH FILES\n"
            ".TP\n.I ~/.local/share/inferd\nThe registry and downloaded models.\n"
            ".TP\n.I ~/.local/state/inferd\nHistory and saved chats; what runs.\n"
            ".SH SEE ALSO\n.BR inferd.conf (5)\n");
}

static void man_begin(const struct options *o, str *out) {
    str_add(out, ".SS \"inferd ");
    man_text(out, o->usage);
    str_add(out, "\"\n");
    man_text(out, o->summary);
    str_add_char(out, '\n');
    if (o->config && !o->keys)
        str_add(out, ".PP\nEach key of\n.BR inferd.conf (5)\nis also an option:\n"
                     ".BI \\-\\-port \" 8081\"\nis the key port.\n");
}

static void man_tagged(const char *name, const char *value, const char *help, str *out) {
    str_add(out, ".TP\n.BI ");
    man_text(out, name);
    if (*value) {
        str_add(out, " \" ");
        man_text(out, value);
        str_add_char(out, '"');
    }
    str_add_char(out, '\n');
    man_text(out, help);
    str_add_char(out, '\n');
}

static void man_row(const struct options *o, const struct row *row, str *out) {
    char name[WORDS_BYTES];
    if (strcmp(row->name, "help") == 0) return;
    if (o->config && !o->keys && config_find(row->name)) return; /* inferd.conf(5) */
    snprintf(name, sizeof name, "--%s", row->name);
    man_tagged(name, row->value, row->help, out);
}

void help_add_config_page(str *out) {
    size_t n;
    const struct config_key *keys = config_keys(&n);
    man_head(out, "INFERD.CONF", "5", "File Formats");
    str_add(out, ".SH NAME\ninferd.conf \\- configuration of the inferd daemon\n"
                 ".SH DESCRIPTION\nThe file that\n.B inferd serve \\-\\-config\nreads. "
                 "A line is\n.IR \"key \" = \" value\" ;\n");
    man_text(out, "'#' begins a comment at the beginning of a line or after white space, sizes\n"
                  "accept K, M and G (1024), '_' and '-' in keys are equivalent.\n");
    str_add(out, "Each key is also an option of\n.BR \"inferd serve\" ,\nwhich takes precedence.\n"
                 ".B inferd config example\nprints a file with every key at its default;\n"
                 ".B inferd config check\n.I file\nchecks one.\n.SH KEYS\n");
    for (size_t i = 0; i < n; i++) {
        str help;
        str_init(&help, OUT_MAX_BYTES);
        str_addf(&help, "%s\n(", keys[i].help);
        config_add_bounds(&help, &keys[i]);
        str_add_char(&help, ')');
        man_tagged(keys[i].name, help_key_value(&keys[i]), str_cstr(&help), out);
        str_fini(&help);
    }
    str_add(out, ".SH SEE ALSO\n.BR inferd (1)\n");
}

/* ---- bash ---- */

/* A case per command sets `commands` (words that may follow) or `options` ("--name=KIND") and
 * `argument` (what the positional arguments are). */
static void bash_table_begin(const struct command_table *t, str *out) {
    if (is_root(t))
        str_add(out, "# Completion of inferd for bash: the output of `inferd --help=bash`.\n"
                     "_inferd_describe() {\n    commands= options= argument=\n    case $1 in\n");
    str_addf(out, "    '%s') commands='", table_words(t));
    for (size_t i = 0; i < t->n; i++)
        str_addf(out, "%s ", t->commands[i].name);
    str_add(out, "--help' ;;\n");
}

static void bash_table_end(const struct command_table *t, str *out) {
    if (!is_root(t)) return;
    str_add(
        out,
        "    esac\n}\n\n"
        "_inferd_values() {\n"
        "    case $1 in\n"
        "    FILE | PATH | FOLDER | SRC | DST) compopt -o filenames 2>/dev/null\n"
        "        mapfile -t COMPREPLY < <(compgen -f -- \"$2\") ;;\n"
        "    MODEL) mapfile -t COMPREPLY < <(compgen -W \"$(inferd models list 2>/dev/null |\n"
        "        awk 'NR > 1 { print $1 }')\" -- \"$2\") ;;\n"
        "    *'|'*) mapfile -t COMPREPLY < <(compgen -W \"${1//|/ }\" -- \"$2\") ;;\n"
        "    esac\n}\n\n"
        "_inferd() {\n"
        "    local commands options argument option at=1 command= word=${COMP_WORDS[COMP_CWORD]}\n"
        "    local before=${COMP_WORDS[COMP_CWORD - 1]}\n"
        "    COMPREPLY=()\n"
        "    # --name=VALUE is three words to bash\n"
        "    if [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    elif [[ $word == = ]]; then word='' ; fi\n"
        "    _inferd_describe ''\n"
        "    while [[ -n $commands ]] && ((at < COMP_CWORD)); do\n"
        "        command=\"${command:+$command }${COMP_WORDS[at]}\"\n"
        "        at=$((at + 1))\n"
        "        _inferd_describe \"$command\"\n"
        "    done\n"
        "    if [[ -n $commands ]]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\")\n"
        "        return\n"
        "    fi\n"
        "    for option in $options; do\n"
        "        if [[ $option == \"$before=\"* ]]; then\n"
        "            _inferd_values \"${option#*=}\" \"$word\"\n"
        "            return\n"
        "        fi\n"
        "    done\n"
        "    if [[ $word == -* ]]; then\n"
        "        mapfile -t COMPREPLY < <(for option in $options; do compgen -W \"${option%%=*}\" "
        "-- \"$word\"; done)\n"
        "    else\n"
        "        _inferd_values \"$argument\" \"$word\"\n"
        "    fi\n}\n"
        "complete -F _inferd inferd\n");
}

static void bash_begin(const struct options *o, str *out) {
    char words[WORDS_BYTES], kind[WORDS_BYTES];
    str_addf(out, "    '%s') argument=%s options='", command_words(o, words),
             argument_kind(o, kind));
}

static void bash_row(const struct options *o, const struct row *row, str *out) {
    (void)o;
    str_addf(out, "--%s%s%s ", row->name, *row->value ? "=" : "", row->value);
}

static void bash_end(const struct options *o, str *out) {
    (void)o;
    str_add(out, "' ;;\n");
}

/* ---- zsh ---- */

static void zsh_action(const char *value, str *out) {
    if (is_file(value)) {
        str_add(out, "_files");
    } else if (strcmp(value, "MODEL") == 0) {
        str_add(out, "_inferd__names");
    } else if (strchr(value, '|')) {
        str_add_char(out, '(');
        for (; *value; value++)
            str_add_char(out, *value == '|' ? ' ' : *value);
        str_add_char(out, ')');
    } else {
        str_add_char(out, ' ');
    }
}

/* Each command is a function _inferd_WORDS; one of a table chooses by the next word. */
static void zsh_name(const char *words, str *out) {
    str_add(out, "_inferd_");
    for (; *words; words++)
        str_add_char(out, *words == ' ' ? '_' : *words);
}

static void zsh_table_begin(const struct command_table *t, str *out) {
    if (is_root(t))
        str_add(out, "#compdef inferd\n"
                     "# Completion of inferd for zsh: the output of `inferd --help=zsh`.\n"
                     "_inferd__names() {\n"
                     "    local -a names\n"
                     "    names=(${(f)\"$(inferd models list 2>/dev/null | awk 'NR > 1 { print $1 "
                     "}')\"})\n"
                     "    compadd -a names\n}\n");
    zsh_name(table_words(t), out);
    str_add(out, "() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < t->n; i++) {
        str_addf(out, "        '%s:", t->commands[i].name);
        add_short(out, t->commands[i].summary, "'\\''");
        str_add(out, "'\n");
    }
    str_add(out, "    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n"
                 "        return\n    fi\n    shift words\n    ((CURRENT--))\n    ");
    str t_name;
    str_init(&t_name, WORDS_BYTES);
    zsh_name(table_words(t), &t_name);
    const char *name = str_cstr(&t_name);
    str_addf(out, "(($+functions[%s%s$words[1]])) && %s%s$words[1]\n}\n", name,
             is_root(t) ? "" : "_", name, is_root(t) ? "" : "_");
    str_fini(&t_name);
}

static void zsh_table_end(const struct command_table *t, str *out) {
    if (is_root(t))
        str_add(out, "if [[ $funcstack[1] == _inferd ]]; then _inferd_ \"$@\"\n"
                     "else compdef _inferd_ inferd; fi\n");
}

static void zsh_begin(const struct options *o, str *out) {
    char words[WORDS_BYTES];
    zsh_name(command_words(o, words), out);
    str_add(out, "() {\n    _arguments");
}

static void zsh_row(const struct options *o, const struct row *row, str *out) {
    (void)o;
    str_addf(out, " \\\n        '%s--%s%s[", row->repeats ? "*" : "", row->name,
             *row->value ? "=" : "");
    add_short(out, row->help, "'\\''");
    str_add_char(out, ']');
    if (*row->value) {
        str_add(out, ":value:");
        zsh_action(row->value, out);
    }
    str_add_char(out, '\'');
}

static void zsh_end(const struct options *o, str *out) {
    char kind[WORDS_BYTES];
    if (o->max_args) {
        str_add(out, " \\\n        '*:argument:");
        zsh_action(argument_kind(o, kind), out);
        str_add_char(out, '\'');
    }
    str_add(out, "\n}\n");
}

/* ---- fish ---- */

static void fish_table_begin(const struct command_table *t, str *out) {
    if (is_root(t))
        str_add(out, "# Completion of inferd for fish: the output of `inferd --help=fish`.\n"
                     "function __inferd_models\n"
                     "    inferd models list 2>/dev/null | awk 'NR > 1 { print $1 }'\nend\n"
                     "# Is this the command whose words are given?\n"
                     "function __inferd_in\n"
                     "    set -l words (commandline -opc)[2..-1]\n"
                     "    set -l n (count $argv)\n"
                     "    test (count $words) -ge $n\n"
                     "    and test \"$words[1..$n]\" = \"$argv\"\nend\n"
                     "function __inferd_at\n"
                     "    set -l words (commandline -opc)[2..-1]\n"
                     "    test \"$words\" = \"$argv\"\nend\n"
                     "complete -c inferd -f\n");
    for (size_t i = 0; i < t->n; i++) {
        str_addf(out, "complete -c inferd -n '__inferd_at %s' -a %s -d '", table_words(t),
                 t->commands[i].name);
        add_short(out, t->commands[i].summary, "\\'");
        str_add(out, "'\n");
    }
}

static void fish_values(const char *value, str *out) {
    if (is_file(value)) {
        str_add(out, " -F");
    } else if (strcmp(value, "MODEL") == 0) {
        str_add(out, " -f -a '(__inferd_models)'");
    } else if (strchr(value, '|')) {
        str_add(out, " -f -a '");
        for (; *value; value++)
            str_add_char(out, *value == '|' ? ' ' : *value);
        str_add_char(out, '\'');
    } else {
        str_add(out, " -f");
    }
}

static void fish_begin(const struct options *o, str *out) {
    char words[WORDS_BYTES], kind[WORDS_BYTES];
    if (!*argument_kind(o, kind)) return;
    str_addf(out, "complete -c inferd -n '__inferd_in %s'", command_words(o, words));
    fish_values(kind, out);
    str_add_char(out, '\n');
}

static void fish_row(const struct options *o, const struct row *row, str *out) {
    char words[WORDS_BYTES];
    str_addf(out, "complete -c inferd -n '__inferd_in %s' -l %s -d '", command_words(o, words),
             row->name);
    add_short(out, row->help, "\\'");
    str_add_char(out, '\'');
    if (*row->value) {
        str_add(out, " -r");
        fish_values(row->value, out);
    }
    str_add_char(out, '\n');
}

/* ---- all formats ---- */

static const struct help_format formats[] = {
    {"text", false, text_table, NULL, text_begin, text_row, NULL},
    {"man", true, man_table_begin, man_table_end, man_begin, man_row, NULL},
    {"bash", true, bash_table_begin, bash_table_end, bash_begin, bash_row, bash_end},
    {"zsh", true, zsh_table_begin, zsh_table_end, zsh_begin, zsh_row, zsh_end},
    {"fish", true, fish_table_begin, NULL, fish_begin, fish_row, NULL},
};

const struct help_format *help_asked(const char *arg, bool *bad, err *e) {
    *bad = false;
    if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) return formats;
    if (strncmp(arg, "--help=", 7) != 0) return NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, arg + 7) == 0) return &formats[i];
    err_set(e, ERR_INVALID, "--help: \"%.40s\" is not text, man, bash, zsh or fish", arg + 7);
    *bad = true;
    return NULL;
}

static void print_help(str *out) {
    fputs(str_cstr(out), stdout);
    str_fini(out);
}

void help_print_options(const struct options *o, const struct help_format *f) {
    str out;
    str_init(&out, OUT_MAX_BYTES);
    f->options_begin(o, &out);
    write_rows(o, f, &out);
    if (f->options_end) f->options_end(o, &out);
    print_help(&out);
}

void help_print_table(const struct command_table *t, const struct help_format *f) {
    char argument[24];
    str out;
    str_init(&out, OUT_MAX_BYTES);
    f->table_begin(t, &out);
    print_help(&out);
    snprintf(argument, sizeof argument, "--help=%s", f->name);
    for (size_t i = 0; f->recurses && i < t->n; i++) {
        char name[WORDS_BYTES];
        snprintf(name, sizeof name, "%s", t->commands[i].name);
        t->commands[i].run(2, (char *[]){name, argument, NULL}, NULL);
    }
    if (!f->table_end) return;
    str_init(&out, OUT_MAX_BYTES);
    f->table_end(t, &out);
    print_help(&out);
}
