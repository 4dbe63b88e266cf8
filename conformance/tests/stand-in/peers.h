// Memory of other processes.
#pragma once

#include <cstddef>

namespace standin {

// Counts a copy of device memory, to memory of another process or within this one. Aborts if it goes beyond the former.
void copiedTo(const void* to, size_t bytes);

}  // namespace standin
