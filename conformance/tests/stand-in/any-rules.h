// Quantization by the kernels themselves, on the CPU, where they serve any scale rule.
#pragma once

#include "kernels/quantize/group.gen.h"
#include "kernels/quantize/mx/mx.h"
#include "kernels/quantize/nvfp4/nvfp4.h"

namespace standin {

// Whether only the kernel for any rule supports a quantization's rule, scaling or rounding, and this kernel exists for it.
bool isAnyRule(const lockstep::QuantizeMxParams& p);
void quantizesMx(const lockstep::QuantizeMxParams& p);

// Runs the kernels of launchNvfp4Any, with an amax of the source by a loop.
void quantizesNvfp4(const lockstep::QuantizeNvfp4Params& p);

// Runs the kernels of launchQuantizeGroup.
void quantizesGroup(const lockstep::QuantizeGroupParams& p);

}  // namespace standin
