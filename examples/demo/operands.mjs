/** Properties of a quantized operand: its size in bits, the largest values that its scales allow, and its dequantized values. */
import { decode, factsOf, QuantizedTensor } from "lockstep";
import { within } from "../shared/within.mjs";

/** The largest E4M3 block scale of NVFP4; the tensor's amax is divided by it. */
const amaxDivisor = ({ e4m3Max }) => e4m3Max;

/** The bits of all elements and scales that a GEMM reads; 6-bit codes count as 6 bits. */
export function bitsOf(operand) {
  if (!(operand instanceof QuantizedTensor)) return operand.size * factsOf(operand.dtype).bits;
  const { data, scaleInv, amax } = operand.copy("rowwise");
  return data.size * factsOf(data.dtype).bits + 8 * (scaleInv.byteLength + (amax?.byteLength ?? 0));
}

/** The dequantized values as a Float32Array. */
export function valuesOf(operand) {
  return within(() =>
    (operand instanceof QuantizedTensor ? operand.dequantize("f32") : decode(operand)).dataSync(),
  );
}

/**
 * The largest magnitude that each block of the rowwise copy can represent: its scale times the format's maximum. One
 * row per row of the operand, one number per block.
 */
export function ceilingsOf(operand) {
  const { spec, shape } = operand;
  const { scaleInv, amax } = operand.copy("rowwise");
  const scales = within(() => (scaleInv.dtype === "f32" ? scaleInv : decode(scaleInv)).dataSync());
  const top = amax ? amax.dataSync()[0] / amaxDivisor(spec) : factsOf(spec.format).max;
  const [scaleRows, blocks] = scaleInv.shape;
  const rowsPerScale = Math.ceil(shape[0] / scaleRows);
  return Array.from({ length: shape[0] }, (_, row) => {
    const start = Math.floor(row / rowsPerScale) * blocks;
    return Array.from(scales.subarray(start, start + blocks), (scale) => scale * top);
  });
}
