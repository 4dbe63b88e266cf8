/**
 * The conversion targets, one row each: the dialect whose quantizer makes codes and scales, the convention that names the
 * tensors, and the declaration in the configuration.
 */

import type { DialectName } from "../../../dialects/table.js";
import type { FileDType } from "../../../io/dtypes.js";
import type { CodeTypeName } from "../../stored/code-types.js";
import type { ConventionName } from "../../stored/conventions.js";
import {
  compressedTensors,
  compressedTensorsMx,
  type Declaration,
  E2M1,
  E4M3,
  modelopt,
  modeloptWithoutGroups,
  torchaoFp8,
  torchaoMx,
  torchaoNv,
  torchaoValue,
} from "../metadata/declarations.js";

/** One row of `TARGETS`. */
export interface Target {
  /**
   * The dialect of the quantizer. Absent if codes and scales can only be repacked from a checkpoint that has the same codes and
   * scales.
   */
  readonly dialect?: DialectName;
  /** Whether `quantizeByGgml` quantizes. For the smallest amaxes, its result differs from the dialect gguf-mxfp4. */
  readonly ggml?: true;
  /** The code type to write, if it is not the code type of the convention. */
  readonly type?: CodeTypeName;
  readonly convention: ConventionName;
  /** The type of scales. `source`: the type of the weight before quantization. */
  readonly scale: FileDType | "source";
  /** The shape of the scale tensor if one scale belongs to the entire weight. */
  readonly tensorScaleShape?: readonly number[];
  /** The shape of the global scale; absent if the target has no global scale. */
  readonly global?: readonly number[];
  /**
   * The layout of block scales, unless they are a plain matrix: `swizzled` tiles of tensor cores, or `reduced`, a shape of the
   * convention's `reducedScales` that only two-dimensional weights have.
   */
  readonly layout?: "swizzled" | "reduced";
  /** Whether the library reads only full blocks. */
  readonly even?: true;
  /** The required divisor of the number of columns, if it is not the group size. */
  readonly columns?: number;
  readonly declaration: Declaration;
}

const MODES = { floor: "FLOOR", rceil: "RCEIL", ceil: "CEIL", even: "EVEN" } as const;

type TorchaoMxName = `torchao-mxfp${4 | 8}-${keyof typeof MODES}`;

/** MXFP8 and MXFP4 of torchao, under each of its scale rounding modes. */
const TORCHAO_MX = Object.fromEntries(
  Object.entries(MODES).flatMap(([name, mode]) => {
    const shared = { scale: "F8_E8M0", layout: "swizzled" } as const;
    return [
      [
        `torchao-mxfp8-${name}`,
        { ...shared, convention: "torchao-mxfp8", declaration: torchaoMx(E4M3, mode) },
      ] as const,
      [
        `torchao-mxfp4-${name}`,
        { ...shared, convention: "torchao-mxfp4", declaration: torchaoMx(E2M1, mode) },
      ] as const,
    ];
  }),
) as Readonly<Record<TorchaoMxName, Target>>;

