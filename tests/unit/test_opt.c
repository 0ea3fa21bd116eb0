/* SPDX-License-Identifier: Apache-2.0
 * Option tables: what is read, what is refused, and with which sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cli/opt.c"

struct shared_settings {
    int64_t pad, tail;
};

struct settings {
    const char *model, *second, *prompt, *file;
    int64_t n;
    double temp;
    uint64_t limit;
    bool chat;
    struct kvt_opt_texts kv;
    struct shared_settings cache;
};

#define AT(field) offsetof(struct settings, field)

/* clang-format off */
static const struct kvt_opt options[] = {
    {KVT_OPT_ARG, .name = "MODEL", .at = AT(model)},
    {KVT_OPT_ARG, .name = "SECOND", .at = AT(second), .optional = true},
    {KVT_OPT_GROUP, .name = "Prompt"},
    {KVT_OPT_TEXT, .name = "prompt", .brief = "p", .value = "TEXT", .at = AT(prompt), .not_with = "file"},
    {KVT_OPT_TEXT, .name = "file", .brief = "f", .value = "FILE", .at = AT(file), .needs = "chat temp"},
    {KVT_OPT_INT, .name = "max-tokens", .brief = "n", .also = "predict n-predict", .value = "N", .at = AT(n),
     .min = -1, .max = 1000},
    {KVT_OPT_FLOAT, .name = "temp", .value = "X", .at = AT(temp), .max = 2},
    {KVT_OPT_BYTES, .name = "limit", .value = "SIZE", .at = AT(limit)},
    {KVT_OPT_FLAG, .name = "chat", .brief = "C", .at = AT(chat)},
    {KVT_OPT_TEXTS, .name = "kv", .brief = "ctk", .value = "NAME", .at = AT(kv)},
    {KVT_OPT_FLAG, .name = "secret", .at = AT(chat), .hidden = true},
};
static const struct kvt_opt cache_options[] = {
    {KVT_OPT_INT, .name = "tail", .value = "N", .at = offsetof(struct shared_settings, tail), .max = 64},
};
/* clang-format on */

static const struct kvt_opt_shared shared[] = {{cache_options, 1, AT(cache)}};
static const struct kvt_command command = {
    .name = "run", .options = options, .n_options = KVT_ARRAY_LEN(options), .shared = shared, .n_shared = 1};

/* Parses a line whose words have blanks between. */
static enum kvt_status parse(struct settings *s, bool *help, struct kvt_error *err, const char *line) {
    static char copy[1024]; /* settings borrow from it */
    static char *argv[2 * KVT_OPT_TEXTS_MAX];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
    *s = (struct settings){.n = 7, .temp = 0.5};
    *err = (struct kvt_error){.code = KVT_OK};
    *help = false;
    return kvt_opt_parse(&command, s, NULL, 0, argc, argv, help, err);
}

static struct settings accepted(const char *line) {
    struct settings s;
    struct kvt_error err;
    bool help;
    if (parse(&s, &help, &err, line) != KVT_OK) fail_msg("'%s' was refused: %s", line, err.text);
    return s;
}

static void refused(const char *line, const char *sentence) {
    struct settings s;
    struct kvt_error err;
    bool help;
    assert_int_equal(parse(&s, &help, &err, line), KVT_ERR_ARG);
    assert_int_equal(err.code, KVT_ERR_ARG);
    assert_string_equal(err.text, sentence);
}

/* All arguments after those that have a place go to a list. */
static void arguments_can_be_many(void **state) {
    (void)state;
    struct many {
        const char *model;
        struct kvt_opt_texts more;
        bool flag;
    } many = {.flag = false};
    static const struct kvt_opt rows[] = {{KVT_OPT_ARG, .name = "MODEL", .at = offsetof(struct many, model)},
                                          {KVT_OPT_ARGS, .name = "MORE", .at = offsetof(struct many, more)},
                                          {KVT_OPT_FLAG, .name = "flag", .at = offsetof(struct many, flag)}};
    static const struct kvt_command sweep = {.name = "sweep", .options = rows, .n_options = KVT_ARRAY_LEN(rows)};
    char *argv[] = {(char[]){"m"}, (char[]){"a*"}, (char[]){"--flag"}, (char[]){"b"}, (char[]){"c"}};
    bool help = false;
    assert_int_equal(kvt_opt_parse(&sweep, &many, NULL, 0, 5, argv, &help, NULL), KVT_OK);
    assert_string_equal(many.model, "m");
    assert_int_equal(many.more.n, 3);
    assert_string_equal(many.more.items[0], "a*");
    assert_string_equal(many.more.items[2], "c");
    assert_true(many.flag);
    many.more.n = 0;
    assert_int_equal(kvt_opt_parse(&sweep, &many, NULL, 0, 1, argv, &help, NULL), KVT_OK); /* none is needed */
    assert_int_equal(many.more.n, 0);
}

