/* test_origin.c - the lists allowed-origins and trusted-proxies, and a proxy's headers about its
 * client: accepted forms, tricks, and entries that are refused at start. */
#include "api/http/address.h"
#include "api/http/forwarded.h"
#include "api/http/origin.h"

#include "check.h"
#include "core/base/mem.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static const struct {
    const char *list, *origin;
    bool held;
} listed[] = {
    {"", "https://a.example", false},
    {"", "null", false},
    {"https://a.example", "https://a.example", true},
    {"https://a.example", "HTTPS://A.EXAMPLE", true},
    {"https://A.example:443", "https://a.example", true},
    {"https://a.example", "https://a.example:443", true},
    {"http://a.example", "https://a.example", false},
    {"https://a.example", "https://a.example:8443", false},
    {"https://a.example:8443", "https://a.example:8443", true},
    {"https://a.example:8443", "https://a.example", false},
    /* names that are merely similar */
    {"https://a.example", "https://a.example.evil", false},
    {"https://a.example", "https://xa.example", false},
    {"https://a.example", "https://a.example@evil", false},
    {"https://a.example", "https://a.example/", false},
    {"https://a.example", "https://a.example:443x", false},
    {"https://a.example", "https://a.example:", false},
    {"https://a.example", "https://a.example:443:443", false},
    {"https://a.example", "https://a.example https://evil", false},
    {"https://a.example", "https://a.example.", false},
    {"https://a.example", "https:a.example", false},
    {"https://a.example", "https//a.example", false},
    {"https://a.example", "a.example", false},
    {"https://a.example", "", false},
    {"https://a.example", "https://", false},
    {"https://a.example", "null", false},
    {"http://localhost", "http://evil-localhost", false},
    {"http://localhost", "http://localhost.evil.example", false},
    /* ports */
    {"http://localhost:*", "http://localhost", true},
    {"http://localhost:*", "http://localhost:3000", true},
    {"http://localhost:*", "http://localhost:65535", true},
    {"http://localhost:*", "http://localhost:65536", false},
    {"http://localhost:*", "http://localhost:0", false},
    {"http://localhost:*", "http://localhost:080000", false},
    {"http://localhost:*", "http://localhost:*", false},
    {"http://localhost:*", "https://localhost:3000", false},
    {"http://localhost:*", "http://evil-localhost:3000", false},
    {"http://localhost:*", "http://localhost:3000@evil.example", false},
    {"http://localhost", "http://localhost:3000", false},
    {"http://*:*", "http://any.example:1", true},
    {"http://*", "http://any.example", true},
    {"http://*", "http://any.example:1", false},
    {"http://*:8080", "http://any.example:8080", true},
    {"http://*:8080", "http://any.example", false},
    /* names below */
    {"https://*.example.com", "https://chat.example.com", true},
    {"https://*.example.com", "https://a.b.Example.com", true},
    {"https://*.example.com", "https://example.com", false},
    {"https://*.example.com", "https://evilexample.com", false},
    {"https://*.example.com", "https://.example.com", false},
    {"https://*.example.com", "https://chat.example.com.evil", false},
    {"https://*.example.com", "https://chat.example.com:8443", false},
    {"https://*.example.com:*", "https://chat.example.com:8443", true},
    /* addresses */
    {"http://127.0.0.1:8080", "http://127.0.0.1:8080", true},
    {"http://[::1]:8080", "http://[::1]:8080", true},
    {"http://[::1]:*", "http://[::1]", true},
    {"http://[::1]", "http://[::1].evil", false},
    {"http://[::1]", "http://::1", false},
    {"http://[::1]", "http://[::1", false},
    {"http://[::1]", "http://[]", false},
    /* other schemes */
    {"app://obsidian.md", "app://obsidian.md", true},
    {"app://obsidian.md", "app://obsidian.md.evil", false},
    {"app://obsidian.md", "http://obsidian.md", false},
    {"app://obsidian.md", "xapp://obsidian.md", false},
    {"app://*", "app://anything", true},
    {"app://*", "app://", true},
    {"app://*", "apps://anything", false},
    {"chrome-extension://*", "chrome-extension://abcdefghijklmnop", true},
    {"chrome-extension://*", "moz-extension://0b1c", false},
    {"vscode-webview://*", "vscode-webview://1abc-2", true},
    {"tauri://localhost", "tauri://localhost", true},
    {"capacitor://localhost, file://", "file://", true},
    {"file://", "file:///etc/passwd", false},
    {"file://", "app://", false},
    /* null and all */
    {"null", "null", true},
    {"NULL", "null", true},
    {"null", "https://a.example", false},
    {"*", "https://a.example", true},
    {"*", "null", true},
    {"*", "what even is this", true},
    {"https://a.example *", "https://b.example", true},
    /* lists */
    {"https://a.example,https://b.example", "https://b.example", true},
    {" ,, https://a.example ,\thttps://b.example,", "https://a.example", true},
    {"https://a.example,https://b.example", "https://a.example,https://b.example", false},
};

