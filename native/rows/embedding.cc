// Embedding lookup and the gradient of the table.
#include "kernels/rows/embedding.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// The last id that an i32 can be.
constexpr uint64_t kLastId = 0x7fffffff;

void Embedding(const Call<calls::Embedding>& call) {
  const uint64_t count = call.count("count");
  const uint64_t vocabulary = call.count("vocabulary");
  const uint64_t columns = call.count("columns");
  EmbeddingParams p{};
  p.tableType = call.wide("tableType");
  p.table = call.pointer("table", bytesOf(product({vocabulary, columns}), bitsOf(p.tableType)));
  p.ids = call.pointer<int32_t>("ids", bytesOf(count, 32));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(product({count, columns}), bitsOf(p.outType)));
  p.count = static_cast<int64_t>(count);
  p.vocabulary = static_cast<int64_t>(vocabulary);
  p.first = static_cast<int64_t>(call.count("first"));
  p.whole = static_cast<int64_t>(call.count("whole"));
  p.columns = static_cast<int64_t>(columns);
  call.check("embedding", launchEmbedding(p, call.stream()));
}

void EmbeddingBackward(const Call<calls::EmbeddingBackward>& call) {
  const uint64_t count = call.bounded("count", 0xffffffff);
  const uint64_t vocabulary = call.count("vocabulary");
  const uint64_t columns = call.count("columns");
  EmbeddingBackwardParams p{};
  p.gradType = call.wide("gradType");
  p.grad = call.pointer("grad", bytesOf(product({count, columns}), bitsOf(p.gradType)));
  p.ids = call.pointer<int32_t>("ids", bytesOf(count, 32));
  p.outType = call.wide("outType");
  p.out = call.pointer("out", bytesOf(product({vocabulary, columns}), bitsOf(p.outType)));
  p.starts = call.workspace<uint32_t>(bytesOf(vocabulary + 1 + count, 32));
  p.positions = p.starts + vocabulary + 1;
  p.count = static_cast<int64_t>(count);
  p.vocabulary = static_cast<int64_t>(vocabulary);
  p.first = static_cast<int32_t>(call.bounded("first", kLastId));
  p.columns = static_cast<int64_t>(columns);
  call.check("embeddingBackward", launchEmbeddingBackward(p, call.stream()));
}

}  // namespace

void registerEmbedding(Napi::Env env, Napi::Object exports) {
  expose<Embedding>(env, exports);
  expose<EmbeddingBackward>(env, exports);
}

}  // namespace lockstep