/* ---- other sources ---------------------------------------------------------------------------------------------------- */

static enum kvt_status parse_with(struct settings *s, const struct kvt_opt_given *given, int n, struct kvt_error *err,
                                  const char *line) {
    static char copy[1024];
    char *argv[32], *rest = NULL;
    int argc = 0;
    bool help = false;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
    *s = (struct settings){.n = 7, .temp = 0.5};
    *err = (struct kvt_error){.code = KVT_OK};
    return kvt_opt_parse(&command, s, given, n, argc, argv, &help, err);
}

static void stronger_sources_win(void **state) {
    (void)state;
    static const struct kvt_opt_given given[] = {{KVT_OPT_FILE, "max-tokens", "1", "config:1"},
                                                 {KVT_OPT_FILE, "temp", "1", "config:2"},
                                                 {KVT_OPT_FILE, "kv", "a", "config:3"},
                                                 {KVT_OPT_FILE, "kv", "b", "config:4"},
                                                 {KVT_OPT_FILE, "chat", "yes", "config:5"},
                                                 {KVT_OPT_ENVIRONMENT, "predict", "2", "KVTILE_PREDICT"},
                                                 {KVT_OPT_ENVIRONMENT, "chat", "off", "KVTILE_CHAT"}};
    struct settings s;
    struct kvt_error err;
    assert_int_equal(parse_with(&s, given, 7, &err, "m"), KVT_OK);
    assert_int_equal(s.n, 2);
    assert_true(s.temp == 1);
    assert_int_equal(s.kv.n, 2);
    assert_false(s.chat);
    assert_int_equal(parse_with(&s, given, 7, &err, "m -n 3 --kv c --chat"), KVT_OK);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.kv.n, 1); /* the whole list is another */
    assert_string_equal(s.kv.items[0], "c");
    assert_true(s.chat);
}

/* --prompt and --file are rivals; --file needs --chat or --temp. */
static void weaker_rivals_go(void **state) {
    (void)state;
    static const struct kvt_opt_given file[] = {{KVT_OPT_FILE, "file", "f", "config:1"},
                                                {KVT_OPT_FILE, "prompt", "p", "config:2"},
                                                {KVT_OPT_FILE, "chat", "yes", "config:3"}};
    struct settings s;
    struct kvt_error err;
    assert_int_equal(parse_with(&s, file, 1, &err, "m"), KVT_OK); /* lacks what it needs: without effect */
    assert_null(s.file);
    assert_int_equal(parse_with(&s, file, 1, &err, "m --temp 1"), KVT_OK);
    assert_string_equal(s.file, "f");
    assert_int_equal(parse_with(&s, file, 1, &err, "m --temp 1 -p x"), KVT_OK);
    assert_null(s.file);
    assert_string_equal(s.prompt, "x");
    assert_int_equal(parse_with(&s, file + 1, 2, &err, "m -f x"), KVT_OK);
    assert_null(s.prompt);
    assert_string_equal(s.file, "x");
    assert_int_equal(parse_with(&s, file, 3, &err, "m"), KVT_ERR_ARG);
    assert_string_equal(err.text, "config:2 and config:1 cannot be given together");
}

static void other_sources_are_checked(void **state) {
    (void)state;
    static const struct {
        struct kvt_opt_given given;
        const char *sentence;
    } cases[] = {
        {{KVT_OPT_ENVIRONMENT, "max-tokens", "x", "KVTILE_MAX_TOKENS"},
         "KVTILE_MAX_TOKENS takes a whole number from -1 to 1000, not 'x'"},
        {{KVT_OPT_FILE, "limit", "lots", "c:4: limit"},
         "c:4: limit takes a size such as 300000, 512M or 1.5G, not 'lots'"},
        {{KVT_OPT_FILE, "chat", "maybe", "c:4: chat"}, "c:4: chat takes yes or no, not 'maybe'"},
        {{KVT_OPT_FILE, "colour", "red", "c:4: colour"}, "c:4: colour: run has no such option"},
    };
    struct settings s;
    struct kvt_error err;
    for (size_t i = 0; i < KVT_ARRAY_LEN(cases); i++) {
        assert_int_equal(parse_with(&s, &cases[i].given, 1, &err, "m"), KVT_ERR_ARG);
        assert_string_equal(err.text, cases[i].sentence);
    }
    char variable[KVT_OPT_VARIABLE_MAX];
    kvt_opt_variable(variable, "kv-memory");
    assert_string_equal(variable, "KVTILE_KV_MEMORY");
    assert_true(kvt_opt_has(&command, "n-predict"));
    assert_false(kvt_opt_has(&command, "MODEL"));
    assert_false(kvt_opt_has(&command, "secret"));
}

