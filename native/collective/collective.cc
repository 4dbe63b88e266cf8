// JavaScript functions that open NCCL communicators and exchange data through them.
#include <cstring>

#include "native/addon.h"
#include "native/collective/communicator.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

template <typename Declared>
Communicator& commOf(const Call<Declared>& call) {
  return communicatorsOf(call.context()).at(call.count("comm"));
}

template <typename Declared>
int rankIn(const Call<Declared>& call, typename Call<Declared>::Count name) {
  return static_cast<int>(call.bounded(name, static_cast<uint64_t>(commOf(call).size() - 1)));
}

// Returns the argument "peer", which must not be this rank.
template <typename Declared>
int peerIn(const Call<Declared>& call) {
  const int peer = rankIn(call, "peer");
  if (peer == commOf(call).rank()) throw Failure{"ARGUMENT", "peer is this rank itself"};
  return peer;
}

template <typename Declared>
Communicator& commForWork(const Call<Declared>& call) {
  call.context().requireNoCapture("ranks exchange");
  return commOf(call);
}

void NcclBegin(const Call<calls::NcclBegin>& call) { commForWork(call).begin(); }
void NcclEnd(const Call<calls::NcclEnd>& call) { commForWork(call).end(); }
void NcclExchange(const Call<calls::NcclExchange>& call) { commForWork(call).exchange(); }

void NcclSend(const Call<calls::NcclSend>& call) {
  const uint64_t bytes = call.count("bytes");
  commForWork(call).send(call.bytesAt("x", bytes), bytes, peerIn(call));
}

void NcclReceive(const Call<calls::NcclReceive>& call) {
  const uint64_t bytes = call.count("bytes");
  commForWork(call).receive(call.bytesAt("out", bytes), bytes, peerIn(call));
}

void NcclAllGather(const Call<calls::NcclAllGather>& call) {
  Communicator& comm = commForWork(call);
  const uint64_t bytes = call.count("bytes");
  const void* x = call.bytesAt("x", bytes);
  comm.allGather(x, call.bytesAt("out", product({bytes, static_cast<uint64_t>(comm.size())})), bytes);
}

nccl::DataType typeOf(Wide type) {
  return type == Wide::kF32 ? nccl::kF32 : type == Wide::kBf16 ? nccl::kBf16 : nccl::kF16;
}

void NcclReduceScatter(const Call<calls::NcclReduceScatter>& call) {
  Communicator& comm = commForWork(call);
  const Wide type = call.wide("type");
  const uint64_t count = call.count("count");
  const uint64_t totalCount = product({count, static_cast<uint64_t>(comm.size())});
  const void* x = call.pointer("x", bytesOf(totalCount, bitsOf(type)));
  comm.reduceScatter(x, call.pointer("out", bytesOf(count, bitsOf(type))), count, typeOf(type));
}

void NcclBroadcast(const Call<calls::NcclBroadcast>& call) {
  const uint64_t bytes = call.count("bytes");
  const void* x = call.bytesAt("x", bytes);
  commForWork(call).broadcast(x, call.bytesAt("out", bytes), bytes, rankIn(call, "root"));
}

Napi::Value NcclVersion(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), nccl::library().version);
}

Napi::Value NcclId(const Napi::CallbackInfo& info) {
  nccl::UniqueId id;
  if (const nccl::Result result = nccl::library().getUniqueId(&id); result != nccl::kSuccess) {
    throw Failure{"BACKEND", std::string("ncclGetUniqueId: ") + nccl::library().getErrorString(result)};
  }
  Napi::Uint8Array bytes = Napi::Uint8Array::New(info.Env(), sizeof(id));
  std::memcpy(bytes.Data(), &id, sizeof(id));
  return bytes;
}

