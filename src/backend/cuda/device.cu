/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: which there are, their memory, and copies on a stream.
 */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/check.cuh"

namespace {

#define STRING_(x) #x
#define STRING(x)  STRING_(x)
const char built_with[] = STRING(__CUDACC_VER_MAJOR__) "." STRING(__CUDACC_VER_MINOR__) " for sm_90a";

enum kvt_status check(cudaError_t error, const char *what, struct kvt_error *err) {
    return kvt_cuda_status(error, what, err);
}

cudaStream_t stream_of(const struct kvt_cuda *cuda) { return static_cast<cudaStream_t>(cuda->stream); }

/* The device is the thread's own while this lives. */
struct Visit {
    int before = -1;
    enum kvt_status status;
    Visit(const struct kvt_cuda *cuda, struct kvt_error *err) { status = kvt_cuda_enter(cuda, &before, err); }
    ~Visit() { kvt_cuda_leave(before); }
};

/* Also what is asked for to learn whether the device can run this build's code. */
__global__ void set_entries(const struct kvt_cuda_entry *entries, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) *entries[i].slot = entries[i].value;
}

} // namespace

extern "C" {

const char *kvt_cuda_built_with(void) { return built_with; }

enum kvt_status kvt_cuda_n_devices(int *out, struct kvt_error *err) {
    int n = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaSuccess && n > 0) {
        *out = n;
        return KVT_OK;
    }
    (void)cudaGetLastError();
    int driver = 0;
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    if (!has_driver) return kvt_fail(err, KVT_ERR_DEVICE, "no CUDA device: this machine has no NVIDIA driver");
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return kvt_fail(err, KVT_ERR_DEVICE, "no CUDA device: the driver shows none");
    return kvt_fail(err, KVT_ERR_DEVICE,
                    "no CUDA device can be used: %s (%s); the driver is for CUDA %d.%d, the build has %s",
                    cudaGetErrorString(error), cudaGetErrorName(error), driver / 1000, driver % 1000 / 10, built_with);
}

enum kvt_status kvt_cuda_describe(struct kvt_cuda_about *out, int device, struct kvt_error *err) {
    cudaDeviceProp found;
    KVT_TRY(check(cudaGetDeviceProperties(&found, device), "reading a device's properties", err));
    struct kvt_cuda_about about = {};
    snprintf(about.name, sizeof about.name, "%.63s", found.name);
    about.major = found.major;
    about.minor = found.minor;
    about.n_multiprocessors = found.multiProcessorCount;
    about.l2_bytes = static_cast<size_t>(found.l2CacheSize);
    about.total_bytes = found.totalGlobalMem;
    *out = about;
    return KVT_OK;
}

static enum kvt_status device_exists(int device, struct kvt_error *err) {
    int n = 0;
    KVT_TRY(kvt_cuda_n_devices(&n, err));
    if (device >= 0 && device < n) return KVT_OK;
    char names[300] = "";
    for (int i = 0; i < n && i < 16; i++) {
        struct kvt_cuda_about about;
        const size_t len = strlen(names);
        if (kvt_cuda_describe(&about, i, nullptr) == KVT_OK && len < sizeof names)
            snprintf(names + len, sizeof names - len, "%s%d (%s)", i ? ", " : "", i, about.name);
    }
    return kvt_fail(err, KVT_ERR_ARG, "there is no CUDA device %d; found: %s", device, names);
}

enum kvt_status kvt_cuda_open(struct kvt_cuda *out, int device, void *stream, struct kvt_error *err) {
    KVT_TRY(device_exists(device, err));
    struct kvt_cuda_about about;
    KVT_TRY(kvt_cuda_describe(&about, device, err));
    struct kvt_cuda cuda = {device, about.n_multiprocessors, stream, stream == nullptr};
    Visit visit(&cuda, err);
    KVT_TRY(visit.status);
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, set_entries);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        return kvt_fail(err, KVT_ERR_UNSUPPORTED,
                        "CUDA device %d, %s, has compute capability %d.%d: this build has code for Hopper (9.0) alone",
                        device, about.name, about.major, about.minor);
    }
    KVT_TRY(check(error, "looking for this build's code", err));
    cudaStream_t own = nullptr;
    if (!stream) KVT_TRY(check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "making a stream", err));
    if (!stream) cuda.stream = own;
    *out = cuda;
    return KVT_OK;
}

void kvt_cuda_close(struct kvt_cuda *cuda) {
    Visit visit(cuda, nullptr);
    if (cuda->owns_stream && cuda->stream) (void)cudaStreamDestroy(stream_of(cuda));
    (void)cudaGetLastError();
    cuda->stream = nullptr;
}

enum kvt_status kvt_cuda_enter(const struct kvt_cuda *cuda, int *before, struct kvt_error *err) {
    int now = -1;
    KVT_TRY(check(cudaGetDevice(&now), "asking for the thread's device", err));
    if (now != cuda->device) KVT_TRY(check(cudaSetDevice(cuda->device), "choosing a device", err));
    *before = now;
    return KVT_OK;
}

