// Tables by which C++ is generated from declarations of the addon's calls (src/backends/cuda/native-arguments.ts).

/** The functions that sizes and conditions may call, and the headers that define them. */
export const FUNCTIONS = {
  alphaOf: "kernels/elementwise/activation.h",
  blockScaleElements: "native/layout/extents.h",
  chunksOf: "kernels/rows/column-sum.h",
  codeBits: "kernels/quantize/dequantize.h",
  coverCodes: "native/layout/placement.h",
  gemmResultWidth: "kernels/gemm/epilogue.h",
  operandWidth: "kernels/gemm/operand.h",
  squarePieces: "kernels/update/square-piece.h",
  packedElements: "native/layout/packed-elements.h",
  rowBytes: "native/layout/extents.h",
  stridedElements: "native/layout/extents.h",
  sumElements: "native/layout/extents.h",
};

/** The C++ type of an argument of each kind, and its default. */
export const KINDS = {
  count: ["int64_t", "0"],
  word: ["uint32_t", "0"],
  int: ["int32_t", "0"],
  float: ["float", "0"],
  flag: ["bool", "false"],
  wide: ["Wide", "Wide::kF32"],
  rounding: ["Rounding", "Rounding::kTiesToEven"],
  overflow: ["Overflow", "Overflow::kSaturate"],
  activation: ["Activation", "Activation::kGelu"],
  scaleRule: ["ScaleRule", "ScaleRule::kF32"],
  staging: ["Staging", "Staging::kPlain"],
};

/** The C++ type of an element, and its bits; `name` stands for a field of the call's parameters. */
export const ELEMENTS = {
  wide: { type: "void", bits: ({ name, of }) => `bitsOf(${of ?? name}Type)` },
  codes: { type: "void", bits: () => "storageBits(word)" },
  storage: { type: "uint8_t", bits: () => "storageBits(word)" },
  f32: { type: "float", bits: () => "32" },
  i32: { type: "int32_t", bits: () => "32" },
  u32: { type: "uint32_t", bits: () => "32" },
  u8: { type: "uint8_t", bits: () => "8" },
  u4: { type: "uint8_t", bits: () => "4" },
  bf16: { type: "uint16_t", bits: () => "16" },
  bytes: { type: "void", bits: () => "8" },
  bits: { type: "void", bits: ({ of }) => of },
};

const RANDOM = {
  header: "kernels/core/random.cuh",
  reader: "native/core/random.h",
  read: () => "readRandom(call)",
};

/**
 * The structs of groups that are written by hand: their header, and the function that reads them, with its header. Without a
 * function, the binding reads each field. A struct with `hasMemory` is read after the scalars, on which its size may depend.
 */
export const STRUCTS = {
  RandomSource: RANDOM,
  Philox: RANDOM,
  MatrixPart: { header: "kernels/core/matrix-part.h" },
  GatedForm: { header: "kernels/elementwise/gated.h" },
  ScalePlacement: {
    header: "kernels/layout/placement.h",
    reader: "native/layout/placement.h",
    read: (path, reading) => `readPlacement(call, "${path}", ${reading})`,
    hasMemory: true,
  },
};
