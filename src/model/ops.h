/* SPDX-License-Identifier: Apache-2.0
 *
 * The small f32 operations between the matrix products. Plain C that compilers vectorise, with sums in a fixed order of
 * lanes: the same bits on every machine. They are a few per cent of a forward pass even at the baseline instruction set,
 * so there are no levels here. Source and destination may be equal, not overlap otherwise.
 */
#ifndef MODEL_OPS_H
#define MODEL_OPS_H

/* dst[i] = x[i] * weight[i] / sqrt(mean of x^2 + eps) */
void kvt_rms_norm(float *dst, const float *x, const float *weight, int n, float eps);

/* dst[i] += x[i] */
void kvt_add(float *dst, const float *x, int n);

/* gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)) */
void kvt_swiglu(float *gate, const float *up, int n);

/* dst[i] = exp((x[i] - max) * scale), for x[i] <= max and scale > 0: relative error below 3e-7 for results above 1e-37, 0
 * for smaller ones, for -inf and for NaN. */
void kvt_exp_below(float *dst, const float *x, int n, float max, float scale);

#endif
