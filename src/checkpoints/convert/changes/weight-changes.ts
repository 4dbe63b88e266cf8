/** Types for the report of a conversion. */

/**
 * The way in which a weight gets its new form: dequantized to a wide type, repacked without rounding, or quantized from its
 * values.
 */
export type ConversionMethod = "dequantized" | "repacked" | "quantized";

/** The changes of one weight by a conversion. */
export interface WeightChanges {
  /** The name of the weight. */
  readonly name: string;
  /** The way in which the weight got its new form. */
  readonly method: ConversionMethod;
  /** The number of elements. */
  readonly elements: number;
  /** The number of elements whose value changed. */
  readonly changed: number;
  /** The largest magnitude of a difference. */
  readonly max: number;
  /** The largest magnitude of a difference, divided by the value before the conversion; infinite if a zero changed. */
  readonly relative: number;
  /** The sum of the squares of the differences. */
  readonly noise: number;
  /** The sum of the squares of the values before the conversion; 0 if nothing changed. */
  readonly signal: number;
}
