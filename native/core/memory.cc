// JavaScript functions that open a device, manage its memory and copy data.
#include "kernels/device/fault.h"
#include "native/addon.h"
#include "native/core/call.h"

#include <memory>
#include <optional>

namespace lockstep {

namespace {

constexpr napi_type_tag kContextTag = {0x6c6f636b73746570, 0x637564615f637478};

// The JavaScript object that owns a context. A type tag distinguishes it from all other objects.
class Holder : public Napi::ObjectWrap<Holder> {
 public:
  explicit Holder(const Napi::CallbackInfo& info) : Napi::ObjectWrap<Holder>(info) {
    try {
      const Napi::Value device = info[0];
      if (!device.IsNumber()) throw Failure{"ARGUMENT", "device is not a number"};
      const double number = device.As<Napi::Number>().DoubleValue();
      if (!(number >= 0 && number < 4096) || number != static_cast<int>(number)) {
        throw Failure{"ARGUMENT", "device is not a non-negative integer"};
      }
      context_ = std::make_unique<Context>(static_cast<int>(number));
      info.This().As<Napi::Object>().TypeTag(&kContextTag);
    } catch (const Failure& failure) {
      throw errorOf(info.Env(), failure);
    }
  }

  Context& context() { return *context_; }

 private:
  std::unique_ptr<Context> context_;
};

std::string hexOf(const cudaUUID_t& uuid) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : uuid.bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// The number of GPUs and the properties of each.
Napi::Value Devices(const Napi::CallbackInfo& info) {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();
    throw Failure{"BACKEND", std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error)};
  }
  Napi::Array devices = Napi::Array::New(info.Env(), count);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    ignore(cudaGetDeviceProperties(&properties, i));
    Napi::Object device = Napi::Object::New(info.Env());
    device.Set("name", properties.name);
    device.Set("major", properties.major);
    device.Set("minor", properties.minor);
    device.Set("multiprocessors", properties.multiProcessorCount);
    device.Set("bytes", static_cast<double>(properties.totalGlobalMem));
    device.Set("uuid", hexOf(properties.uuid));
    devices.Set(i, device);
  }
  return devices;
}

Napi::Value Versions(const Napi::CallbackInfo& info) {
  int runtime = 0;
  int driver = 0;
  ignore(cudaRuntimeGetVersion(&runtime));
  ignore(cudaDriverGetVersion(&driver));
  Napi::Object versions = Napi::Object::New(info.Env());
  versions.Set("runtime", runtime);
  versions.Set("driver", driver);
  versions.Set("cublasLt", static_cast<double>(cublasLtGetVersion()));
  versions.Set("architectures", LOCKSTEP_ARCHITECTURES);
  return versions;
}

Napi::Value Close(const Napi::CallbackInfo& info) {
  anyContextIn(info[0]).close();
  return info.Env().Undefined();
}

uint64_t numberIn(const Napi::Value& value, const char* name) {
  if (!value.IsNumber()) throw Failure{"ARGUMENT", std::string(name) + " is not a number"};
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!(number >= 0 && number <= 9007199254740992.0) || number != static_cast<double>(static_cast<uint64_t>(number))) {
    throw Failure{"ARGUMENT", std::string(name) + " is not an integer from 0 to 2^53"};
  }
  return static_cast<uint64_t>(number);
}

Napi::Value Allocate(const Napi::CallbackInfo& info) {
  const uint64_t address = contextIn(info[0]).allocate(numberIn(info[1], "bytes"));
  return Napi::Number::New(info.Env(), static_cast<double>(address));
}

Napi::Value Free(const Napi::CallbackInfo& info) {
  Context& context = anyContextIn(info[0]);
  if (!context.closed()) context.free(numberIn(info[1], "address"));
  return info.Env().Undefined();
}

// Returns cached memory to the device.
Napi::Value Trim(const Napi::CallbackInfo& info) {
  contextIn(info[0]).trim();
  return info.Env().Undefined();
}

// Copies bytes to the device. The source may be shared memory that other threads change meanwhile. Each byte is read
// once, so either its old or its new value is copied.
Napi::Value Write(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  const uint64_t address = numberIn(info[1], "address");
  napi_typedarray_type type;
  size_t bytes = 0;
  void* from = nullptr;
  napi_value buffer;
  // This reads the current length of a resizable buffer. No JavaScript runs between here and the copy.
  if (napi_get_typedarray_info(info.Env(), info[2], &type, &bytes, &from, &buffer, nullptr) != napi_ok ||
      type != napi_uint8_array) {
    throw Failure{"ARGUMENT", "bytes is not a Uint8Array"};
  }
  bool detached = false;
  napi_is_detached_arraybuffer(info.Env(), buffer, &detached);
  if (detached) throw Failure{"ARGUMENT", "the memory of bytes was transferred"};
  void* to = context.range("address", address, bytes);
  if (bytes > 0) context.write(to, from, bytes);
  return info.Env().Undefined();
}

