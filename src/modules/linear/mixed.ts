/**
 * The forward and backward pass of a linear layer under a custom recipe that makes the copies of an operand by different
 * quantizers, or keeps them in high precision.
 */
import type { ProcessGroup } from "../../collectives/group.js";
import type { DatapathFamily } from "../../formats/datapath.js";
import { plainDatapath } from "../../functional/datapath.js";
import { castTo } from "../../ops/cast/cast.js";
import { gemm } from "../../ops/gemm/gemm.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import { type RoleCopies, sharesQuantizer } from "../../recipes/role.js";
import type { MMParams } from "../../recipes/table.js";
import { transientValue } from "../../tape/uses.js";
import { type Gradient, type Value, wideOf } from "../../tape/value.js";
import { COLUMNWISE, type Direction, QuantizedTensor, ROWWISE, type Usage } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { BackwardQuantization } from "../recipe-state.js";
import { RowOperand, withUsage } from "../tensor-parallel/row-operand.js";
import { type Operand, resultSpec, WideRows } from "../tensor-parallel/rows.js";
import { amaxGroup } from "../tensor-parallel/tensor-parallel.js";
import type { LinearGradients, LinearInput, LinearParts, LinearResult, QuantizedCall } from "./parts.js";
import { biasGradOf, dgradOf, wgradOf, wideGrad } from "./products.js";
import { quantizedProduct } from "./quantized-product.js";
import { isCached, type WeightUse } from "./weight-cache.js";
import { withColumnwise } from "./weight-operand.js";
import { wideWeightIn } from "./wide.js";

type WideTensor = Tensor<WideDType>;

/** The source of an operand whose rows may be divided among ranks. */
interface RowsSource {
  /** This rank's rows. */
  readonly value: Value;
  /** Whether this call created `value`. Otherwise it belongs to the caller. */
  readonly createsValue: boolean;
  readonly dtype: WideDType;
  /** The ranks that have the other rows. Undefined if `value` has all rows. */
  readonly group: ProcessGroup | undefined;
  readonly copies: RoleCopies;
  /** How the copies are made if the rows of all ranks are gathered before they are quantized. */
  readonly gatheredCopies: RoleCopies;
}

/** The copies of an input or a gradient that products read. */
class MixedRows {
  /** All rows for the product that reads the rowwise copy. Undefined if there is no such product. */
  readonly rowwise: Operand | undefined;
  readonly #columnwise: (() => Operand) | undefined;
  /** The tensors created here that the product of the columnwise copy reads. */
  readonly saved: readonly Value[];

  /** `usage` says which copies products read. */
  constructor(source: RowsSource, usage: Usage) {
    const { value, dtype, group, copies } = source;
    const read = (operand: Operand, direction: Direction): Operand =>
      copies.dequantized[direction] ? operandValues(operand, direction, dtype) : operand;
    const isQuantized = value instanceof QuantizedTensor;
    const wide = isQuantized ? dequantize(value, dtype) : wideOf("linear: an operand", value);
    if (sharesQuantizer(copies)) {
      const rows = operandRows(source, "rowwise", wide, usage);
      this.rowwise = usage.rowwise ? read(rows.allRows(ROWWISE), "rowwise") : undefined;
      this.#columnwise = usage.columnwise ? () => read(rows.allRows(COLUMNWISE), "columnwise") : undefined;
      this.saved = usage.columnwise && rows.local !== value ? [rows.local] : [];
      return;
    }
    const readsRowwise =
      usage.columnwise && copies.columnwiseSource === "rowwiseDequantized" && copies.rowwise !== undefined;
    const rows =
      copies.rowwise && (usage.rowwise || readsRowwise)
        ? operandRows(source, "rowwise", wide, ROWWISE)
        : undefined;
    const allRows = rows?.allRows(ROWWISE);
    this.rowwise = usage.rowwise
      ? read(allRows ?? new WideRows(group, wide).allRows(), "rowwise")
      : undefined;
    if (!usage.columnwise) {
      this.saved = [];
      return;
    }
    if (copies.columnwise) {
      const columnwiseRows =
        readsRowwise && allRows
          ? operandRows({ ...source, group: undefined }, "columnwise", dequantize(allRows, dtype), COLUMNWISE)
          : operandRows(source, "columnwise", wide, COLUMNWISE);
      this.#columnwise = () => read(columnwiseRows.allRows(COLUMNWISE), "columnwise");
      this.saved = [columnwiseRows.local];
    } else if (readsRowwise && rows) {
      this.#columnwise = () => dequantize(rows.allRows(ROWWISE), dtype);
      this.saved = rows.local === value ? [] : [rows.local];
    } else {
      this.#columnwise = () => new WideRows(group, wide).allRows();
      this.saved = wide === value && !source.createsValue ? [] : [wide];
    }
  }

  /** Returns all rows for the product that reads the columnwise copy. Undefined if there is no such product. */
  columnwise(): Operand | undefined {
    return this.#columnwise?.();
  }
}

