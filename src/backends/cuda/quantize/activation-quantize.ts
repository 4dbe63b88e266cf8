/**
 * The fused activation and quantization on a GPU. One kernel serves quantizers with a given scale; another serves MXFP8 with bf16
 * input. Quantizers that scale by the amax of the whole tensor use an activation kernel that also computes the amax. In all other
 * cases the activation and the quantization run one after the other.
 */
import { blockedRows, hasGivenScale, isSquare } from "../../../formats/block.js";
import { ACTIVATION, SCALE_RULE } from "../../../formats/contract.gen.js";
import { factsOf } from "../../../formats/derive.js";
import type { ElementScalingName } from "../../../formats/element-scalings.js";
import type { ScaleRuleName } from "../../../formats/scale-rules.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../../tensor/shape.js";
import { Tensor } from "../../../tensor/tensor.js";
import type { ActivationQuantizeArgs } from "../../ops.js";
import { runOn } from "../../run.js";
import { runActivationSteps } from "../../steps/activation.js";
import { wantsAmax } from "../../steps/quantize.js";
import {
  launchActivation,
  launchActivationBackward,
  launchGated,
  launchGatedBackward,
} from "../elementwise/activation.js";
import { copyOf } from "../layout/copies.js";
import type { Lowering, LoweringContext } from "../lowering.js";
import { type Declarations, defaulted, group, reads, writes } from "../native-arguments.js";
import { quantizedCopy, SIZE } from "../shared-arguments.js";
import { AMAX_OUT, hasFusedFormat, SCALE_INV } from "./tensor.js";

/**
 * The values to quantize: act(x) for x[rows, columns], or, if `gated`, act(a) * g for x[rows, 2 columns]. With `grad`, the values
 * are the gradient with respect to x.
 */
const SOURCE = {
  source: group("ActivationSource", {
    form: group("GatedForm", {
      x: reads.wide("rows * columns * (gated ? 2 : 1)"),
      "grad?": reads.wide("rows * columns"),
      kind: "activation",
      "alpha?": defaulted("float", "alphaOf(kind)"),
      "limit?": defaulted("float", "INFINITY"),
      "offset?": defaulted("float", "-0.0f"),
      ...SIZE,
    }),
    gated: "flag",
  }),
} as const;

const SIZES = {
  sizes: {
    condition:
      "target.rows == source.form.rows && target.columns == source.form.columns * (source.gated && source.form.grad ? 2 : 1)",
    message: "the result has another size than the values",
  },
} as const;

const COPY = quantizedCopy("storage", "1");

export const ACTIVATION_QUANTIZE_CALLS = {
  /** Casts the f32 values. The launcher returns cudaErrorInvalidValue for formats other than e4m3 and e5m2. */
  activationQuantizeTensor: {
    ...SOURCE,
    target: group("QuantizeTensorParams", {
      ...SIZE,
      word: "word",
      "rowwise?": writes.u8("rows * columns"),
      "columnwise?": writes.u8("rows * columns"),
      ...SCALE_INV,
      scale: reads.f32("1"),
      ...AMAX_OUT,
    }),
    ...SIZES,
  },
  /**
   * Rounds the values to bf16 and quantizes them in 1x32 blocks. The launcher returns cudaErrorInvalidValue for other formats and
   * rules than `MX_KERNEL`, for inputs that are not bf16, and if `columns` is not a multiple of 32.
   */
  activationQuantizeMx: {
    ...SOURCE,
    target: group("QuantizeMxParams", {
      ...SIZE,
      word: "word",
      rule: "scaleRule",
      "rowwise?": COPY,
      "columnwise?": COPY,
    }),
    ...SIZES,
  },
} as const satisfies Declarations;

export const activationQuantize: Lowering<"activationQuantize"> = {
  run(context, args) {
    const { addon, device } = context;
    const { spec, scale, amaxRecord, rowwise, columnwise } = args;
    const { word } = factsOf(spec.format);
    const [rows, columns] = sizeOf(args);
    if (hasGivenScale(spec) && hasFusedFormat(spec) && scale) {
      addon.activationQuantizeTensor(device, {
        source: source(args),
        target: {
          rows,
          columns,
          word,
          rowwise: rowwise?.data,
          columnwise: columnwise?.data,
          rowwiseScaleInv: rowwise?.scaleInv,
          columnwiseScaleInv: columnwise?.scaleInv,
          scale,
          amaxOut: amaxRecord,
        },
      });
    } else if (hasMxKernel(args)) {
      addon.activationQuantizeMx(device, {
        source: source(args),
        target: {
          rows,
          columns,
          word,
          rule: SCALE_RULE[MX_KERNEL.rule],
          rowwise: rowwise && copyOf(rowwise),
          columnwise: columnwise && copyOf(columnwise),
        },
      });
    } else if (wantsAmax(args)) {
      measureActivation(context, args);
    } else {
      runActivationSteps(args);
    }
  },
};

/**
 * Computes the activation, rounded to its dtype, and the amax of its f32 values before this rounding. Then quantizes the
 * activation with this amax (numerics.md §7.3).
 */
function measureActivation(context: LoweringContext, args: ActivationQuantizeArgs): void {
  const { kind, gated, clamp, grad, ...quantization } = args;
  const { x } = quantization;
  const { backend } = x;
  using _scope = new Scope();
  const [out, amax] = [new Tensor(backend, (grad ?? x).dtype, sizeOf(args)), new Tensor(backend, "f32", [1])];
  const form = { x, kind, clamp, out };
  if (gated && grad) launchGatedBackward(context, { ...form, grad }, amax);
  else if (gated) launchGated(context, form, amax);
  else if (grad) launchActivationBackward(context, { x, kind, grad, out }, amax);
  else launchActivation(context, { x, kind, out }, amax);
  runOn(backend, "quantize", { ...quantization, x: out, amax });
}

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
  const form = {
    x,
    grad,
    kind: ACTIVATION[kind],
    alpha: clamp?.alpha,
    limit: clamp?.limit,
    offset: clamp?.offset,
    rows,
    columns: gated ? columns / 2 : columns,
  };
  return { form, gated };
}

/** Returns the size of the result. A gradient has the size of x. */
function sizeOf({ x, grad, gated }: ActivationQuantizeArgs): readonly [rows: number, columns: number] {
  const [rows, columns] = asMatrix(x.shape);
  return [rows, gated && !grad ? columns / 2 : columns];
}