uint64_t integerIn(const Napi::Value& value, const char* name, double last) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
  if (number >= 0 && number <= last && number == static_cast<double>(static_cast<uint64_t>(number))) {
    return static_cast<uint64_t>(number);
  }
  throw Failure{"ARGUMENT", std::string(name) + " is not an integer from 0 to " + std::to_string(last)};
}

// Returns the elements of a typed array. The caller must keep the array alive while it uses them.
void* elementsOf(const Napi::Value& value, const char* name, napi_typedarray_type expectedType, size_t minLength) {
  napi_typedarray_type type;
  size_t length = 0;
  void* data = nullptr;
  if (napi_get_typedarray_info(value.Env(), value, &type, &length, &data, nullptr, nullptr) != napi_ok ||
      type != expectedType || length < minLength || !data) {
    throw Failure{"ARGUMENT",
                  std::string(name) + " is not a typed array of " + std::to_string(minLength) + " elements"};
  }
  return data;
}

constexpr double kMaxRanks = 65536;
constexpr double kMaxInt32 = 2147483647;

// Arguments: device, id, rank, size, failed, timeoutMs.
Napi::Value NcclOpen(const Napi::CallbackInfo& info) {
  Context& context = contextIn(info[0]);
  context.requireNoCapture("a communicator is opened");
  CommOptions options;
  std::memcpy(&options.id, elementsOf(info[1], "id", napi_uint8_array, sizeof(options.id)), sizeof(options.id));
  options.size = static_cast<int>(integerIn(info[3], "size", kMaxRanks));
  options.rank = static_cast<int>(integerIn(info[2], "rank", options.size - 1.0));
  options.failed = static_cast<int32_t*>(elementsOf(info[4], "failed", napi_int32_array, 1));
  // this reference keeps the array's memory alive, because another thread writes to it
  auto arrayReference = std::make_shared<Napi::ObjectReference>(Napi::Persistent(info[4].As<Napi::Object>()));
  options.timeout = std::chrono::milliseconds(integerIn(info[5], "timeoutMs", kMaxInt32));
  return Napi::Number::New(info.Env(), static_cast<double>(communicatorsOf(context).open(options, arrayReference)));
}

Napi::Value NcclState(const Napi::CallbackInfo& info) {
  Context& context = anyContextIn(info[0]);
  std::string message;
  const CommState state = communicatorsOf(context).at(integerIn(info[1], "comm", kMaxInt32)).state(&message);
  if (state == CommState::kWorks) return info.Env().Undefined();
  constexpr const char* kNames[] = {"works", "told", "late", "broken", "closed"};
  Napi::Object end = Napi::Object::New(info.Env());
  end.Set("why", kNames[static_cast<int>(state)]);
  end.Set("message", message);
  return end;
}

Napi::Value NcclClose(const Napi::CallbackInfo& info) {
  Context& context = anyContextIn(info[0]);
  if (!context.closed()) {
    context.enter();
    communicatorsOf(context).close(integerIn(info[1], "comm", kMaxInt32), info[2].ToBoolean());
  }
  return info.Env().Undefined();
}

}  // namespace

void registerCollective(Napi::Env env, Napi::Object exports) {
  expose<NcclBegin>(env, exports);
  expose<NcclEnd>(env, exports);
  expose<NcclSend>(env, exports);
  expose<NcclReceive>(env, exports);
  expose<NcclExchange>(env, exports);
  expose<NcclAllGather>(env, exports);
  expose<NcclReduceScatter>(env, exports);
  expose<NcclBroadcast>(env, exports);
  exports.Set("ncclVersion", Napi::Function::New<guarded<NcclVersion>>(env));
  exports.Set("ncclId", Napi::Function::New<guarded<NcclId>>(env));
  exports.Set("ncclOpen", Napi::Function::New<guarded<NcclOpen>>(env));
  exports.Set("ncclState", Napi::Function::New<guarded<NcclState>>(env));
  exports.Set("ncclClose", Napi::Function::New<guarded<NcclClose>>(env));
}

}  // namespace lockstep
