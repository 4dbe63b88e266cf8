#include "native/collective/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "native/core/failure.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
static_assert(sizeof(ncclUniqueId) == sizeof(lockstep::nccl::UniqueId));
static_assert(ncclSuccess == 0 && ncclInProgress == 7 && ncclSum == 0);
static_assert(ncclUint8 == 1 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclBfloat16 == 9);
static_assert(offsetof(ncclConfig_t, magic) == offsetof(lockstep::nccl::Config, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(lockstep::nccl::Config, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(lockstep::nccl::Config, blocking));
#endif

namespace lockstep::nccl {

namespace {

// The first version with non-blocking communicators that can be aborted at any time.
constexpr int kMinVersion = 21800;

std::string versionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Disables NVLS (NVLink SHARP): the switch adds in an unknown order, and NVLS needs NVLink multicast, which this library does not
// use.
void forbidNvls() {
  constexpr const char* kName = "NCCL_NVLS_ENABLE";
  const char* value = std::getenv(kName);
  if (value && std::string(value) != "0") {
    throw Failure{"ARGUMENT",
                  std::string(kName) + " is " + value +
                      " in the environment; with NVLS the order of sums is unknown, and it needs multicast, "
                      "which stays off: unset it, or set it to 0"};
  }
  setenv(kName, "0", 1);
}

Library load() {
  forbidNvls();
  const char* configuredPath = std::getenv("LOCKSTEP_NCCL");
  const char* path = configuredPath && *configuredPath ? configuredPath : "libnccl.so.2";
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    throw Failure{"BACKEND", std::string("NCCL is not here: ") + dlerror() +
                                 "; install it where the loader finds it, or name its libnccl.so.2 in LOCKSTEP_NCCL"};
  }
  Library library;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = dlsym(handle, name);
    if (!symbol) throw Failure{"BACKEND", std::string(path) + " has no " + name + "; NCCL 2.18 or later is needed"};
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(library.getVersion, "ncclGetVersion");
  if (library.getVersion(&library.version) != kSuccess || library.version < kMinVersion) {
    throw Failure{"BACKEND",
                  std::string(path) + " is NCCL " + versionText(library.version) + "; 2.18 or later is needed"};
  }
  find(library.getUniqueId, "ncclGetUniqueId");
  find(library.commInitRankConfig, "ncclCommInitRankConfig");
  find(library.commDestroy, "ncclCommDestroy");
  find(library.commAbort, "ncclCommAbort");
  find(library.commGetAsyncError, "ncclCommGetAsyncError");
  find(library.getErrorString, "ncclGetErrorString");
  find(library.getLastError, "ncclGetLastError");
  find(library.groupStart, "ncclGroupStart");
  find(library.groupEnd, "ncclGroupEnd");
  find(library.send, "ncclSend");
  find(library.recv, "ncclRecv");
  find(library.allGather, "ncclAllGather");
  find(library.reduceScatter, "ncclReduceScatter");
  find(library.broadcast, "ncclBroadcast");
  return library;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace lockstep::nccl
