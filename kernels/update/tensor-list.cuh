// Lists of tensors that one launch works on. A list is a parameter of its kernel, so a captured graph contains it. Each tensor
// is divided into tiles, one per block; a block finds its tensor by the number of its tile among those of all tensors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/device.cuh"

namespace lockstep {

// The number of tensors of one launch, if there are few and at most. More tensors take several launches.
constexpr int kFewTensors = 32;
constexpr int kManyTensors = 512;
// The maximum number of chunks of tiles, for each of which a list contains the first tensor.
constexpr int kChunks = 256;
// The maximum size of a kernel's parameters in bytes.
constexpr size_t kMaxParameterBytes = 32764;

// `Row` describes a tensor.
template <typename Row, int capacity>
struct TensorList {
  static constexpr int kCapacity = capacity;

  Row rows[capacity];
  // The first tile of each tensor.
  uint32_t firstTiles[capacity];
  // A chunk is 2^chunkShift tiles. The tensor of the first tile of each chunk, and at the end the last tensor. A block reads them
  // instead of searching all tensors, because each step of a search waits for memory.
  uint16_t firstRows[kChunks + 1];
  int chunkShift;
  int size;
};

// A tile: the index of its tensor in the list, and its number in the tensor.
struct TileIndex {
  int row;
  uint32_t tile;
};

// Returns the tile of this block.
template <typename List>
__device__ inline TileIndex tileOfBlock(const List& list) {
  const uint32_t chunk = blockIdx.x >> list.chunkShift;
  int row = list.firstRows[chunk];
  for (int last = list.firstRows[chunk + 1]; row < last;) {
    const int middle = (row + last + 1) / 2;
    if (list.firstTiles[middle] <= blockIdx.x) {
      row = middle;
    } else {
      last = middle - 1;
    }
  }
  return {row, blockIdx.x - list.firstTiles[row]};
}

// Divides the tiles of a list into chunks.
template <typename List>
void setChunks(List& list, uint32_t tileCount) {
  list.chunkShift = 0;
  while (((tileCount - 1) >> list.chunkShift) >= static_cast<uint32_t>(kChunks)) ++list.chunkShift;
  const uint32_t chunks = ((tileCount - 1) >> list.chunkShift) + 1;
  int row = 0;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    while (row + 1 < list.size && list.firstTiles[row + 1] <= chunk << list.chunkShift) ++row;
    list.firstRows[chunk] = static_cast<uint16_t>(row);
  }
  list.firstRows[chunks] = static_cast<uint16_t>(list.size - 1);
}

// Divides tensors among launches. `tiles` returns the number of tiles of a tensor. `add` appends a tensor to the list, and
// returns false if the list has no place for it. `launch` launches a kernel with a list and its number of tiles. Tensors
// without tiles are left out.
template <typename List, typename Tensors, typename Tiles, typename Add, typename Launch>
cudaError_t launchLists(const Tensors& tensors, Tiles tiles, Add add, Launch launch) {
  static_assert(sizeof(List) <= kMaxParameterBytes);
  List list;
  uint32_t tileCount = 0;
  list.size = 0;
  const auto flush = [&] {
    if (list.size == 0) return cudaSuccess;
    setChunks(list, tileCount);
    launch(list, tileCount);
    list.size = 0;
    tileCount = 0;
    return cudaGetLastError();
  };
  for (const auto& tensor : tensors) {
    const int64_t count = tiles(tensor);
    if (count == 0) continue;
    const bool isFull = list.size == List::kCapacity || count > int64_t{INT32_MAX} - tileCount;
    if (isFull || !add(list, tensor)) {
      if (const cudaError_t error = flush(); error != cudaSuccess) return error;
      add(list, tensor);
    }
    list.firstTiles[list.size++] = tileCount;
    tileCount += static_cast<uint32_t>(count);
  }
  return flush();
}

}  // namespace lockstep