void kvt_cuda_leave(int before) {
    int now = -1;
    if (before >= 0 && cudaGetDevice(&now) == cudaSuccess && now != before) (void)cudaSetDevice(before);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

enum kvt_status kvt_cuda_free_bytes(const struct kvt_cuda *cuda, size_t *out, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    size_t free_bytes = 0, total = 0;
    KVT_TRY(check(cudaMemGetInfo(&free_bytes, &total), "asking for free memory", err));
    *out = free_bytes;
    return KVT_OK;
}

enum kvt_status kvt_cuda_take(const struct kvt_cuda *cuda, void **device, size_t bytes, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    void *taken = nullptr;
    const cudaError_t error = cudaMalloc(&taken, bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        size_t free_bytes = 0, total = 0;
        if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
        return kvt_fail(err, KVT_ERR_NOMEM, "CUDA device %d has no %zu bytes: %zu of %zu are free", cuda->device, bytes,
                        free_bytes, total);
    }
    KVT_TRY(check(error, "taking memory", err));
    *device = taken;
    return KVT_OK;
}

void kvt_cuda_give(const struct kvt_cuda *cuda, void *device) {
    if (!device) return;
    Visit visit(cuda, nullptr);
    if (cudaFree(device) != cudaSuccess) (void)cudaGetLastError();
}

enum kvt_status kvt_cuda_take_pinned(const struct kvt_cuda *cuda, void **host, size_t bytes, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    void *taken = nullptr;
    KVT_TRY(check(cudaMallocHost(&taken, bytes), "taking pinned memory", err));
    *host = taken;
    return KVT_OK;
}

void kvt_cuda_give_pinned(const struct kvt_cuda *cuda, void *host) {
    if (!host) return;
    Visit visit(cuda, nullptr);
    if (cudaFreeHost(host) != cudaSuccess) (void)cudaGetLastError();
}

/* ---- on the stream ----------------------------------------------------------------------------------------------------- */

enum kvt_status kvt_cuda_fill(const struct kvt_cuda *cuda, void *device, int byte, size_t bytes,
                              struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    return check(cudaMemsetAsync(device, byte, bytes, stream_of(cuda)), "filling memory", err);
}

enum kvt_status kvt_cuda_copy(const struct kvt_cuda *cuda, void *to, const void *from, size_t bytes,
                              struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(cuda)), "copying", err);
}

enum kvt_status kvt_cuda_pack(const struct kvt_cuda *cuda, void *device, const void *from, size_t row_bytes,
                              ptrdiff_t step, size_t n, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    if (step >= static_cast<ptrdiff_t>(row_bytes))
        return check(cudaMemcpy2DAsync(device, row_bytes, from, static_cast<size_t>(step), row_bytes, n,
                                       cudaMemcpyDefault, stream_of(cuda)),
                     "copying rows", err);
    for (size_t i = 0; i < n; i++)
        KVT_TRY(check(cudaMemcpyAsync(static_cast<char *>(device) + i * row_bytes,
                                      static_cast<const char *>(from) + static_cast<ptrdiff_t>(i) * step, row_bytes,
                                      cudaMemcpyDefault, stream_of(cuda)),
                      "copying rows", err));
    return KVT_OK;
}

enum kvt_status kvt_cuda_take_table(const struct kvt_cuda *cuda, void **device, size_t bytes, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    void *taken = nullptr;
    KVT_TRY(check(cudaMallocAsync(&taken, bytes, stream_of(cuda)), "taking memory for a table", err));
    *device = taken;
    return KVT_OK;
}

void kvt_cuda_give_table(const struct kvt_cuda *cuda, void *device) {
    if (!device) return;
    Visit visit(cuda, nullptr);
    if (cudaFreeAsync(device, stream_of(cuda)) != cudaSuccess) (void)cudaGetLastError();
}

enum kvt_status kvt_cuda_set_entries(const struct kvt_cuda *cuda, const struct kvt_cuda_entry *entries, int n,
                                     struct kvt_error *err) {
    if (n == 0) return KVT_OK;
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    set_entries<<<static_cast<unsigned>((n + 127) / 128), 128, 0, stream_of(cuda)>>>(entries, n);
    return kvt_cuda_launched("writing tables of pages", err);
}

enum kvt_status kvt_cuda_wait(const struct kvt_cuda *cuda, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    return check(cudaStreamSynchronize(stream_of(cuda)), "waiting for the device", err);
}

enum kvt_status kvt_cuda_is_device(const struct kvt_cuda *cuda, const void *pointer, int *out, struct kvt_error *err) {
    Visit visit(cuda, err);
    KVT_TRY(visit.status);
    cudaPointerAttributes found;
    KVT_TRY(check(cudaPointerGetAttributes(&found, pointer), "asking where memory is", err));
    *out = found.type == cudaMemoryTypeManaged || (found.type == cudaMemoryTypeDevice && found.device == cuda->device);
    return KVT_OK;
}
}