// Creates an ArrayBuffer by JavaScript's constructor, which throws if there is no memory. Node-API's function would end
// the process.
Napi::ArrayBuffer newBuffer(Napi::Env env, uint64_t bytes) {
  Napi::Value result;
  try {
    result =
        env.Global().Get("ArrayBuffer").As<Napi::Function>().New({Napi::Number::New(env, static_cast<double>(bytes))});
  } catch (const Napi::Error& error) {
    throw Failure{"OUT_OF_MEMORY", "the host has no memory for the data to be read: " + error.Message(), bytes, 0};
  }
  if (!result.IsArrayBuffer() || result.As<Napi::ArrayBuffer>().ByteLength() != bytes) {
    throw Failure{"ARGUMENT", "globalThis.ArrayBuffer was replaced"};
  }
  return result.As<Napi::ArrayBuffer>();
}

Napi::Value ReadSync(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  const uint64_t bytes = numberIn(info[2], "bytes");
  const void* from = context.range("address", numberIn(info[1], "address"), bytes);
  Napi::ArrayBuffer buffer = newBuffer(info.Env(), bytes);
  if (bytes > 0) context.read(buffer.Data(), from, bytes);
  return Napi::Uint8Array::New(info.Env(), bytes, buffer, 0);
}

// Waits for an enqueued copy on a thread of Node's thread pool. It keeps the context alive meanwhile.
class Reading : public Napi::AsyncWorker {
 public:
  Reading(Napi::Object holder, Context& context, const void* from, size_t bytes)
      : Napi::AsyncWorker(holder.Env()),
        deferred_(Napi::Promise::Deferred::New(holder.Env())),
        holder_(Napi::Persistent(holder)),
        context_(context),
        result_(Napi::Persistent(newBuffer(holder.Env(), bytes))),
        data_(result_.Value().Data()),
        download_(context.beginRead(data_, from, bytes)) {}

  Napi::Promise promise() const { return deferred_.Promise(); }

  void Execute() override {
    try {
      error_ = context_.awaitRead(download_, data_);
    } catch (const Failure& failure) {
      failure_ = failure;
    }
  }

  void OnOK() override {
    const size_t bytes = download_.bytes;
    context_.endRead(std::move(download_));
    try {
      if (failure_) throw *failure_;
      context_.check("download", error_);
      deferred_.Resolve(Napi::Uint8Array::New(Env(), bytes, result_.Value(), 0));
    } catch (const Failure& failure) {
      deferred_.Reject(errorOf(Env(), failure).Value());
    }
  }

  void OnError(const Napi::Error& error) override {
    context_.endRead(std::move(download_));
    deferred_.Reject(error.Value());
  }

 private:
  Napi::Promise::Deferred deferred_;
  Napi::ObjectReference holder_;
  Context& context_;
  Napi::Reference<Napi::ArrayBuffer> result_;
  void* data_;
  Download download_;
  cudaError_t error_ = cudaSuccess;
  std::optional<Failure> failure_;
};

Napi::Value Read(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  const uint64_t bytes = numberIn(info[2], "bytes");
  const void* from = context.range("address", numberIn(info[1], "address"), bytes);
  auto reading = std::make_unique<Reading>(info[0].As<Napi::Object>(), context, from, bytes);
  const Napi::Promise promise = reading->promise();
  reading->Queue();
  // the worker deletes itself when it has finished
  reading.release();
  return promise;
}

Napi::Value Synchronize(const Napi::CallbackInfo& info) {
  contextIn(info[0]).synchronize();
  return info.Env().Undefined();
}

// Arguments: device, to, from, bytes.
Napi::Value Copy(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  const uint64_t bytes = numberIn(info[3], "bytes");
  void* to = context.range("to", numberIn(info[1], "to"), bytes);
  const void* from = context.range("from", numberIn(info[2], "from"), bytes);
  context.check("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context.stream()));
  return info.Env().Undefined();
}

// Arguments: device, address, bytes. Returns the number of the copy.
Napi::Value HostCopy(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  const uint64_t bytes = numberIn(info[2], "bytes");
  const void* from = context.range("address", numberIn(info[1], "address"), bytes);
  return Napi::Number::New(info.Env(), static_cast<double>(context.copyToHost(from, bytes)));
}

// Arguments: device, copy, address.
Napi::Value HostRestore(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  const uint64_t copy = numberIn(info[1], "copy");
  const uint64_t bytes = context.hostBytes(copy);
  context.restoreFromHost(copy, context.range("address", numberIn(info[2], "address"), bytes));
  return info.Env().Undefined();
}

Napi::Value HostFree(const Napi::CallbackInfo& info) {
  Context& context = anyContextIn(info[0]);
  if (!context.closed()) context.freeHost(numberIn(info[1], "copy"));
  return info.Env().Undefined();
}

Napi::Value CaptureBegin(const Napi::CallbackInfo& info) {
  contextIn(info[0]).beginCapture();
  return info.Env().Undefined();
}

Napi::Value CaptureEnd(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(contextIn(info[0]).endCapture()));
}