static void defaults_stay(void **state) {
    (void)state;
    const struct settings s = accepted("a.gguf");
    assert_string_equal(s.model, "a.gguf");
    assert_null(s.second);
    assert_null(s.prompt);
    assert_int_equal(s.n, 7);
    assert_true(s.temp == 0.5);
    assert_false(s.chat);
    assert_int_equal(s.kv.n, 0);
    assert_int_equal(s.cache.tail, 0);
}

static void every_spelling_is_read(void **state) {
    (void)state;
    assert_int_equal(accepted("m --max-tokens 12").n, 12);
    assert_int_equal(accepted("m --max-tokens=12").n, 12);
    assert_int_equal(accepted("m --predict 12").n, 12);
    assert_int_equal(accepted("m --n-predict=12").n, 12);
    assert_int_equal(accepted("m -n 12").n, 12);
    assert_int_equal(accepted("m -n12").n, 12);
    assert_int_equal(accepted("-n -1 m").n, -1);
    assert_int_equal(accepted("m -n 3 -n 4").n, 4);
    assert_true(accepted("m --temp 1.25").temp == 1.25);
    assert_true(accepted("m -C").chat);
    assert_string_equal(accepted("m --prompt=a=b").prompt, "a=b");
    assert_string_equal(accepted("m --prompt=").prompt, "");
    assert_string_equal(accepted("m -p -n").prompt, "-n");
    assert_int_equal(accepted("m --tail 64").cache.tail, 64);
}

static void arguments_mix_and_end(void **state) {
    (void)state;
    struct settings s = accepted("--chat a -n 1 b");
    assert_string_equal(s.model, "a");
    assert_string_equal(s.second, "b");
    s = accepted("-- --chat -n");
    assert_string_equal(s.model, "--chat");
    assert_string_equal(s.second, "-n");
    assert_false(s.chat);
    assert_string_equal(accepted("-").model, "-");
}

static void texts_collect(void **state) {
    (void)state;
    const struct settings s = accepted("m --kv f16 -ctk affine4 --kv=f32");
    assert_int_equal(s.kv.n, 3);
    assert_string_equal(s.kv.items[0], "f16");
    assert_string_equal(s.kv.items[1], "affine4");
    assert_string_equal(s.kv.items[2], "f32");
    char line[1024] = "m";
    for (int i = 0; i <= KVT_OPT_TEXTS_MAX; i++) snprintf(line + 1 + 7 * i, 8, " --kv=x");
    struct settings t;
    struct kvt_error err;
    bool help;
    assert_int_equal(parse(&t, &help, &err, line), KVT_ERR_ARG);
}

static void sizes_have_units(void **state) {
    (void)state;
    assert_int_equal(accepted("m --limit 0").limit, 0);
    assert_int_equal(accepted("m --limit 300000").limit, 300000);
    assert_int_equal(accepted("m --limit 2k").limit, 2048);
    assert_int_equal(accepted("m --limit 1.5G").limit, UINT64_C(3) << 29);
    assert_int_equal(accepted("m --limit 3MiB").limit, 3 << 20);
    assert_int_equal(accepted("m --limit 3mb").limit, 3 << 20);
    static const char *const bad[] = {"x", "-1", "1X", "1KK", "1e30", "inf", "nan", "K"};
    for (size_t i = 0; i < KVT_ARRAY_LEN(bad); i++) {
        char line[64], sentence[120];
        snprintf(line, sizeof line, "m --limit %s", bad[i]);
        snprintf(sentence, sizeof sentence, "--limit takes a size such as 300000, 512M or 1.5G, not '%s'", bad[i]);
        refused(line, sentence);
    }
}

