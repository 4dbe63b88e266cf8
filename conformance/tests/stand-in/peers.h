// Memory of other processes.
#pragma once

#include <cstddef>

namespace standin {

// Counts a copy, if it is to memory of another process. Aborts if it goes beyond that.
void copiedTo(const void* to, size_t bytes);

}  // namespace standin
