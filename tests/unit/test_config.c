/* test_config.c - the table of keys, configuration files, argument tables, suggestions. */
#include "core/base/mem.h"
#include "daemon/config.h"
#include "daemon/input.h"
#include "daemon/key_names.h"
#include "daemon/options.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *write_file(const char *name, const char *text, size_t n, unsigned mode) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(text, 1, n, f) == n);
    if (f) fclose(f);
    CHECK(chmod(path, mode) == 0);
    return path;
}

/* Loads text as a file over the defaults; the problems with the path cut off. */
static int load(struct config *c, const char *text, size_t n, char *said, size_t said_bytes) {
    err e;
    str problems;
    CHECK(config_init(c, &e) == 0);
    const char *path = write_file("t.conf", text, n, 0600);
    str_init(&problems, 100000);
    int rc = config_load(c, path, &problems, &e);
    said[0] = '\0';
    size_t used = 0;
    for (const char *p = str_cstr(&problems); *p && used + 1 < said_bytes;) {
        size_t skip = strncmp(p, path, strlen(path)) == 0 ? strlen(path) : 0;
        size_t line = strcspn(p, "\n") + 1;
        used +=
            (size_t)snprintf(said + used, said_bytes - used, "%.*s", (int)(line - skip), p + skip);
        p += line;
    }
    str_fini(&problems);
    return rc;
}

static void test_table(void) {
    size_t n;
    const struct config_key *keys = config_keys(&n);
    struct config c;
    err e;
    CHECK(n >= 25);
    CHECK(config_init(&c, &e) == 0);
    for (size_t i = 0; i < n; i++) {
        CHECK(config_find(keys[i].name) == &keys[i]);
        CHECK_MSG(config_set(&c, keys[i].name, keys[i].initial, &e) == 0, "%s", keys[i].name);
        CHECK(keys[i].help[0] && keys[i].help[strlen(keys[i].help) - 1] == '.');
        for (size_t j = 0; j < i; j++)
            CHECK(keys[i].offset != keys[j].offset);
        if (keys[i].kind != CONFIG_NUMBER && keys[i].kind != CONFIG_BYTES) continue;
        char text[32];
        uint64_t *field = (uint64_t *)((char *)&c + keys[i].offset), kept = *field;
        snprintf(text, sizeof text, "%llu", (unsigned long long)keys[i].max + 1);
        CHECK(config_set(&c, keys[i].name, text, &e) == ERR_INVALID && *field == kept);
        CHECK_STR(e.param, keys[i].name);
        snprintf(text, sizeof text, "%llu", (unsigned long long)keys[i].max);
        CHECK(config_set(&c, keys[i].name, text, &e) == 0 && *field == keys[i].max);
    }
    CHECK(config_find("") == NULL && config_find("por") == NULL && config_find("portt") == NULL);
    config_fini(&c);
}

static void test_parts(void) {
    static const struct {
        const char *text;
        double value; /* -1: refused */
    } cases[] = {{"0", 0},    {"0.1", 0.1}, {"0.85", 0.85}, {"1", 1},    {"1.000", 1}, {"0.05", -1},
                 {"1.1", -1}, {"-0.5", -1}, {"x", -1},      {"", -1},    {".5", -1},   {"0.5x", -1},
                 {"nan", -1}, {"0..5", -1}, {"0.5 ", -1},   {"5e-1", -1}};
    struct config c;
    err e;
    CHECK(config_init(&c, &e) == 0 && c.gpu_memory_utilization == 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        c.gpu_memory_utilization = 0.25;
        int rc = config_set(&c, "gpu-memory-utilization", cases[i].text, &e);
        double want = cases[i].value < 0 ? 0.25 : cases[i].value, got = c.gpu_memory_utilization;
        CHECK_MSG(rc == (cases[i].value < 0 ? ERR_INVALID : 0), "\"%s\": %d", cases[i].text, rc);
        CHECK_MSG(got - want < 1e-12 && want - got < 1e-12, "\"%s\": %g", cases[i].text, got);
        if (rc) CHECK_STR(e.param, "gpu-memory-utilization");
    }
    config_fini(&c);
}

