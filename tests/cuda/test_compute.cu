/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of an engine's layers against loops in the process: norms, rotations, sums and gates to the bit, products to the rounding
 * of their sums. Runs on a GPU, and on the processor by host_kernels.cpp.
 */
#include "backend/cuda/simt.cuh"

#include <math.h>

#include <vector>

#include "backend/cuda/compute.h"
#include "cuda/device_memory.h"

extern "C" {
#include "base/num.h"
#include "base/rng.h"
}

namespace {

struct test {
    struct device_memory memory;
    struct kvt_rng rng;
    int passed, failed;
};

void check(struct test *t, bool good, const char *what, int a, int b) {
    if (good)
        t->passed++;
    else if (t->failed++ < 20)
        printf("%s of %d and %d: not so\n", what, a, b);
}

bool done(struct test *t, enum kvt_status status, const struct kvt_error &err) {
    if (status != KVT_OK) printf("%s\n", err.text), t->failed++;
    return status == KVT_OK;
}

std::vector<float> numbers(struct test *t, size_t n, float scale) {
    std::vector<float> x(n);
    for (float &v : x) v = kvt_rng_normal(&t->rng) * scale;
    return x;
}

float *there(struct test *t, const std::vector<float> &x) { return device_copy(&t->memory, x.data(), x.size()); }

std::vector<float> back(const float *from, size_t n) {
    std::vector<float> x(n);
    device_out(x.data(), from, n * sizeof(float));
    return x;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/* ---- what is done in the process ----------------------------------------------------------------------------------------- */

/* As src/model/ops.c: sixteen sums, then double. */
void norm_row(float *x, const float *weight, int n, float eps) {
    float lane[16] = {};
    double sum = 0;
    int i = 0;
    for (; i < n / 16 * 16; i++) lane[i % 16] += x[i] * x[i];
    for (float part : lane) sum += (double)part;
    for (; i < n; i++) sum += (double)(x[i] * x[i]);
    const float scale = (float)(1 / sqrt(sum / n + (double)eps));
    for (i = 0; i < n; i++) x[i] = x[i] * scale * weight[i];
}

void turn_head(float *x, const float *table, int n_rot, bool neighbours) {
    const int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        float *u = x + (neighbours ? 2 * i : i), *v = u + (neighbours ? 1 : half);
        const float a = *u, b = *v;
        *u = a * table[i] - b * table[half + i];
        *v = a * table[half + i] + b * table[i];
    }
}

/* ---- tests --------------------------------------------------------------------------------------------------------------- */

void test_norm(struct test *t, int n_rows, int width) {
    struct kvt_error err = {};
    t->memory.used = 0;
    std::vector<float> x = numbers(t, (size_t)(n_rows * width), 3), weight = numbers(t, (size_t)width, 1);
    float *at = there(t, x);
    const struct kvt_compute_norm a = {at, at, there(t, weight), n_rows, width, 1e-5f};
    if (!done(t, kvt_cuda_norm(&a, nullptr, &err), err)) return;
    for (int r = 0; r < n_rows; r++) norm_row(&x[(size_t)(r * width)], weight.data(), width, 1e-5f);
    check(t, same_bits(x, back(at, x.size())), "norms", n_rows, width);
}

void test_heads(struct test *t, int n_rows, int size, int n_rot, bool neighbours, bool biased, bool normed) {
    struct kvt_error err = {};
    const int heads[] = {3, 2, 2};
    t->memory.used = 0;
    std::vector<float> x[3], bias[3], norm = numbers(t, (size_t)size, 1);
    std::vector<float> tables = numbers(t, (size_t)(n_rows * n_rot), 1);
    struct kvt_compute_heads a = {};
    a.n_parts = 3, a.n_rows = n_rows, a.eps = 1e-6f, a.tables = there(t, tables), a.n_rot = n_rot;
    a.neighbours = neighbours;
    for (int i = 0; i < 3; i++) {
        x[i] = numbers(t, (size_t)(n_rows * heads[i] * size), 1);
        bias[i] = numbers(t, (size_t)(heads[i] * size), 20);
        a.parts[i].x = there(t, x[i]);
        a.parts[i].n_heads = heads[i];
        a.parts[i].size = size;
        a.parts[i].bias = biased || i == 2 ? there(t, bias[i]) : nullptr;
        a.parts[i].norm = normed && i < 2 ? there(t, norm) : nullptr;
        a.parts[i].turned = i < 2;
    }
    if (!done(t, kvt_cuda_heads(&a, nullptr, &err), err)) return;
    for (int i = 0; i < 3; i++) {
        for (int r = 0; r < n_rows; r++)
            for (int h = 0; h < heads[i]; h++) {
                float *head = &x[i][(size_t)((r * heads[i] + h) * size)];
                for (int c = 0; a.parts[i].bias && c < size; c++) head[c] += bias[i][(size_t)(h * size + c)];
                if (a.parts[i].norm) norm_row(head, norm.data(), size, a.eps);
                if (i < 2) turn_head(head, &tables[(size_t)(r * n_rot)], n_rot, neighbours);
            }
        check(t, same_bits(x[i], back(a.parts[i].x, x[i].size())), "heads", size, i);
    }
}

void test_elements(struct test *t, int n_rows, int width) {
    struct kvt_error err = {};
    const size_t n = (size_t)(n_rows * width);
    for (int biased = 0; biased < 2; biased++) {
        t->memory.used = 0;
        std::vector<float> x = numbers(t, n, 1), h = numbers(t, n, 1), bias = numbers(t, (size_t)width, 1);
        const struct kvt_compute_add a = {there(t, x), there(t, h), biased ? there(t, bias) : nullptr, n_rows, width};
        if (!done(t, kvt_cuda_add(&a, nullptr, &err), err)) return;
        for (size_t i = 0; i < n; i++) x[i] += biased ? h[i] + bias[i % (size_t)width] : h[i];
        check(t, same_bits(x, back(a.x, n)), "sums", n_rows, width);
    }
    t->memory.used = 0;
    std::vector<float> gate = numbers(t, n, 30), up = numbers(t, n, 1);
    const struct kvt_compute_gate a = {there(t, gate), there(t, up), (int64_t)n};
    if (!done(t, kvt_cuda_gate(&a, nullptr, &err), err)) return;
    for (size_t i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + kvt_exp(-gate[i])) * up[i];
    check(t, same_bits(gate, back(a.gate, n)), "gates", n_rows, width);
}

/* A matrix there, and its numbers as they are. */
struct kvt_compute_matrix matrix(struct test *t, int64_t n_in, int64_t n_out, float scale, std::vector<float> *is) {
    const int64_t ld = kvt_compute_ld(n_in);
    std::vector<uint16_t> halves((size_t)(n_out * ld));
    is->assign((size_t)(n_out * n_in), 0);
    for (int64_t o = 0; o < n_out; o++)
        for (int64_t c = 0; c < n_in; c++) {
            halves[(size_t)(o * ld + c)] = kvt_f16_from_f32(kvt_rng_normal(&t->rng) * 0.05f);
            (*is)[(size_t)(o * n_in + c)] = kvt_f32_from_f16(halves[(size_t)(o * ld + c)]) * scale;
        }
    return {device_copy(&t->memory, halves.data(), halves.size()), scale, n_in, n_out, ld};
}

/* Three matrices of one input, of sizes that are no whole steps; and that a row's bits do not depend on how many there are. */
void test_products(struct test *t, int n_rows, int64_t n_in) {
    struct kvt_error err = {};
    const int64_t n_out[] = {37, 8, 21};
    std::vector<float> is[3], x = numbers(t, (size_t)(n_rows * n_in), 1), one[3];
    t->memory.used = 0;
    struct kvt_cuda_products a = {};
    a.n_outputs = 3, a.n_rows = n_rows, a.x = there(t, x);
    for (int i = 0; i < 3; i++) {
        a.w[i] = matrix(t, n_in, n_out[i], i == 1 ? 4.0f : 1.0f, &is[i]);
        a.dst[i] = there(t, std::vector<float>((size_t)(n_rows * n_out[i]), 7));
    }
    if (!done(t, kvt_cuda_products_few(&a, nullptr, &err), err)) return;
    for (int i = 0; i < 3; i++) {
        const std::vector<float> got = back(a.dst[i], (size_t)(n_rows * n_out[i]));
        bool good = true;
        for (int r = 0; r < n_rows; r++)
            for (int64_t o = 0; o < n_out[i]; o++) {
                double sum = 0, size = 0;
                for (int64_t c = 0; c < n_in; c++) {
                    const double p = (double)is[i][(size_t)(o * n_in + c)] * (double)x[(size_t)(r * n_in + c)];
                    sum += p, size += fabs(p);
                }
                good &= fabs((double)got[(size_t)(r * n_out[i] + o)] - sum) <= 1e-6 * size;
            }
        check(t, good, "products", n_rows, (int)n_in);
        one[i].assign(got.end() - n_out[i], got.end());
    }
    a.n_rows = 1, a.x += (n_rows - 1) * n_in;
    if (!done(t, kvt_cuda_products_few(&a, nullptr, &err), err)) return;
    for (int i = 0; i < 3; i++) check(t, same_bits(one[i], back(a.dst[i], one[i].size())), "a row alone", n_rows, i);
}

void test_round(struct test *t, int n_rows, int64_t n_in) {
    struct kvt_error err = {};
    const int64_t ld = kvt_compute_ld(n_in);
    t->memory.used = 0;
    std::vector<float> x = numbers(t, (size_t)(n_rows * n_in), 1);
    for (int r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_in; c++)
            x[(size_t)(r * n_in + c)] *= ldexpf(1, 24 * (r % 9) - 96); /* one is all subnormal */
    for (int64_t c = 0; c < n_in; c++) x[(size_t)c] = 0;
    const std::vector<uint16_t> none((size_t)(n_rows * ld), 0x7777);
    uint16_t *halves = device_copy(&t->memory, none.data(), none.size());
    const std::vector<float> ones((size_t)n_rows, 5);
    const struct kvt_cuda_round a = {halves, there(t, ones), there(t, x), n_rows, n_in, ld};
    if (!done(t, kvt_cuda_round_rows(&a, nullptr, &err), err)) return;
    const std::vector<float> factors = back(a.factors, (size_t)n_rows);
    std::vector<uint16_t> got((size_t)(n_rows * ld));
    device_out(got.data(), halves, got.size() * sizeof(uint16_t));
    bool close = true, padded = true;
    std::vector<float> restored((size_t)(n_rows * n_in));
    for (int r = 0; r < n_rows; r++) {
        float most = 0;
        for (int64_t c = 0; c < n_in; c++) most = fmaxf(most, fabsf(x[(size_t)(r * n_in + c)]));
        for (int64_t c = 0; c < ld; c++) {
            const float h = kvt_f32_from_f16(got[(size_t)(r * ld + c)]);
            if (c >= n_in) {
                padded &= h == 0;
                continue;
            }
            restored[(size_t)(r * n_in + c)] = h;
            const double error = fabs((double)h * (double)factors[(size_t)r] - (double)x[(size_t)(r * n_in + c)]);
            close &= error <= ldexp(fabs((double)x[(size_t)(r * n_in + c)]), -11) + ldexp((double)most, -20);
        }
    }
    check(t, close, "rounded rows", n_rows, (int)n_in);
    check(t, padded, "ends of rounded rows", n_rows, (int)n_in);
    const struct kvt_cuda_restore b = {there(t, restored), a.factors, n_rows, n_in};
    if (!done(t, kvt_cuda_restore_rows(&b, nullptr, &err), err)) return;
    for (size_t i = 0; i < restored.size(); i++) restored[i] *= factors[i / (size_t)n_in];
    check(t, same_bits(restored, back(b.x, restored.size())), "factors", n_rows, (int)n_in);
}

} // namespace

int main() {
    struct test t = {};
    if (!device_open(&t.memory, 64 << 20)) return 77;
    t.rng.state = 7;
    const int widths[] = {16, 40, 384, 1000};
    for (int width : widths) test_norm(&t, 5, width), test_elements(&t, 3, width);
    const int sizes[] = {16, 40, 128};
    for (int size : sizes)
        for (int kind = 0; kind < 8; kind++)
            test_heads(&t, 3, size, kind & 1 ? size : size / 2, kind & 1, kind & 2, kind & 4);
    for (int n = 1; n <= KVT_CUDA_FEW_ROWS; n++)
        for (int64_t n_in : {(int64_t)8, (int64_t)36, (int64_t)300, (int64_t)384}) test_products(&t, n, n_in);
    for (int64_t n_in : {(int64_t)13, (int64_t)384}) test_round(&t, 11, n_in);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
