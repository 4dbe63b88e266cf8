// NCCL, which is found at run time: the addon is built and works without it. Declared here is what the addon calls; where nccl.h
// is known to the compiler, library.cc holds these declarations to it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

struct ncclComm;

namespace lockstep::nccl {

using Comm = ncclComm*;

enum Result : int { kSuccess = 0, kInProgress = 7 };
enum DataType : int { kBytes = 1, kF16 = 6, kF32 = 7, kBf16 = 9 };
enum Operation : int { kSum = 0 };

// Whoever has it may join the communicator that it names.
struct UniqueId {
  char bytes[128];
};

// The fields of NCCL 2.14, and its version; later libraries give all others their defaults.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  // NCCL makes a thread for every group of calls of a communicator that does not block
  int blocking = 1;
};

struct Library {
  int version = 0;
  Result (*getVersion)(int*);
  Result (*getUniqueId)(UniqueId*);
  Result (*commInitRankConfig)(Comm*, int, UniqueId, int, Config*);
  Result (*commDestroy)(Comm);
  Result (*commAbort)(Comm);
  Result (*commGetAsyncError)(Comm, Result*);
  const char* (*getErrorString)(Result);
  const char* (*getLastError)(Comm);
  Result (*groupStart)();
  Result (*groupEnd)();
  Result (*send)(const void*, size_t, DataType, int, Comm, cudaStream_t);
  Result (*recv)(void*, size_t, DataType, int, Comm, cudaStream_t);
  Result (*allGather)(const void*, void*, size_t, DataType, Comm, cudaStream_t);
  Result (*reduceScatter)(const void*, void*, size_t, DataType, Operation, Comm, cudaStream_t);
  Result (*broadcast)(const void*, void*, size_t, DataType, int, Comm, cudaStream_t);
};

// Loads NCCL at the first call: LOCKSTEP_NCCL, or libnccl.so.2 where the loader and the addon's own paths find it. Throws Failure
// BACKEND where there is none or an old one, and ARGUMENT where the environment asks for NVLS.
const Library& library();

}  // namespace lockstep::nccl