static void test_defaults(void) {
    struct config c;
    err e;
    CHECK(config_init(&c, &e) == 0);
    CHECK_STR(c.host, "127.0.0.1");
    CHECK_STR(c.backend, "auto");
    CHECK_STR(c.kv_cache_type, "f16");
    CHECK_STR(c.activation_bits, "8");
    CHECK(c.port == 8080 && c.max_batch_tokens == 512 && c.prefill_chunk == 0);
    CHECK(c.max_sequences == 64 && c.max_queue == 256 && c.stream_events == 512);
    CHECK(c.state_blocks == 0 && c.state_checkpoint_tokens == 2048);
    CHECK(c.prefix_cache && c.shutdown_deadline_s == 30 && c.max_body_bytes == 8u << 20);
    config_fini(&c);
}

static void test_file(void) {
    static const char text[] = "# a comment\n\n  port = 9000  # why\nkv_cache-tokens=4096\r\n"
                               "host\t=\t::1\nmodel = a#b, c\nprefix_cache = off\n"
                               "max-body-bytes = 3M\nmax-header-bytes=64K\napi-key-file =\n"
                               "block-tokens = 32";
    struct config c;
    char said[400];
    CHECK(load(&c, text, sizeof text - 1, said, sizeof said) == 0);
    CHECK_STR(said, "");
    CHECK(c.port == 9000 && c.kv_cache_tokens == 4096 && !c.prefix_cache);
    CHECK_STR(c.host, "::1");
    CHECK_STR(c.model, "a#b, c");
    CHECK_STR(c.block_tokens, "32");
    CHECK_STR(c.api_key_file, "");
    CHECK(c.max_body_bytes == 3u << 20 && c.max_header_bytes == 64u << 10);
    config_fini(&c);
    static const char marked[] = "\xef\xbb\xbfport = 1\r\n";
    CHECK(load(&c, marked, sizeof marked - 1, said, sizeof said) == 0 && c.port == 1);
    config_fini(&c);
    CHECK(load(&c, "", 0, said, sizeof said) == 0);
    config_fini(&c);
}