static void numbers_are_checked(void **state) {
    (void)state;
    refused("m -n x", "-n takes a whole number from -1 to 1000, not 'x'");
    refused("m -n 1.5", "-n takes a whole number from -1 to 1000, not '1.5'");
    refused("m -n=3", "-n takes a whole number from -1 to 1000, not '=3'");
    refused("m --max-tokens=", "--max-tokens takes a whole number from -1 to 1000, not ''");
    refused("m -n 1001", "-n takes a whole number from -1 to 1000, not '1001'");
    refused("m -n -2", "-n takes a whole number from -1 to 1000, not '-2'");
    refused("m -n 99999999999999999999", "-n takes a whole number from -1 to 1000, not '99999999999999999999'");
    refused("m --temp nan", "--temp takes a number from 0 to 2, not 'nan'");
    refused("m --temp -0.1", "--temp takes a number from 0 to 2, not '-0.1'");
    refused("m --temp 2.1", "--temp takes a number from 0 to 2, not '2.1'");
    refused("m --temp 1,5", "--temp takes a number from 0 to 2, not '1,5'");
    refused("m --tail 65", "--tail takes a whole number from 0 to 64, not '65'");
}

static void mistakes_are_named(void **state) {
    (void)state;
    refused("m --tmp 1", "run has no option '--tmp'; did you mean --temp? ('kvtile run --help' lists them)");
    refused("m --n-pedict=1",
            "run has no option '--n-pedict'; did you mean --n-predict? ('kvtile run --help' lists them)");
    refused("m --tial 1", "run has no option '--tial'; did you mean --tail? ('kvtile run --help' lists them)");
    refused("m --zzzzzzzz", "run has no option '--zzzzzzzz'; 'kvtile run --help' lists those it has");
    refused("m --secre", "run has no option '--secre'; 'kvtile run --help' lists those it has");
    refused("m -x", "run has no option '-x'; 'kvtile run --help' lists those it has");
    refused("m -n", "-n needs a value: -n N");
    refused("m --prompt", "--prompt needs a value: --prompt TEXT");
    refused("m --chat=1", "--chat takes no value");
    refused("", "run needs MODEL ('kvtile run --help' explains)");
    refused("a b c", "run has no use for the argument 'c' ('kvtile run --help' explains)");
    refused("m -p a --file b --chat", "--prompt and --file cannot be given together");
    refused("m -f b", "--file needs --chat");
    assert_string_equal(accepted("m -f b --temp 1").file, "b");
    struct settings s;
    struct kvt_error err;
    bool help;
    char line[400] = "m --";
    memset(line + 4, 'a', 300);
    line[304] = 0;
    assert_int_equal(parse(&s, &help, &err, line), KVT_ERR_ARG);
}

static void help_comes_first(void **state) {
    (void)state;
    struct settings s;
    struct kvt_error err;
    bool help;
    assert_int_equal(parse(&s, &help, &err, "--help --nonsense"), KVT_OK);
    assert_true(help);
    assert_int_equal(parse(&s, &help, &err, "m -h"), KVT_OK);
    assert_true(help);
    assert_int_equal(parse(&s, &help, &err, "-- -h"), KVT_OK);
    assert_false(help);
}

static void distance_counts_edits(void **state) {
    (void)state;
    assert_int_equal(kvt_word_distance("", ""), 0);
    assert_int_equal(kvt_word_distance("", "abc"), 3);
    assert_int_equal(kvt_word_distance("abc", ""), 3);
    assert_int_equal(kvt_word_distance("run", "run"), 0);
    assert_int_equal(kvt_word_distance("rnu", "run"), 1);
    assert_int_equal(kvt_word_distance("inspcet", "inspect"), 1);
    assert_int_equal(kvt_word_distance("kitten", "sitting"), 3);
    assert_int_equal(kvt_word_distance("versoin", "version"), 1);
    assert_int_equal(kvt_word_distance("abcdef", "fedcba"), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_can_be_many), cmocka_unit_test(stronger_sources_win),
        cmocka_unit_test(weaker_rivals_go),      cmocka_unit_test(other_sources_are_checked),
        cmocka_unit_test(defaults_stay),         cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(texts_collect),         cmocka_unit_test(arguments_mix_and_end),
        cmocka_unit_test(sizes_have_units),      cmocka_unit_test(numbers_are_checked),
        cmocka_unit_test(mistakes_are_named),    cmocka_unit_test(help_comes_first),
        cmocka_unit_test(distance_counts_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