/** Returns the values of one copy of an operand in `dtype`. An operand in high precision is returned as it is. */
function operandValues(operand: Operand, direction: Direction, dtype: WideDType): WideTensor {
  if (!(operand instanceof QuantizedTensor)) return operand as WideTensor;
  if (direction === "rowwise" || !operand.rowwise) return dequantize(operand, dtype);
  // `dequantize` reads the rowwise copy if there is one
  using columnwise = operand.share().updateUsage({ rowwise: false });
  return dequantize(columnwise, dtype);
}

/** Quantizes rows, in the copies of `usage`. A quantized value is read as it is, if its rowwise copy is requested. */
function operandRows(
  { value, group, copies, gatheredCopies }: RowsSource,
  direction: Direction,
  wide: WideTensor,
  usage: Usage,
): RowOperand {
  const quantizerOf = (gathered: boolean): Quantizer =>
    (gathered ? gatheredCopies : copies)[direction] as Quantizer;
  const quantize = (quantizer: Quantizer): QuantizedTensor =>
    value instanceof QuantizedTensor && direction === "rowwise"
      ? withUsage(value, quantizer.usage)
      : quantizer.quantize(wide);
  return new RowOperand(group, quantizerOf, usage, { shape: wide.shape, quantize, wide: () => wide });
}

/** The copies of the weight that products read. */
interface MixedWeight {
  readonly rowwise: Operand;
  readonly columnwise: () => Operand;
  readonly saved: readonly Value[];
}

/** Returns the copies of a weight. `readsColumnwise` says whether the backward pass needs the columnwise one. */
function weightCopies(
  { weight, quantization }: LinearParts,
  use: WeightUse,
  dtype: WideDType,
  readsColumnwise: boolean,
): MixedWeight {
  const copies = quantization.copies("weight");
  const value = transientValue(weight);
  const wide = (): WideTensor => wideWeightIn(weight, dtype);
  const isStored = value instanceof QuantizedTensor;
  const sharesCopies = sharesQuantizer(copies);
  const read = (operand: Operand, direction: Direction): Operand =>
    copies.dequantized[direction] ? operandValues(operand, direction, dtype) : operand;
  const storedWeight = isStored && copies.rowwise ? value : undefined;
  const storedCopy =
    storedWeight && sharesCopies && readsColumnwise ? withColumnwise(storedWeight) : storedWeight;
  const freshlyQuantized =
    copies.rowwise && !storedCopy
      ? quantization.weight(weight, { ...use, columnwise: sharesCopies && readsColumnwise })
      : undefined;
  const quantizedWeight = storedCopy ?? freshlyQuantized;
  const rowwise = read(quantizedWeight ?? wide(), "rowwise");
  const created = storedCopy === storedWeight ? freshlyQuantized : storedCopy;
  const ownedTensors = readsColumnwise && created ? [created] : [];
  if (sharesCopies && quantizedWeight)
    return { rowwise, columnwise: () => read(quantizedWeight, "columnwise"), saved: ownedTensors };
  const readsRowwise = copies.columnwiseSource === "rowwiseDequantized" && quantizedWeight !== undefined;
  const quantizer = copies.columnwise;
  if (quantizer && readsColumnwise) {
    const source = (): Tensor =>
      readsRowwise && quantizedWeight
        ? dequantize(quantizedWeight)
        : wideOf("linear: the weight", transientValue(weight));
    const columnwise = quantization.columnwiseWeight(use, quantizer, source);
    return { rowwise, columnwise: () => read(columnwise, "columnwise"), saved: [columnwise] };
  }
  if (readsRowwise && quantizedWeight)
    return { rowwise, columnwise: () => dequantize(quantizedWeight, dtype), saved: ownedTensors };
  return { rowwise, columnwise: wide, saved: [] };
}

/** How a product is computed: with the recipe's accumulation if its operands are quantized, else in high precision. */
function productForm(
  x: Operand,
  dtype: WideDType,
  split: MMParams,
): { readonly split?: MMParams; readonly datapath?: DatapathFamily } {
  return x instanceof QuantizedTensor ? { split } : { datapath: plainDatapath(x.backend, dtype) };
}

/**
 * Runs the forward pass. The quantization state has begun the pass, and the call was checked: in each product both operands are
 * quantized, or neither is.
 */
