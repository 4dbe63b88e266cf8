// Detects races: two accesses to the same block of device memory, of which one is a write, must be ordered by events or
// by waits of the host. Each stream and each event has a vector clock. The process is aborted at the first race.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace standin {

[[noreturn]] void fault(const char* what);

enum class Access { kRead, kWrite };

// Sets the stream of this thread's following accesses.
void on(cudaStream_t stream);
// Records an access to the block of device memory that contains `data`, if there is one.
void accesses(const void* data, Access access);

void allocated(const void* data, size_t bytes, cudaStream_t stream);
void freed(const void* data, cudaStream_t stream);

void records(cudaEvent_t event, cudaStream_t stream);
void forgets(cudaEvent_t event);
void waits(cudaStream_t stream, cudaEvent_t event);

// Makes all work that is enqueued later, on any stream, ordered after the work of `stream`, because the host has waited
// for it.
void hostWaits(cudaStream_t stream);
void hostWaits(cudaEvent_t event);
void hostWaitsForAll();

}  // namespace standin