static void origins_are_matched(void) {
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        struct origin_list l;
        err e = {0};
        int rc = origins_parse(listed[i].list, &l, &e);
        CHECK_MSG(rc == 0, "\"%s\": %s", listed[i].list, e.msg);
        if (rc) continue;
        CHECK_MSG(origins_hold(&l, listed[i].origin) == listed[i].held, "\"%s\" in \"%s\"",
                  listed[i].origin, listed[i].list);
        origins_fini(&l);
    }
    struct origin_list none;
    CHECK(origins_parse(NULL, &none, NULL) == 0 && !origins_hold(&none, "https://a.example"));
    origins_fini(&none);
}

static void wrong_origins_are_refused(void) {
    static const char *const lists[] = {
        "a.example",
        "localhost:3000",
        "https://",
        "https://a.example/",
        "https://a.example/path",
        "https://user@a.example",
        "https://a.example:",
        "https://a.example:0",
        "https://a.example:99999",
        "https://a.example:8*",
        "https://a*.example",
        "https://*a.example",
        "https://*.",
        "https://**",
        "https://*.*.example",
        "https://a.*",
        "*://a.example",
        "*.example.com",
        "**",
        "app://",
        "app:",
        "1app://x",
        "://x",
        "https://m\xc3\xbcnchen.example",
        "http://::1:8080",
        "https://ok.example, nonsense",
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct origin_list l;
        err e = {0};
        CHECK_MSG(origins_parse(lists[i], &l, &e) == ERR_INVALID && !l.rules && !l.text && !l.n,
                  "\"%s\"", lists[i]);
        CHECK_STR(e.param, "allowed_origins");
        CHECK(strstr(e.msg, "is not an origin"));
        origins_fini(&l);
    }
}

