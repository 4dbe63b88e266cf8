// Memory of other processes.
#pragma once

#include <cstddef>

namespace standin {

// Counts a copy of device memory, to another process's memory or within this process. Aborts if the copy exceeds the other
// process's memory.
void copiedTo(const void* to, size_t bytes);

}  // namespace standin
