/** One copy of a quantization as blocks and elements, with its scales under its rule and under others. */

import { f32Bits, f32OfBits } from "../../../src/explain/binary.js";
import { blockScaleBy } from "../../../src/explain/block-scale.js";
import { CopySource, type Region, type TensorValues } from "../../../src/explain/blocks.js";
import { usesWiderAmax } from "../../../src/explain/quantize.js";
import type { RandomBits } from "../../../src/explain/rounding.js";
import { encodeScale, type RuleResult } from "../../../src/explain/scale-rules.js";
import { div, mul, Steps } from "../../../src/explain/steps.js";
import { tensorScaleOf } from "../../../src/explain/tensor-scale.js";
import { blockFormat, hasGivenScale, isDirectionless, isTensorWide } from "../../../src/formats/block.js";
import { FLT_MAX, factsOf, valueOfCode } from "../../../src/formats/derive.js";
import { tensorScaleRole } from "../../../src/formats/scale-rules.js";
import { elementBits } from "../../../src/random.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import { codePlace, linePlace, scaleIndex } from "../../../src/tensor/places.js";
import type { Direction, QuantizeSpec } from "../../../src/tensor/quantized.js";
import { elementCount, storageBits } from "../../../src/tensor/shape.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
import type { CodedElement } from "./coder.js";

/** A block: its region, and its first element. */
export interface Block {
  readonly row: number;
  readonly column: number;
  readonly region: Region;
}

/** Replacements for the inputs of a block's scale. */
export interface ScaleChange {
  readonly spec?: QuantizeSpec;
  readonly region?: Region;
  readonly amax?: number;
  readonly tensorAmax?: number;
}

/** One copy of a quantization case. */
export class View {
  readonly source: CopySource;
  readonly spec: QuantizeSpec;
  /** One block for each stored scale, in storage order. */
  readonly blocks: readonly Block[];
  /** The index of the scale of each element, in row-major order. */
  readonly scaleOf: Int32Array;
  /** The index of the code of each element. */
  readonly codeOf: Int32Array;
  /** The number of scales in a row of their matrix. */
  readonly across: number;
  readonly #amaxes = new Map<number, number>();
  #elements: readonly CodedElement[] | undefined;
  readonly #bits = new Map<number, RandomBits>();
  #expected: readonly RuleResult[] | undefined;

