/**
 * The fused activation and quantization on a GPU. One kernel serves quantizers with a given scale, and another MXFP8 of bf16
 * input. In all other cases the activation and the quantization run one after the other.
 */
import { blockedRows, hasGivenScale, isSquare } from "../../../formats/block.js";
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { factsOf } from "../../../formats/derive.js";
import type { ElementScalingName } from "../../../formats/element-scalings.js";
import type { ScaleRuleName } from "../../../formats/scale-rules.js";
import { asMatrix, type WideDType } from "../../../tensor/shape.js";
import type { ActivationQuantizeArgs } from "../../ops.js";
import { runActivationSteps } from "../../steps/activation.js";
import { copiesOf, plainCopiesOf } from "../layout/copies.js";
import { addressOf, type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { CLAMP, COPIES, DELAYED, PLAIN_COPIES, SOURCE } from "../shared-arguments.js";
import { hasFusedFormat } from "./tensor.js";

const ACTIVATED = { ...SOURCE, gated: "flag", kind: "activation", "clamp?": CLAMP, word: "word" } as const;

export const ACTIVATION_QUANTIZE_CALLS = {
  activationQuantizeTensor: {
    ...ACTIVATED,
    "grad?": { data: "pointer", type: "wide" },
    ...PLAIN_COPIES,
    ...DELAYED,
  },
  activationQuantizeMx: { ...ACTIVATED, "grad?": { data: "pointer", type: "wide" }, ...COPIES },
} as const satisfies Declarations;

export const activationQuantize: Lowering<"activationQuantize"> = {
  run({ addon, device }, args) {
    const { spec, scale, amaxRecord } = args;
    if (hasGivenScale(spec) && hasFusedFormat(spec) && scale) {
      addon.activationQuantizeTensor(device, {
        word: factsOf(spec.format).word,
        ...plainCopiesOf(args),
        scale: scale.address,
        amaxRecord: addressOf(amaxRecord),
        ...source(args),
      });
    } else if (hasMxKernel(args)) {
      const { word } = factsOf(spec.format);
      addon.activationQuantizeMx(device, { word, ...source(args), ...copiesOf(args) });
    } else {
      runActivationSteps(args);
    }
  },
};

/** The scale rule, the element scaling and the input dtype that the MX kernel supports. */
const MX_KERNEL: {
  readonly rule: ScaleRuleName;
  readonly scaling: ElementScalingName;
  readonly dtype: WideDType;
} = { rule: "e8m0Up", scaling: "multiply", dtype: "bf16" };

/**
 * Whether the MX kernel supports the arguments. The quantizer must have the scale rule, the element scaling and an element format
 * of the kernel and 1x32 blocks, and round to nearest, the inputs must be bf16, the rows must fill whole blocks, and the number
 * of columns (of each half, if gated) must be a multiple of 32.
 */
function hasMxKernel({ x, grad, gated, spec }: ActivationQuantizeArgs): boolean {
  const block = gated ? 64 : 32;
  const [rows, columns] = asMatrix(x.shape);
  const fits = columns % block === 0 && rows === blockedRows(spec, rows);
  const isRead = [x, grad].every((each) => !each || each.dtype === MX_KERNEL.dtype);
  const scales = spec.scaleRule === MX_KERNEL.rule && spec.elementScaling === MX_KERNEL.scaling;
  const rounds = scales && hasFusedFormat(spec) && !spec.stochastic;
  return rounds && !isSquare(spec.tile) && isRead && fits;
}

/** Returns the arguments of the activation. `rows` and `columns` are the size of x or, if gated, of each half of x. */
function source({ x, grad, gated, kind, clamp }: ActivationQuantizeArgs) {
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    grad: grad && { data: grad.address, type: wideOf(grad) },
    rows,
    columns: gated ? columns / 2 : columns,
    gated,
    kind: ACTIVATION[kind],
    clamp,
  };
}