Napi::Value CaptureAbort(const Napi::CallbackInfo& info) {
  anyContextIn(info[0]).abortCapture();
  return info.Env().Undefined();
}

Napi::Value GraphLaunch(const Napi::CallbackInfo& info) {
  contextIn(info[0]).launch(numberIn(info[1], "graph"));
  return info.Env().Undefined();
}

Napi::Value GraphDestroy(const Napi::CallbackInfo& info) {
  Context& context = anyContextIn(info[0]);
  if (!context.closed()) context.destroy(numberIn(info[1], "graph"));
  return info.Env().Undefined();
}

Napi::Value SideBegin(const Napi::CallbackInfo& info) {
  contextIn(info[0]).beginSide();
  return info.Env().Undefined();
}

Napi::Value SideEnd(const Napi::CallbackInfo& info) {
  anyContextIn(info[0]).endSide();
  return info.Env().Undefined();
}

Napi::Value Mark(const Napi::CallbackInfo& info) {
  contextIn(info[0]).mark();
  return info.Env().Undefined();
}

Napi::Value arrayOf(Napi::Env env, const std::vector<float>& values) {
  Napi::Float64Array array = Napi::Float64Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

Napi::Value Spans(const Napi::CallbackInfo& info) { return arrayOf(info.Env(), contextIn(info[0]).spans()); }

Napi::Value Waits(const Napi::CallbackInfo& info) { return arrayOf(info.Env(), contextIn(info[0]).waits()); }

// Launches a kernel that fails, for tests of the behaviour after a device error.
Napi::Value Fault(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  context.check("fault", launchFault(context.stream()));
  return info.Env().Undefined();
}

Napi::Value Memory(const Napi::CallbackInfo& info) {
  Context& context = anyContextIn(info[0]);
  context.checkWorkspace();
  const MemoryUse use = context.memory();
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("live", static_cast<double>(use.live));
  result.Set("reserved", static_cast<double>(use.reserved));
  result.Set("blocks", static_cast<double>(use.blocks));
  return result;
}

}  // namespace

Context& anyContextIn(const Napi::Value& value) {
  if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&kContextTag)) {
    throw Failure{"ARGUMENT", "the first argument is not a device that open() returned"};
  }
  return Holder::Unwrap(value.As<Napi::Object>())->context();
}

Context& contextIn(const Napi::Value& value) {
  Context& context = anyContextIn(value);
  context.enter();
  return context;
}

void registerMemory(Napi::Env env, Napi::Object exports) {
  exports.Set("Device", Holder::DefineClass(env, "Device", {}));
  exports.Set("devices", Napi::Function::New<guarded<Devices>>(env));
  exports.Set("versions", Napi::Function::New<guarded<Versions>>(env));
  exports.Set("close", Napi::Function::New<guarded<Close>>(env));
  exports.Set("allocate", Napi::Function::New<guarded<Allocate>>(env));
  exports.Set("free", Napi::Function::New<guarded<Free>>(env));
  exports.Set("trim", Napi::Function::New<guarded<Trim>>(env));
  exports.Set("write", Napi::Function::New<guarded<Write>>(env));
  exports.Set("read", Napi::Function::New<guarded<Read>>(env));
  exports.Set("readSync", Napi::Function::New<guarded<ReadSync>>(env));
  exports.Set("synchronize", Napi::Function::New<guarded<Synchronize>>(env));
  exports.Set("copy", Napi::Function::New<guarded<Copy>>(env));
  exports.Set("hostCopy", Napi::Function::New<guarded<HostCopy>>(env));
  exports.Set("hostRestore", Napi::Function::New<guarded<HostRestore>>(env));
  exports.Set("hostFree", Napi::Function::New<guarded<HostFree>>(env));
  exports.Set("captureBegin", Napi::Function::New<guarded<CaptureBegin>>(env));
  exports.Set("captureEnd", Napi::Function::New<guarded<CaptureEnd>>(env));
  exports.Set("captureAbort", Napi::Function::New<guarded<CaptureAbort>>(env));
  exports.Set("graphLaunch", Napi::Function::New<guarded<GraphLaunch>>(env));
  exports.Set("graphDestroy", Napi::Function::New<guarded<GraphDestroy>>(env));
  exports.Set("sideBegin", Napi::Function::New<guarded<SideBegin>>(env));
  exports.Set("sideEnd", Napi::Function::New<guarded<SideEnd>>(env));
  exports.Set("mark", Napi::Function::New<guarded<Mark>>(env));
  exports.Set("spans", Napi::Function::New<guarded<Spans>>(env));
  exports.Set("waits", Napi::Function::New<guarded<Waits>>(env));
  exports.Set("fault", Napi::Function::New<guarded<Fault>>(env));
  exports.Set("memory", Napi::Function::New<guarded<Memory>>(env));
}

}  // namespace lockstep