/** Every quantized form of another library. A row whose name is also the name of a dialect uses the quantizer of that dialect. */
export const TARGETS = {
  "ct-fp8-tensor": {
    convention: "ct-float",
    scale: "source",
    tensorScaleShape: [1],
    declaration: compressedTensors("float-quantized", 8, { strategy: "tensor" }),
  },
  "ct-fp8-channel": {
    convention: "ct-float",
    scale: "source",
    declaration: compressedTensors("float-quantized", 8, { strategy: "channel" }),
  },
  "ct-int8-channel": {
    convention: "ct-int8",
    scale: "source",
    declaration: compressedTensors("int-quantized", 8, { strategy: "channel", type: "int" }),
  },
  "ct-fp8-block": {
    convention: "ct-float",
    scale: "source",
    declaration: compressedTensors("float-quantized", 8, { strategy: "block", block_structure: [128, 128] }),
  },
  "ct-mxfp8": { convention: "ct-mxfp8", scale: "U8", declaration: compressedTensorsMx("mxfp8-quantized", 8) },
  "ct-mxfp6": {
    convention: "ct-mxfp6",
    scale: "U8",
    declaration: compressedTensorsMx("mxfp6-pack-quantized", 6),
  },
  "ct-mxfp4": {
    convention: "ct-mxfp4",
    scale: "U8",
    declaration: compressedTensorsMx("mxfp4-pack-quantized", 4),
  },
  "ct-nvfp4": {
    convention: "ct-nvfp4",
    scale: "F8_E4M3",
    global: [1],
    declaration: compressedTensors("nvfp4-pack-quantized", 4, {
      group_size: 16,
      scale_dtype: "torch.float8_e4m3fn",
      strategy: "tensor_group",
    }),
  },
  "modelopt-fp8": {
    convention: "modelopt-fp8",
    scale: "F32",
    tensorScaleShape: [],
    declaration: modelopt("FP8", 8),
  },
  "modelopt-mxfp8": { convention: "modelopt-mxfp8", scale: "U8", declaration: modelopt("MXFP8", 8, 32) },
  "modelopt-nvfp4": {
    convention: "modelopt-nvfp4",
    scale: "F8_E4M3",
    global: [],
    declaration: modelopt("W4A16_NVFP4", 4, 16),
  },
  "modelopt-mxfp4": {
    convention: "modelopt-mxfp4",
    scale: "U8",
    declaration: modeloptWithoutGroups("mxfp4"),
  },
  "modelopt-fp8-block": {
    convention: "modelopt-fp8",
    scale: "F32",
    layout: "reduced",
    even: true,
    declaration: modeloptWithoutGroups("fp8_pb_wo"),
  },
  "modelopt-int8-row": {
    convention: "modelopt-int8",
    scale: "F32",
    layout: "reduced",
    declaration: modeloptWithoutGroups("W8A16"),
  },
  "deepseek-fp8-block": { convention: "block-fp8", scale: "F32", declaration: { method: "fp8" } },
  "deepseek-ue8m0": {
    convention: "block-fp8",
    scale: "F32",
    declaration: { method: "fp8", scaleFormat: "ue8m0" },
  },
  "deepseek-mxfp4": { convention: "deepseek-v4-fp4", scale: "F8_E8M0", declaration: { method: "fp8" } },
  "transformers-fp8-block": {
    convention: "block-fp8",
    scale: "F32",
    even: true,
    declaration: { method: "fp8" },
  },
  ...TORCHAO_MX,
  "torchao-nvfp4": {
    convention: "torchao-nvfp4-single",
    scale: "F8_E4M3",
    layout: "swizzled",
    declaration: torchaoNv(false),
  },
  "torchao-nvfp4-two-level": {
    convention: "torchao-nvfp4",
    scale: "F8_E4M3",
    global: [],
    layout: "swizzled",
    declaration: torchaoNv(true),
  },
  "torchao-fp8-tensor": {
    convention: "torchao-fp8",
    scale: "F32",
    tensorScaleShape: [1, 1],
    declaration: torchaoFp8(torchaoValue("PerTensor", {}), "whole"),
  },
  "torchao-fp8-row": {
    convention: "torchao-fp8",
    scale: "F32",
    declaration: torchaoFp8(torchaoValue("PerRow", { dim: -1 }), "row"),
  },
  "fbgemm-fp8": {
    convention: "fbgemm-fp8",
    scale: "F32",
    declaration: { method: "fbgemm", quantMethod: "fbgemm_fp8", upperBound: 1200 },
  },
  "gpt-oss": {
    dialect: "gptoss-mxfp4",
    convention: "gpt-oss",
    scale: "U8",
    declaration: { method: "experts", quantMethod: "mxfp4" },
  },
  "gguf-mxfp4": {
    ggml: true,
    convention: "gguf-mxfp4",
    type: "e2m1",
    scale: "F8_E8M0",
    declaration: { method: "gguf", fileType: 38 },
  },
  "gguf-nvfp4": {
    dialect: "modelopt-nvfp4",
    convention: "gguf-nvfp4",
    type: "e2m1",
    scale: "F8_E4M3",
    global: [1],
    columns: 64,
    declaration: { method: "gguf", fileType: 39 },
  },
} as const satisfies Readonly<Record<string, Target>>;

/** The form of another library, by the name of its dialect or of its files. */
export type DialectTarget = keyof typeof TARGETS;
