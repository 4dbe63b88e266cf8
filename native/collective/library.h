// NCCL, loaded at run time: the addon is built without it, and works without it. This file declares the types and
// functions that the addon uses. If the compiler finds nccl.h, library.cc checks these declarations against it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

struct ncclComm;

namespace lockstep::nccl {

using Comm = ncclComm*;

enum Result : int { kSuccess = 0, kInProgress = 7 };
enum DataType : int { kBytes = 1, kF16 = 6, kF32 = 7, kBf16 = 9 };
enum Operation : int { kSum = 0 };

// An ncclUniqueId. Every rank that has it can join the communicator.
struct UniqueId {
  char bytes[128];
};

// The fields of ncclConfig_t in NCCL 2.14, with that version. Later libraries use their defaults for newer fields.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  // blocking, because NCCL starts a thread for each group of calls on a non-blocking communicator
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

// Loads NCCL at the first call. The library is the file named by LOCKSTEP_NCCL, or else libnccl.so.2 on the loader's
// search path or in the addon's run path. Throws Failure BACKEND if there is none or it is too old, and ARGUMENT if the
// environment enables NVLS.
const Library& library();

}  // namespace lockstep::nccl
