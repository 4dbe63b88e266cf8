// Whether work on different streams is ordered wherever it uses the same block of device memory. Each stream and each event has a
// vector clock; two accesses to a block of which one writes must be ordered by events or by waits of the host. The process is
// ended if they are not.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace standin {

[[noreturn]] void fault(const char* what);

enum class Access { kRead, kWrite };

// Accesses by this thread are on `stream` from now on.
void on(cudaStream_t stream);
// An access to the block of device memory that `data` points into, if there is one.
void accesses(const void* data, Access access);

void allocated(const void* data, size_t bytes, cudaStream_t stream);
void freed(const void* data, cudaStream_t stream);

void records(cudaEvent_t event, cudaStream_t stream);
void forgets(cudaEvent_t event);
void waits(cudaStream_t stream, cudaEvent_t event);

// What any stream is given later comes after what the host has waited for.
void hostWaits(cudaStream_t stream);
void hostWaits(cudaEvent_t event);
void hostWaitsForAll();

}  // namespace standin
