// A CUDA context of one's own. The runtime's is shared by everything in the process, and an error in a kernel breaks it for all;
// an error in a context of one's own breaks that one.
#pragma once

#include <cuda.h>

namespace lockstep {

// Throws Failure BACKEND where the driver refuses.
CUcontext createDriverContext(int device);
// Makes it the one that the runtime uses on this thread.
CUresult useDriverContext(CUcontext context);
void destroyDriverContext(CUcontext context);

}  // namespace lockstep
