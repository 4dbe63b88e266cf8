/** A model of quantized tensors. Each copy is computed when a product first reads it. */
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { fromBits } from "../core/rational.js";
import { decode } from "../core/scalar.js";
import { copySize, copyTiling, isPerTensor, type Usage } from "../layout/layout.js";
import { quantizeActivated, quantizeNormed } from "../quantize/computed.js";
import { dequantize } from "../quantize/dequantize.js";
import {
  elementFormat,
  elementLayout,
  type QuantizedCopy,
  type QuantizeSpec,
  quantize,
  type WideName,
} from "../quantize/quantize.js";
import type { Matrix } from "./matrix.js";
import { type Operand, wideOperand } from "./products.js";

/**
 * The values to quantize: a tensor, or f32 values whose computation (a norm or an activation) is fused with the
 * quantization.
 */
export interface Quantizable {
  readonly x: Matrix;
  readonly computed: "norm" | "activation" | false;
}

const HOW = { stored: quantize, norm: quantizeNormed, activation: quantizeActivated };
const MAX_NVFP4 = { plain: 448, fourOverSix: 256 };

/** A tensor quantized by a spec. A copy has the values that the source has when the copy is computed. */
export class QuantizedModel {
  readonly #copies = new Map<Usage, QuantizedCopy>();

  constructor(
    readonly from: Quantizable,
    readonly spec: QuantizeSpec,
  ) {}

  get dtype(): WideName {
    return this.from.x.dtype;
  }

  copy(usage: Usage): QuantizedCopy {
    const cached = this.#copies.get(usage);
    if (cached) return cached;
    const { x, computed } = this.from;
    const quantized = HOW[computed || "stored"](x, { ...this.spec, usage: [usage] })[usage];
    if (!quantized) throw new RangeError(`no ${usage} copy was made`);
    this.#copies.set(usage, quantized);
    return quantized;
  }

  /** The lines of a copy along K. */
  operand(usage: Usage): Operand {
    const { spec } = this;
    const shape = copySize(spec, usage, this.from.x.shape);
    const copy = this.copy(usage);
    const layout = elementLayout(spec);
    const tiling = copyTiling(spec, usage, shape);
    const [m, k] = shape;
    const values = new Map([...new Set(copy.codes)].map((code) => [code, decode(code, layout)]));
    const element = (r: number, c: number): number =>
      values.get(copy.codes[tiling.codesTransposed ? c * m + r : r * k + c] as number) as number;
    const rowwise = usage === "rowwise";
    const [lines, depth] = rowwise ? [m, k] : [k, m];
    const at =
      <T>(f: (r: number, c: number) => T) =>
      (line: number, i: number): T =>
        rowwise ? f(line, i) : f(i, line);
    const value = at(element);
    const widened = {
      lines: Array.from({ length: lines }, (_, line) =>
        Array.from({ length: depth }, (_, i) => value(line, i)),
      ),
      format: elementFormat(spec),
    };
    if (isPerTensor(spec)) return { ...widened, factor: fromBits(copy.scale[0] as number) };
    const across = Math.ceil(k / tiling.step[1]);
    const blockRows = Math.ceil(m / tiling.step[0]);
    const scale = at((r, c) => {
      const [i, j] = [Math.floor(r / tiling.step[0]), Math.floor(c / tiling.step[1])];
      return scaleValue(
        spec,
        copy.scale[tiling.scalesTransposed ? j * blockRows + i : i * across + j] as number,
      );
    });
    const format = spec.quantizer === "fp8-block" ? "f32" : spec.quantizer === "nvfp4" ? "e4m3" : "e8m0";
    const blocks = {
      scale,
      shared: {
        format,
        lines: tiling.step[rowwise ? 0 : 1],
        pow2: format === "e8m0" || (format === "f32" && spec.pow2Scales !== false),
      },
    } as const;
    if (spec.quantizer !== "nvfp4") return { ...widened, blocks };
    const e4m3Max = spec.fourOverSix ? (spec.e4m3Max ?? MAX_NVFP4.fourOverSix) : MAX_NVFP4.plain;
    const amax = copy.amaxes ? copy.amaxes.map(fromBits) : fromBits(copy.amax as number);
    return { ...widened, blocks, global: { amax, divisor: 6 * e4m3Max } };
  }

  /** The dequantized rowwise copy, or another one, rounded to `dtype`. */
  wide(dtype: WideName, usage: Usage = "rowwise"): Matrix {
    const bits = dequantize(this.copy(usage), usage, this.spec, dtype);
    const value = dtype === "f32" ? fromBits : (code: number) => decode(code, SCALAR_FORMATS[dtype]);
    return { shape: this.from.x.shape, dtype, data: Float32Array.from(bits, value) };
  }
}

/** The two copies of an operand, each quantized or in high precision. They have the values that the tensor has now. */
export class CopiesModel {
  constructor(
    private readonly rowwise: QuantizedModel | Matrix,
    private readonly columnwise: QuantizedModel | Matrix,
  ) {}

  isQuantized(usage: Usage): boolean {
    return this[usage] instanceof QuantizedModel;
  }

  operand(usage: Usage): Operand {
    const copy = this[usage];
    return copy instanceof QuantizedModel ? copy.operand(usage) : wideOperand(copy, usage);
  }
}

function scaleValue({ quantizer }: QuantizeSpec, stored: number): number {
  if (quantizer === "fp8-block") return fromBits(stored);
  return decode(stored, quantizer === "nvfp4" ? SCALAR_FORMATS.e4m3 : SCALAR_FORMATS.e8m0);
}