static void a_page_knows_its_own_host(void) {
    static const struct {
        const char *origin, *host, *scheme;
        bool same;
    } rows[] = {
        {"http://localhost:8080", "localhost:8080", NULL, true},
        {"http://LOCALHOST:8080", "localhost:8080", NULL, true},
        {"http://localhost:8080", "localhost:8081", NULL, false},
        {"http://localhost:8080", "localhost", NULL, false},
        {"http://localhost", "localhost:80", NULL, true},
        {"https://llm.example", "llm.example", NULL, true},
        {"https://llm.example", "llm.example:443", NULL, true},
        {"https://llm.example", "llm.example:80", NULL, false},
        {"https://llm.example", "llm.example", "https", true},
        {"http://llm.example", "llm.example", "https", false},
        {"https://llm.example", "llm.example", "http", false},
        {"app://localhost:8080", "localhost:8080", NULL, false},
        {"https://llm.example", "llm.example.evil", NULL, false},
        {"https://llm.example.evil", "llm.example", NULL, false},
        {"http://[::1]:8080", "[::1]:8080", NULL, true},
        {"http://[::1]", "[::1]", NULL, true},
        {"http://127.0.0.1", "127.0.0.1", NULL, true},
        {"http://a", "", NULL, false},
        {"http://a", "a:", NULL, false},
        {"http://a", "a:80:80", NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct origin o;
        bool same =
            origin_parse(rows[i].origin, &o) && origin_is_of_host(&o, rows[i].host, rows[i].scheme);
        CHECK_MSG(same == rows[i].same, "\"%s\" of \"%s\"", rows[i].origin, rows[i].host);
    }
}

static void networks_are_matched(void) {
    static const struct {
        const char *list, *address;
        bool held;
    } rows[] = {
        {"", "127.0.0.1", false},
        {"127.0.0.1", "127.0.0.1", true},
        {"127.0.0.1", "127.0.0.2", false},
        {"127.0.0.1", "::1", false},
        {"127.0.0.1, ::1", "::1", true},
        {"10.0.0.0/8", "10.255.1.2", true},
        {"10.0.0.0/8", "11.0.0.1", false},
        {"10.1.2.3/8", "10.9.9.9", true},
        {"192.168.4.0/22", "192.168.7.255", true},
        {"192.168.4.0/22", "192.168.8.0", false},
        {"0.0.0.0/0", "8.8.8.8", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "8.8.8.8", false},
        {"fd00::/8", "fdff::1", true},
        {"fd00::/8", "fe00::1", false},
        {"2001:db8::/33", "2001:db8:7fff::1", true},
        {"2001:db8::/33", "2001:db8:8000::1", false},
        {"2001:DB8::1/128", "2001:db8::1", true},
        /* mapped addresses are those of IPv4 */
        {"127.0.0.1", "::ffff:127.0.0.1", true},
        {"::ffff:127.0.0.1", "127.0.0.1", true},
        {"::ffff:10.0.0.0/104", "10.1.1.1", true},
        {"::ffff:10.0.0.0/104", "11.1.1.1", false},
    };
    static const char *const wrong[] = {
        "localhost",
        "127.0.0.1/33",
        "::1/129",
        "127.0.0.1/",
        "127.0.0.1/8x",
        "127.0.0.1/-1",
        "/8",
        "127.0.0",
        "127.0.0.1:80",
        "[::1]",
        "fe80::1%eth0",
        "*",
        "10.0.0.0/08x",
        "10.0.0.0/0008",
        "::ffff:0.0.0.0/95",
        "1.2.3.4, x",
        "256.1.1.1",
        "10.0.0.0//8",
        "10.0.0.0/255.0.0.0",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct networks l;
        struct address a;
        err e = {0};
        CHECK_MSG(networks_parse(rows[i].list, &l, &e) == 0, "\"%s\": %s", rows[i].list, e.msg);
        CHECK(address_parse(rows[i].address, strlen(rows[i].address), &a));
        CHECK_MSG(networks_hold(&l, &a) == rows[i].held, "%s in %s", rows[i].address, rows[i].list);
        networks_fini(&l);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct networks l;
        err e = {0};
        CHECK_MSG(networks_parse(wrong[i], &l, &e) == ERR_INVALID && !l.all && !l.n, "\"%s\"",
                  wrong[i]);
        CHECK_STR(e.param, "trusted_proxies");
        networks_fini(&l);
    }
    struct networks all;
    CHECK(networks_parse("0.0.0.0/0, ::/0", &all, NULL) == 0);
    CHECK(!networks_hold(&all, &(struct address){0}));
    networks_fini(&all);
}

static void peers_have_addresses(void) {
    char text[ADDRESS_TEXT_BYTES];
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct address a = address_of((struct sockaddr *)&v4);
    CHECK_STR(address_text(&a, text), "192.0.2.1");
    CHECK(inet_pton(AF_INET6, "::ffff:192.0.2.1", &v6.sin6_addr) == 1);
    a = address_of((struct sockaddr *)&v6);
    CHECK_STR(address_text(&a, text), "192.0.2.1");
    CHECK(inet_pton(AF_INET6, "2001:db8:1:2:3:4:5:6", &v6.sin6_addr) == 1);
    a = address_of((struct sockaddr *)&v6);
    CHECK_STR(address_text(&a, text), "2001:db8:1:2:3:4:5:6");
    a = address_of(NULL);
    CHECK_STR(address_text(&a, text), "unknown");
}

/* The client of a trusted proxy in 10.0.0.0/8; "": none is named. */
static void the_rightmost_foreign_address_is_the_client(void) {
    static const struct {
        const char *value, *client;
    } rows[] = {
        {"203.0.113.9", "203.0.113.9"},
        {"203.0.113.9, 10.0.0.2", "203.0.113.9"},
        {"203.0.113.9,10.0.0.2 , 10.0.0.3", "203.0.113.9"},
        /* the client may have written the left part */
        {"198.51.100.1, 203.0.113.9", "203.0.113.9"},
        {"127.0.0.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"},
        {"10.0.0.7, 203.0.113.9", "203.0.113.9"},
        {"nonsense, 203.0.113.9", "203.0.113.9"},
        {"10.0.0.7", "10.0.0.7"},
        {"10.0.0.7, 10.0.0.8", "10.0.0.7"},
        /* elements before an invalid one are ignored */
        {"203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"},
        {"203.0.113.9, _hidden", ""},
        {"unknown", ""},
        {"", ""},
        {" , ,", ""},
        {"203.0.113.9,", "203.0.113.9"},
        {"203.0.113.9:4711", "203.0.113.9"},
        {"203.0.113.9:", ""},
        {"203.0.113.9:123456", ""},
        {"203.0.113.9:80x", ""},
        {"203.0.113.9 80", ""},
        {"2001:db8::9", "2001:db8::9"},
        {"[2001:db8::9]:4711", "2001:db8::9"},
        {"[2001:db8::9]", "2001:db8::9"},
        {"[2001:db8::9]x", ""},
        {"[2001:db8::9", ""},
        {"[203.0.113.9]", ""},
        {"[]", ""},
        {"::ffff:203.0.113.9", "203.0.113.9"},
        {"\"203.0.113.9\"", ""},
        {"999.0.113.9", ""},
        {"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc", ""},
    };
    struct networks trusted;
    CHECK(networks_parse("10.0.0.0/8", &trusted, NULL) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct forwarded f = {0};
        char text[ADDRESS_TEXT_BYTES] = "";
        forwarded_header(&f, &trusted, "x-forwarded-for", rows[i].value);
        if (f.client.family) address_text(&f.client, text);
        CHECK_MSG(strcmp(text, rows[i].client) == 0, "\"%s\": \"%s\"", rows[i].value, text);
        CHECK(!f.has_host && !f.scheme);
    }
    /* Several headers form one list. */
    struct forwarded f = {0};
    char text[ADDRESS_TEXT_BYTES];
    forwarded_header(&f, &trusted, "X-Forwarded-For", "198.51.100.1, 203.0.113.9");
    forwarded_header(&f, &trusted, "X-Forwarded-Forx", "192.0.2.1");
    forwarded_header(&f, &trusted, "Forwarded", "for=192.0.2.1");
    forwarded_header(&f, &trusted, "X-FORWARDED-FOR", "10.0.0.2");
    CHECK_STR(address_text(&f.client, text), "203.0.113.9");
    networks_fini(&trusted);
}

static void the_last_host_and_scheme_count(void) {
    static const struct {
        const char *value, *host;
    } rows[] = {
        {"llm.example", "llm.example"},
        {"evil.example, llm.example:8443", "llm.example:8443"},
        {"[::1]:8080", "[::1]:8080"},
        {"llm.example,", "llm.example"},
        {"llm.example/x", ""},
        {"user@llm.example", ""},
        {"llm example", ""},
    };
    struct networks none = {0};
    char name[FORWARDED_HOST_BYTES + 1];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct forwarded f = {0};
        forwarded_header(&f, &none, "X-Forwarded-Host", rows[i].value);
        CHECK(f.has_host && !f.client.family);
        CHECK_STR(f.host, rows[i].host);
    }
    struct forwarded f = {0};
    forwarded_header(&f, &none, "X-Forwarded-Host", "");
    CHECK(!f.has_host);
    memset(name, 'a', sizeof name);
    name[FORWARDED_HOST_BYTES - 1] = '\0';
    forwarded_header(&f, &none, "X-Forwarded-Host", name);
    CHECK_STR(f.host, name);
    name[FORWARDED_HOST_BYTES - 1] = 'a';
    name[FORWARDED_HOST_BYTES] = '\0';
    forwarded_header(&f, &none, "X-Forwarded-Host", name);
    CHECK(f.has_host && !*f.host);
    forwarded_header(&f, &none, "X-Forwarded-Proto", "http,HTTPS");
    CHECK(f.scheme && strcmp(f.scheme, "https") == 0);
    forwarded_header(&f, &none, "X-Forwarded-Proto", "http");
    CHECK(f.scheme && strcmp(f.scheme, "http") == 0);
    forwarded_header(&f, &none, "X-Forwarded-Proto", "ftp");
    CHECK(!f.scheme);
}

static void lists_survive_a_lack_of_memory(void) {
    struct origin_list l;
    struct networks n;
    for (uint64_t at = 1; at <= 2; at++) {
        mem_fail_at(at);
        CHECK(origins_parse("https://a.example", &l, NULL) == ERR_NOMEM && !l.rules);
    }
    mem_fail_at(1);
    CHECK(networks_parse("127.0.0.1", &n, NULL) == ERR_NOMEM && !n.all);
    mem_fail_at(0);
}

int main(void) {
    RUN(origins_are_matched);
    RUN(wrong_origins_are_refused);
    RUN(a_page_knows_its_own_host);
    RUN(networks_are_matched);
    RUN(peers_have_addresses);
    RUN(the_rightmost_foreign_address_is_the_client);
    RUN(the_last_host_and_scheme_count);
    RUN(lists_survive_a_lack_of_memory);
    return check_done();
}