static void test_file_problems(void) {
    static const struct {
        const char *text, *problem;
    } cases[] = {
        {"prot = 1\n", ":1: unknown key \"prot\" (did you mean \"port\"?)\n"},
        {"\n\nmax_sequence = 1\n",
         ":3: unknown key \"max_sequence\" (did you mean \"max-sequences\"?)\n"},
        {"wibble-wobble-wubble = 1", ":1: unknown key \"wibble-wobble-wubble\"\n"},
        {"port 1\n", ":1: expected KEY = VALUE, found \"port 1\"\n"},
        {"= 1\n", ":1: expected KEY = VALUE, found no key before =\n"},
        {"port = 65536\n", ":1: port: 65536 is out of bounds (0 to 65535)\n"},
        {"port = -1\n", ":1: port: \"-1\" is not a number\n"},
        {"port = 1K\n", ":1: port: \"1K\" is not a number\n"},
        {"port =\n", ":1: port: \"\" is not a number\n"},
        {"port = 0x10\n", ":1: port: \"0x10\" is not a number\n"},
        {"threads = 99999999999999999999\n",
         ":1: threads: \"99999999999999999999\" is not a number\n"},
        {"max-body-bytes = 1T\n",
         ":1: max-body-bytes: \"1T\" is not a size (a number, or one with K, M or G)\n"},
        {"max-body-bytes = 18014398509481984K\n",
         ":1: max-body-bytes: \"18014398509481984K\" is not a size (a number, or one with K, M or "
         "G)\n"},
        {"prefix-cache = yes\n", ":1: prefix-cache: \"yes\" is not on or off\n"},
        {"kv-cache-type = f1\n", ":1: kv-cache-type: \"f1\" is not one of f16|bf16|q8_0|f32\n"},
        {"activation-bits = 12\n", ":1: activation-bits: \"12\" is not one of 8|16\n"},
        {"kv-cache-type =\n", ":1: kv-cache-type: \"\" is not one of f16|bf16|q8_0|f32\n"},
        {"host = \xff\n", ":1: the line is not valid UTF-8 text\n"},
        {"port = 1\nhost = x\nPORT = 2\nport = 2\n",
         ":3: unknown key \"PORT\"\n:4: port is set twice, first in line 1\n"},
        {"max-queue=0\nlog-level=loud\nmax-queue=1\n",
         ":1: max-queue: 0 is out of bounds (1 to 65536)\n"
         ":2: log-level: \"loud\" is not one of debug|info|warn|error\n"
         ":3: max-queue is set twice, first in line 1\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c;
        char said[600];
        CHECK(load(&c, cases[i].text, strlen(cases[i].text), said, sizeof said) == ERR_INVALID);
        CHECK_STR(said, cases[i].problem);
        config_fini(&c);
    }
    struct config c;
    char said[200];
    CHECK(load(&c, "port = 1\0\n", 10, said, sizeof said) == ERR_INVALID);
    CHECK_STR(said, ":1: the line is not valid UTF-8 text\n");
    config_fini(&c);
}

static void test_file_unreadable(void) {
    struct config c;
    err e;
    str problems;
    str_init(&problems, 1000);
    CHECK(config_init(&c, &e) == 0);
    CHECK(config_load(&c, "/nonexistent/x.conf", &problems, &e) == ERR_IO);
    CHECK(strstr(e.msg, "/nonexistent/x.conf: "));
    CHECK(config_load(&c, folder, &problems, &e) == ERR_IO && problems.len == 0);
    char *big = mem_new((1 << 20) + 2, 1);
    memset(big, '\n', (1 << 20) + 1);
    CHECK(config_load(&c, write_file("big", big, (1 << 20) + 1, 0600), &problems, &e) ==
          ERR_TOO_LONG);
    CHECK(config_load(&c, write_file("big", big, 1 << 20, 0600), &problems, &e) == 0);
    free(big);
    config_fini(&c);
    str_fini(&problems);
}

/* The committed example equals the table's, and it loads without its comment signs. */
static void test_example(void) {
    struct config c, plain;
    err e;
    char *committed, said[1000];
    size_t n;
    str example, bare;
    str_init(&example, 1 << 18);
    config_add_example(&example);
    CHECK(textfile_read("daemon.conf.example", 1 << 18, &committed, &n, &e) == 0);
    if (committed)
        CHECK_MSG(strcmp(committed, str_cstr(&example)) == 0,
                  "run `inferd config example > daemon.conf.example`");
    free(committed);
    str_init(&bare, 1 << 18);
    for (const char *p = str_cstr(&example); *p; p++)
        if (!(*p == '#' && (p[1] >= 'a' && p[1] <= 'z'))) str_add_char(&bare, *p);
    CHECK(load(&c, str_cstr(&bare), bare.len, said, sizeof said) == 0);
    CHECK_STR(said, "");
    CHECK(config_init(&plain, &e) == 0);
    size_t n_keys;
    const struct config_key *keys = config_keys(&n_keys);
    for (size_t i = 0; i < n_keys; i++) {
        const char *a = (char *)&c + keys[i].offset, *b = (char *)&plain + keys[i].offset;
        if (keys[i].kind == CONFIG_TEXT || keys[i].kind == CONFIG_CHOICE)
            CHECK_STR(*(char *const *)a, *(char *const *)b);
        else if (keys[i].kind == CONFIG_SWITCH)
            CHECK(*(const bool *)a == *(const bool *)b);
        else if (keys[i].kind == CONFIG_PART)
            CHECK(*(const double *)a == *(const double *)b);
        else
            CHECK(*(const uint64_t *)a == *(const uint64_t *)b);
    }
    config_fini(&plain);
    config_fini(&c);
    str_fini(&bare);
    str_fini(&example);
}

static void test_flags(void) {
    struct config c;
    err e;
    const char *arg = NULL, *file = NULL;
    uint64_t top = 5;
    bool json = false;
    struct option_list alias = {.n = 0};
    const struct option own[] = {
        {.name = "file", .kind = OPTION_TEXT, .target = &file},
        {.name = "top", .kind = OPTION_NUMBER, .target = &top, .min = 1, .max = 20},
        {.name = "json", .kind = OPTION_SWITCH, .target = &json},
        {.name = "alias", .kind = OPTION_LIST, .target = &alias}};
    static const char *const some[] = {"threads", "port", NULL};
    struct options o = {.usage = "x ARG",
                        .options = own,
                        .n_options = 4,
                        .config = &c,
                        .keys = some,
                        .args = &arg,
                        .max_args = 1,
                        .min_args = 1};
    char config_path[128];
    snprintf(config_path, sizeof config_path, "%s",
             write_file("f.conf", "port = 7\nhost = h\n", 18, 0600));
    size_t n;
    CHECK(config_init(&c, &e) == 0);
    char *ok[] = {"x",         "--port=9", "A",       "--alias", "b",        "--json",
                  "--top",     "20",       "--alias", "c",       "--config", config_path,
                  "--threads", "3",        "--file",  "-"};
    CHECK(options_parse(&o, (int)(sizeof ok / sizeof *ok), ok, &n, &e) == 0 && n == 1);
    CHECK_STR(arg, "A");
    CHECK_STR(file, "-");
    CHECK_STR(c.host, "h");
    CHECK(c.port == 9 && c.threads == 3 && top == 20 && json && alias.n == 2);
    CHECK_STR(alias.items[1], "c");
    static const struct {
        const char *argv[3], *said;
    } bad[] = {
        {{"A", "--thread", "2"}, "unknown option --thread: did you mean --threads?"},
        {{"A", "--host", "2"}, "unknown option --host"},
        {{"A", "--jsno", NULL}, "unknown option --jsno: did you mean --json?"},
        {{"A", "--confg=x", NULL}, "unknown option --confg: did you mean --config?"},
        {{"A", "--top", "21"}, "--top: 21 is out of bounds (1 to 20)"},
        {{"A", "--top", "x"}, "--top: \"x\" is not a number"},
        {{"A", "--top", NULL}, "--top requires a value"},
        {{"A", "--json=1", NULL}, "--json takes no value"},
        {{"A", "B", NULL}, "unexpected argument \"B\""},
        {{"A", "-x", NULL}, "unknown option -x"},
        {{"--json", NULL, NULL}, "usage: inferd x ARG"},
        {{"A", "--port", "x"}, "port: \"x\" is not a number"},
        {{"A", "--config", "/nonexistent"}, "/nonexistent: No such file or directory"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *argv[] = {"x", (char *)bad[i].argv[0], (char *)bad[i].argv[1],
                        (char *)bad[i].argv[2]};
        int argc = 2 + (bad[i].argv[1] != NULL) + (bad[i].argv[2] != NULL);
        CHECK(options_parse(&o, argc, argv, &n, &e) < 0);
        if (i == 1)
            CHECK(strncmp(e.msg, bad[i].said, strlen(bad[i].said)) == 0);
        else
            CHECK_STR(e.msg, bad[i].said);
    }
    char *after[] = {"x", "--", "--top"};
    CHECK(options_parse(&o, 3, after, &n, &e) == 0);
    CHECK_STR(arg, "--top");
    config_fini(&c);
}

static void test_registry_path(void) {
    struct config c;
    err e;
    char *path = NULL;
    CHECK(config_init(&c, &e) == 0);
    unsetenv("STATE_DIRECTORY");
    setenv("XDG_DATA_HOME", "relative", 1);
    setenv("HOME", "/h", 1);
    CHECK(config_registry_path(&c, &path, &e) == 0);
    CHECK_STR(path, "/h/.local/share/inferd/registry.db");
    free(path);
    setenv("XDG_DATA_HOME", "/data", 1);
    CHECK(config_registry_path(&c, &path, &e) == 0);
    CHECK_STR(path, "/data/inferd/registry.db");
    free(path);
    setenv("STATE_DIRECTORY", "/var/lib/inferd:/var/lib/other", 1);
    CHECK(config_registry_path(&c, &path, &e) == 0);
    CHECK_STR(path, "/var/lib/inferd/registry.db");
    free(path);
    CHECK(config_set(&c, "registry", "here.db", &e) == 0);
    CHECK(config_registry_path(&c, &path, &e) == 0);
    CHECK_STR(path, "here.db");
    free(path);
    CHECK(config_models_path(&c, &path, &e) == 0);
    CHECK_STR(path, "/var/lib/inferd/models");
    free(path);
    unsetenv("STATE_DIRECTORY");
    CHECK(config_models_path(&c, &path, &e) == 0);
    CHECK_STR(path, "/data/inferd/models");
    free(path);
    CHECK(config_set(&c, "models-dir", "m", &e) == 0);
    CHECK(config_models_path(&c, &path, &e) == 0);
    CHECK_STR(path, "m");
    free(path);
    config_fini(&c);
}

/* The Hub's address and token: the key takes precedence over the environment. */
static void test_hub_keys(void) {
    struct config c;
    err e;
    char *token = NULL;
    CHECK(config_init(&c, &e) == 0);
    unsetenv("HF_ENDPOINT");
    unsetenv("HF_TOKEN");
    CHECK_STR(config_hf_endpoint(&c), "https://huggingface.co");
    CHECK(config_read_hf_token(&c, &token, &e) == 0);
    CHECK_STR(token, "");
    free(token);
    setenv("HF_ENDPOINT", "https://mirror", 1);
    setenv("HF_TOKEN", "hf_env", 1);
    CHECK_STR(config_hf_endpoint(&c), "https://mirror");
    CHECK(config_read_hf_token(&c, &token, &e) == 0);
    CHECK_STR(token, "hf_env");
    free(token);
    setenv("HF_TOKEN", "hf env", 1);
    CHECK(config_read_hf_token(&c, &token, &e) == ERR_INVALID && !strstr(e.msg, "hf env"));
    setenv("HF_TOKEN", "hf\r\nX-Other: 1", 1); /* only the first line, never a second header */
    CHECK(config_read_hf_token(&c, &token, &e) == 0);
    CHECK_STR(token, "hf");
    free(token);
    CHECK(config_set(&c, "hf-endpoint", "http://x", &e) == 0);
    CHECK_STR(config_hf_endpoint(&c), "http://x");
    CHECK(config_set(&c, "hf-token-file", write_file("hf", "hf_file\n", 8, 0640), &e) == 0);
    CHECK(config_read_hf_token(&c, &token, &e) == 0);
    CHECK_STR(token, "hf_file");
    free(token);
    write_file("hf", "hf_file\n", 8, 0644);
    CHECK(config_read_hf_token(&c, &token, &e) == ERR_INVALID && token == NULL);
    CHECK(strstr(e.msg, "can be read or written by every user"));
    write_file("hf", "\n", 1, 0600);
    CHECK(config_read_hf_token(&c, &token, &e) == ERR_INVALID &&
          strstr(e.msg, "contains no token"));
    unsetenv("HF_ENDPOINT");
    unsetenv("HF_TOKEN");
    config_fini(&c);
}

static void test_api_keys(void) {
    struct config_api_keys k;
    err e;
    CHECK(config_read_api_keys("", &k, &e) == 0 && k.n == 0);
    static const char text[] = "# mine\nsk-one\r\n\nsk-two";
    CHECK(config_read_api_keys(write_file("keys", text, sizeof text - 1, 0640), &k, &e) == 0);
    CHECK(k.n == 2);
    if (k.n == 2) {
        CHECK_STR(k.keys[0], "sk-one");
        CHECK_STR(k.keys[1], "sk-two");
    }
    config_api_keys_fini(&k);
    CHECK(config_read_api_keys(write_file("keys", text, sizeof text - 1, 0644), &k, &e) ==
          ERR_INVALID);
    CHECK(strstr(e.msg, "can be read or written by every user"));
    CHECK(config_read_api_keys(write_file("keys", "a\nb c\n", 6, 0600), &k, &e) == ERR_INVALID);
    CHECK(strstr(e.msg, "keys:2: an API key must be printable ASCII without spaces"));
    CHECK(config_read_api_keys(write_file("keys", "\n#\n", 3, 0600), &k, &e) == ERR_INVALID);
    CHECK(config_read_api_keys("/nonexistent", &k, &e) == ERR_IO);
    CHECK(config_read_api_keys(folder, &k, &e) == ERR_INVALID);
}

static void test_suggest(void) {
    static const char *const words[] = {"serve", "models", "render", "logits"};
    static const struct {
        const char *word, *best;
    } cases[] = {{"sevre", "serve"},  {"model", "models"}, {"redner", "render"},
                 {"logit", "logits"}, {"xyzzy", NULL},     {"", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct suggest s;
        suggest_init(&s, cases[i].word);
        for (size_t j = 0; j < 4; j++)
            suggest_offer(&s, words[j]);
        CHECK_STR(s.best ? s.best : "-", cases[i].best ? cases[i].best : "-");
    }
}

/* Names of lower floors' fields become keys, as whole words only. */
static void test_key_names(void) {
    static const char *const cases[][2] = {
        {"n_ranks = 3: the model has 8 heads", "tensor-parallel = 3: the model has 8 heads"},
        {"fewer max_batch_tokens or max_sequences, or a higher memory_fraction",
         "fewer max-batch-tokens or max-sequences, or a higher gpu-memory-utilization"},
        {"(kv_type) kv_cache_tokens", "(kv-cache-type) kv-cache-tokens"},
        {"/data/max_queue/x_max_queue: \"max_queue\" xmax_queue max_queue.gguf max_queuex",
         "/data/max_queue/x_max_queue: \"max_queue\" xmax_queue max_queue.gguf max_queuex"},
        {"device 1: no backend, isa or endpoint", "device 1: no backend, isa or endpoint"},
        {"at a limit (max_connections = 9, max_per_address = 3): none",
         "at a limit (max-connections = 9, max-connections-per-address = 3): none"},
        {"out of memory: 9 rows; choose a smaller max_rows",
         "out of memory: 9 rows; choose a smaller max-batch-tokens"},
        {"", ""}};
    char text[100];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        key_names_write(cases[i][0], text, sizeof text);
        CHECK_STR(text, cases[i][1]);
    }
    key_names_write("n_ranks = 3", text, 10);
    CHECK_STR(text, "tensor-pa");
    err e;
    err_set_param(&e, ERR_INVALID, "n_ranks", "n_ranks = 3: no");
    key_names_put(&e);
    CHECK_STR(e.param, "tensor-parallel");
    CHECK_STR(e.msg, "tensor-parallel = 3: no");
    err_set_param(&e, ERR_INVALID, "endpoint", "not an address");
    key_names_put(&e);
    CHECK_STR(e.msg, "hf-endpoint: not an address");
    err_set_param(&e, ERR_INVALID, "backend", "no \"x\"");
    key_names_put(&e);
    CHECK_STR(e.msg, "no \"x\"");
}

/* What a reload uses: differences, copies, the line of a key. */
static void test_differences(void) {
    struct config a, b;
    char said[2000];
    err e;
    size_t n, n_live = 0, n_different = 0;
    const struct config_key *keys = config_keys(&n);
    static const char text[] = "\nmax-priority = 3\nallowed_hosts = a\nkv-keep = all\n"
                               "prefix-cache = off\ngpu-memory-utilization = 0.5\n";
    CHECK(load(&b, text, sizeof text - 1, said, sizeof said) == 0 && config_init(&a, &e) == 0);
    for (size_t i = 0; i < n; i++) {
        n_live += config_is_live(&keys[i], &a, &b);
        if (config_same(&a, &b, &keys[i])) continue;
        n_different++;
        CHECK(config_copy(&a, &b, &keys[i], &e) == 0 && config_same(&a, &b, &keys[i]));
    }
    CHECK(n_different == 5 && n_live > 10 && n_live < n);
    CHECK(a.max_priority == 3 && !a.prefix_cache && a.gpu_memory_utilization == 0.5);
    CHECK(strcmp(a.kv_keep, "all") == 0 && a.kv_keep != b.kv_keep);
    err_set_param(&e, ERR_INVALID, "allowed-hosts", "bad");
    config_locate(&b, &e);
    CHECK_MSG(strstr(e.msg, "t.conf:3: bad"), "%s", e.msg);
    CHECK(config_set(&b, "allowed-hosts", "b", NULL) == 0); /* by a flag */
    err_set_param(&e, ERR_INVALID, "allowed-hosts", "bad");
    config_locate(&b, &e);
    config_locate(&a, &e); /* no file */
    CHECK(strcmp(e.msg, "bad") == 0);
    config_fini(&a);
    config_fini(&b);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/inferd-test-config-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    RUN(test_table);
    RUN(test_key_names);
    RUN(test_parts);
    RUN(test_defaults);
    RUN(test_file);
    RUN(test_file_problems);
    RUN(test_file_unreadable);
    RUN(test_example);
    RUN(test_flags);
    RUN(test_differences);
    RUN(test_registry_path);
    RUN(test_hub_keys);
    RUN(test_api_keys);
    RUN(test_suggest);
    static const char *const names[] = {"t.conf", "f.conf", "big", "keys"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return check_done();
}
