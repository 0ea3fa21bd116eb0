/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8: which bytes are characters, and streams that never show a part of one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "text/text.h"
#include "text/utf8.h"

/* Writes a code point in the shortest form. */
static int put(char *out, uint32_t c) {
    if (c < 0x80) return (out[0] = (char)c), 1;
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(0xF00 >> n | c);
    return n;
}

/* Every code point has one form, and nothing else is a character: all strings of up to three bytes, and of four that begin
 * as characters of four do. */
static void characters_are_those_of_unicode(void **state) {
    (void)state;
    size_t n_found = 0, n_code_points = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char text[5] = {0};
        const int n = put(text, c);
        const bool surrogate = c >= 0xD800 && c < 0xE000;
        assert_int_equal(kvt_utf8_char_len(text, (size_t)n), surrogate ? 0 : n);
        if (surrogate) continue;
        n_code_points++;
        assert_int_equal(kvt_utf8_code(text, n), c);
        for (int cut = 1; cut < n; cut++) {
            assert_int_equal(kvt_utf8_char_len(text, (size_t)cut), 0);
            assert_int_equal(kvt_utf8_unfinished_len(text, (size_t)cut), cut);
        }
        assert_int_equal(kvt_utf8_unfinished_len(text, (size_t)n), 0);
        char again[2];
        if (c < 0x800) {
            assert_int_equal(kvt_utf8_put(again, c), n);
            assert_memory_equal(again, text, (size_t)n);
        }
    }
    for (uint32_t lead = 0; lead < 256; lead++)
        for (uint32_t rest = 0; rest < 1u << 18; rest++) { /* three continuation bytes */
            const char text[4] = {(char)lead, (char)(0x80 | rest >> 12), (char)(0x80 | (rest >> 6 & 63)),
                                  (char)(0x80 | (rest & 63))};
            const int n = kvt_utf8_char_len(text, 4);
            const uint32_t tail = n == 1 ? rest : n == 2 ? rest & 0xFFF : n == 3 ? rest & 0x3F : 0;
            n_found += n > 0 && tail == 0;
        }
    assert_int_equal(n_found, n_code_points);
    const char broken[3] = {'\xE2', 'a', 'b'};
    assert_int_equal(kvt_utf8_char_len(broken, 3), 0);
    assert_int_equal(kvt_utf8_char_len(broken, 0), 0);
}

static void the_valid_part_is_measured(void **state) {
    (void)state;
    static const char text[] = "0123456789 abcdefgh \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 and more of it";
    const size_t len = sizeof text - 1;
    assert_int_equal(kvt_utf8_valid_len(text, len), len);
    for (size_t i = 0; i < len; i++) {
        char broken[sizeof text];
        memcpy(broken, text, sizeof text);
        broken[i] = '\xFF';
        size_t start = i; /* of the character that this byte is in */
        while ((text[start] & 0xC0) == 0x80) start--;
        assert_int_equal(kvt_utf8_valid_len(broken, len), start);
    }
    assert_int_equal(kvt_utf8_valid_len("", 0), 0);
}

/* Whatever the pieces, the stream shows all bytes in the end, and before that only whole characters. */
static void check_stream(const char *data, size_t len, struct kvt_rng *rng, bool valid) {
    struct kvt_utf8_stream stream = {.n_held = 0};
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 1000);
    for (size_t i = 0; i < len;) {
        const size_t some = kvt_rng_below(rng, 6), n = KVT_MIN(len - i, some);
        assert_int_equal(kvt_utf8_feed(&stream, data + i, n, &out), KVT_OK);
        i += n;
        assert_in_range(stream.n_held, 0, 3);
        assert_int_equal(out.len + (size_t)stream.n_held, i);
        assert_memory_equal(kvt_buf_text(&out), data, out.len);
        if (valid) assert_int_equal(kvt_utf8_valid_len(out.data, out.len), out.len);
        if (out.len < i) assert_int_equal(kvt_utf8_unfinished_len(data, i), i - out.len);
    }
    assert_int_equal(kvt_utf8_flush(&stream, &out), KVT_OK);
    assert_int_equal(stream.n_held, 0);
    assert_int_equal(out.len, len);
    if (len) assert_memory_equal(out.data, data, len);
    kvt_buf_finish(&out);
}

static void streams_show_whole_characters(void **state) {
    (void)state;
    struct kvt_rng rng = {11};
    for (int round = 0; round < 5000; round++) {
        char data[64];
        size_t len = 0;
        const bool valid = round % 2 == 0;
        while (len + 4 < sizeof data && kvt_rng_below(&rng, 20)) {
            static const uint32_t codes[] = {'a',    0xE9,   0x7FF,   0x800,   0x20AC,
                                             0xD7FF, 0xFFFD, 0x10000, 0x1F600, 0x10FFFF};
            if (valid || kvt_rng_below(&rng, 2))
                len += (size_t)put(data + len, codes[kvt_rng_below(&rng, KVT_ARRAY_LEN(codes))]);
            else
                data[len++] = (char)(0x80 | kvt_rng_u64(&rng));
        }
        check_stream(data, len, &rng, valid);
    }
}

static void a_full_buffer_changes_nothing(void **state) {
    (void)state;
    struct kvt_utf8_stream stream = {.n_held = 0};
    struct kvt_buf out;
    kvt_buf_init(&out, NULL, 3);
    assert_int_equal(kvt_utf8_feed(&stream, "ab\xE2\x82", 4, &out), KVT_OK);
    assert_int_equal(stream.n_held, 2);
    assert_int_equal(kvt_utf8_feed(&stream, "\xAC", 1, &out), KVT_ERR_LIMIT);
    assert_int_equal(kvt_utf8_feed(&stream, "x", 1, &out), KVT_ERR_LIMIT); /* the held bytes would fit, x would not */
    assert_int_equal(kvt_utf8_flush(&stream, &out), KVT_ERR_LIMIT);
    assert_int_equal(stream.n_held, 2);
    assert_string_equal(kvt_buf_text(&out), "ab");
    kvt_buf_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_those_of_unicode),
        cmocka_unit_test(the_valid_part_is_measured),
        cmocka_unit_test(streams_show_whole_characters),
        cmocka_unit_test(a_full_buffer_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