  constructor(
    readonly input: QuantizeCase,
    readonly direction: Direction,
    readonly values: TensorValues = input.x,
  ) {
    this.spec = input.spec;
    this.source = new CopySource(values, this.spec, direction);
    const { rows, columns } = this.source;
    const geometry = copyGeometry(this.spec, [rows, columns], direction, "logical");
    const width = geometry.dataShape.at(-1) as number;
    this.across = geometry.scaleShape.at(-1) ?? 1;
    this.scaleOf = new Int32Array(rows * columns);
    this.codeOf = new Int32Array(rows * columns);
    const blocks: (Block | undefined)[] = new Array(elementCount(geometry.scaleShape)).fill(undefined);
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++) {
        const scale = scaleIndex(this.spec, geometry, linePlace(geometry, row, column));
        const [r, c] = codePlace(geometry, row, column);
        this.scaleOf[row * columns + column] = scale;
        this.codeOf[row * columns + column] = r * width + c;
        blocks[scale] ??= { row, column, region: this.source.regionOf(row, column) };
      }
    this.blocks = blocks.map((block) => block ?? { row: 0, column: 0, region: NOWHERE });
  }

  /** The elements in row-major order, with all that their encoding needs. */
  get elements(): readonly CodedElement[] {
    this.#elements ??= Array.from(this.scaleOf, (_, at) => this.#element(at));
    return this.#elements;
  }

  #element(at: number): CodedElement {
    const { columns } = this.source;
    const x = this.source.value(Math.floor(at / columns), at % columns);
    const { codes, dtype } = this.input.x;
    const isStored = !this.source.isTransformed && at < codes.length;
    const isNegative = isStored
      ? (codes[at] as number) >= 2 ** (storageBits(dtype) - 1)
      : x < 0 || Object.is(x, -0);
    return { x, isNegative, index: this.#randomIndex(at), bitsOf: this.#bitsOf };
  }

  /** Both copies use the rowwise random bits if one copy is derived from the other. */
  #randomIndex(at: number): number {
    return isDirectionless(this.spec) ? at : (this.codeOf[at] as number);
  }

  readonly #bitsOf = (index: number): RandomBits => {
    const { random, randomBits, randomBitsColumnwise } = this.input;
    const words = this.direction === "rowwise" ? randomBits : randomBitsColumnwise;
    const word = words?.codes[index];
    if (words) return { bits: word ?? 0, width: 32 };
    const cached = this.#bits.get(index);
    if (cached) return cached;
    const isColumnwise = this.direction === "columnwise" && !isDirectionless(this.spec);
    const drawn = { bits: elementBits(random, index, isColumnwise), width: 8 } as const;
    this.#bits.set(index, drawn);
    return drawn;
  };

  /** The expected scale of each block. */
  get expected(): readonly RuleResult[] {
    this.#expected ??= this.blocks.map((_, i) => this.scaleBy(i));
    return this.#expected;
  }

  /** The amax of a region. */
  amaxIn({ top, bottom, left, right }: Region): number {
    const key = ((top * 4096 + bottom) * 4096 + left) * 4096 + right;
    const cached = this.#amaxes.get(key);
    if (cached !== undefined) return cached;
    const { value } = this.source.amaxIn({ top, bottom, left, right });
    this.#amaxes.set(key, value);
    return value;
  }

  /** The values of a region in row-major order. */
  valuesIn({ top, bottom, left, right }: Region): number[] {
    const values: number[] = [];
    for (let r = top; r < bottom; r++)
      for (let c = left; c < right; c++) values.push(this.source.value(r, c));
    return values;
  }

  /** The values of a block in row-major order. */
  valuesOf(block: number): readonly number[] {
    return this.valuesIn(this.#region(block));
  }

  /** The amax of a block. */
  amaxOf(block: number): number {
    return this.amaxIn(this.#region(block));
  }

  /** The scale of a block with some inputs replaced. */
  scaleBy(block: number, change: ScaleChange = {}): RuleResult {
    const { spec = this.spec, region = this.#region(block) } = change;
    if (hasGivenScale(spec)) {
      const m = Math.fround(this.input.scale);
      return { scale: div(1, m), code: f32Bits(div(1, m)), multiplier: m };
    }
    const { top, left } = region;
    const level = () => (spec.rowScaled ? this.source.lineAmax(top, left) : this.source.tensorAmax).value;
    const wideAmax = change.tensorAmax ?? (usesWiderAmax(spec) ? level() : 0);
    const amax = change.amax ?? (isTensorWide(spec.tile) ? wideAmax : this.amaxIn(region));
    const { dtype } = this.values;
    return blockScaleBy(spec, {
      steps: new Steps(),
      amax,
      tensorAmax: wideAmax,
      dtype,
      tensorScale: tensorScaleOf(spec.scaleRule, wideAmax, dtype)?.value ?? 1,
      lines: spec.fourOverSix === "none" ? [] : this.source.lines(region),
    });
  }

  /** The scaling of elements under a stored scale, however it was computed. */
  resultOf(code: number, block: number): RuleResult {
    const { spec } = this;
    const type = blockFormat(spec.quantizer).scale;
    const scale = type === "f32" ? f32OfBits(code) : Math.abs(valueOfCode(type, code));
    if (type !== "e4m3") return { scale, code, multiplier: div(1, scale) };
    const { top, left } = this.#region(block);
    const tensorAmax = this.source.levelOf(top, left).value;
    if (spec.scaleRule === "twoLevel") {
      const s = encodeScale(new Steps(), tensorAmax, factsOf(spec.format).max * spec.e4m3Max);
      return { scale, code, multiplier: Math.min(div(1, mul(scale, div(1, s))), FLT_MAX) };
    }
    const t = tensorScaleOf(spec.scaleRule, tensorAmax, this.values.dtype)?.value ?? 1;
    const divisor = tensorScaleRole(spec.scaleRule) === "divisor" ? div(scale, t) : mul(scale, t);
    return { scale, code, divisor, multiplier: div(1, divisor) };
  }

  #region(block: number): Region {
    return this.blocks[block]?.region ?? NOWHERE;
  }
}

const NOWHERE: Region = { top: 0, bottom: 0, left: 0, right: 0 };