export function mixedForward(
  layer: LinearParts,
  input: LinearInput,
  value: Value,
  { call, region: { recipe, group }, required, tracked }: QuantizedCall,
): LinearResult {
  const { quantization, bias, parallel } = layer;
  const { dtype } = input;
  const x = new MixedRows(
    {
      ...{ value, dtype, createsValue: input.createsValue, group: parallel?.gathers("input") },
      copies: quantization.copies("input"),
      gatheredCopies: quantization.copies("input", true),
    },
    { rowwise: true, columnwise: required.wgrad },
  );
  const w = weightCopies(layer, call, dtype, (isCached(call) ? tracked : required).dgrad);
  const rows = x.rowwise as Operand;
  const { split, datapath } = productForm(rows, dtype, recipe.fprop);
  const b = bias && wideOf("linear: the bias", transientValue(bias));
  const biasType = datapath || dtype !== "f32" ? dtype : "bf16";
  const fusedBias = b && parallel?.mode !== "row" ? { bias: castTo(b, biasType) } : {};
  const result = resultSpec(
    parallel?.fullInputShape(input.shape) ?? input.shape,
    layer.weight.shape[0] as number,
    dtype,
  );
  const outputQuantizer = call.fp8Output ? quantization.copies("output").rowwise : undefined;
  const out = quantizedProduct(outputQuantizer, dtype, (outDtype) => {
    const product = (xRows: Operand, target?: WideTensor): WideTensor => {
      const destination = target ? { out: target } : { outDtype };
      const options = { ...destination, ...split, ...(datapath ? { datapath } : {}), ...fusedBias };
      return wideOf("linear", gemm({ x: xRows, w: w.rowwise, ...options }).out);
    };
    return parallel?.output(rows, product, { ...result, dtype: outDtype }, b) ?? product(rows);
  });
  if (!required.dgrad && !required.wgrad)
    return {
      out,
      saved: [],
      backward: (grad) => ({ bias: biasGradOf(layer, wideGrad(grad, dtype)) }),
    };
  const backwardQuantization = quantization.forBackward();
  const quantizesGradInput =
    call.fp8Grad === true && backwardQuantization.copies("gradInput").rowwise !== undefined;
  return {
    out,
    quantizesGradInput,
    saved: [...x.saved, ...(required.dgrad ? w.saved : []), ...backwardQuantization.saved],
    backward: (grad, pass) => {
      backwardQuantization.registerUpdates(pass, amaxGroup(parallel?.group, group));
      return mixedBackward(
        { layer, dtype, x, w, recipe, required, fp8Grad: call.fp8Grad },
        grad,
        backwardQuantization,
      );
    },
  };
}

/** What the backward pass of a call reads. */
interface MixedCall extends Pick<QuantizedCall, "required"> {
  readonly layer: LinearParts;
  readonly dtype: WideDType;
  readonly x: MixedRows;
  readonly w: MixedWeight;
  readonly recipe: QuantizedCall["region"]["recipe"];
  readonly fp8Grad: boolean | undefined;
}

/** Computes the gradients of a call. */
function mixedBackward(
  { layer, dtype, x, w, recipe, required, fp8Grad }: MixedCall,
  grad: Gradient,
  quantization: BackwardQuantization,
): LinearGradients {
  const { weight, fuseWgradAccumulation, parallel } = layer;
  // a fused activation passes its f32 values
  const value = grad instanceof QuantizedTensor ? grad : castTo(grad, dtype);
  const dy = new MixedRows(
    {
      ...{ value, createsValue: false, dtype, group: parallel?.gathers("gradOutput") },
      ...{
        copies: quantization.copies("gradOutput"),
        gatheredCopies: quantization.copies("gradOutput", true),
      },
    },
    { rowwise: required.dgrad, columnwise: required.wgrad },
  );
  const products = { dtype, weight, fuseWgradAccumulation };
  const dgrad = (rows: Operand): Gradient => {
    const columnwiseWeight = w.columnwise();
    const { split, datapath } = productForm(rows, dtype, recipe.dgrad);
    const form = { ...(split ? { dgrad: split } : {}), ...(datapath ? { datapath } : {}) };
    const shape = parallel?.fullGradOutputShape(grad.shape) ?? grad.shape;
    const result = resultSpec(shape, weight.shape[1] as number, dtype);
    const quantizer = fp8Grad ? quantization.copies("gradInput").rowwise : undefined;
    return quantizedProduct(quantizer, dtype, (outDtype) => {
      const product = (dyRows: Operand, target?: WideTensor): WideTensor =>
        dgradOf(columnwiseWeight, dyRows, { ...products, ...form, dtype: outDtype }, target);
      return parallel?.gradInput(rows, product, { ...result, dtype: outDtype }) ?? product(rows);
    });
  };
  const dx = dy.rowwise && dgrad(dy.rowwise);
  const [columns, columnwiseGradient] = [x.columnwise(), dy.columnwise()];
  const wgrad = (a: Operand, b: Operand): WideTensor | undefined => {
    const { split, datapath } = productForm(a, dtype, recipe.wgrad);
    return wgradOf(a, b, {
      ...products,
      ...(split ? { wgrad: split } : {}),
      ...(datapath ? { datapath } : {}),
    });
  };
  return {
    x: dx,
    weight: columns && columnwiseGradient && wgrad(columns, columnwiseGradient),
    bias: biasGradOf(layer, wideGrad(value, dtype)),
  };
}
