// Products of a few bf16 rows by a weight of codes, as in decoding, compared with the product by the same weight in bf16 and with
// a copy. A graph enqueues the products, because they take less time than their calls. Its weights together
// are larger than the GPU's cache.
import {
  captureGraph,
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  gemm,
  MXFP4Quantizer,
  MXFP8Quantizer,
  NVFP4Quantizer,
  Scope,
} from "lockstep";
import { randomBf16 } from "./device.mjs";
import { measureDevice } from "./timing.mjs";

/** Weights N, K. */
const WEIGHTS = [
  [8192, 8192],
  [14336, 4096],
  [4096, 14336],
];
const ROWS = [1, 16, 64];
/** The bytes of the weights that a graph reads in turn. */
const ROTATED_BYTES = 160e6;
/** The number of products in a graph. */
const PRODUCTS = 24;
const UNCOUNTED = 3;

const QUANTIZERS = {
  nvfp4: () => new NVFP4Quantizer(),
  mxfp4: () => new MXFP4Quantizer(),
  mxfp8: () => new MXFP8Quantizer(),
  "fp8, 128x128": () => new Float8BlockQuantizer({ tile: "128x128" }),
  "fp8, a scale of the tensor": () => new Float8CurrentScalingQuantizer(),
};

const bytesOf = ({ data, scaleInv }) => data.byteLength + scaleInv.byteLength;

/** A case that replays products of x by copies of a weight, in turn. */
function productCase(backend, owned, { x, weights, splitK }) {
  const { out } = gemm({ b: x, a: weights[0], splitK, outDtype: "bf16" });
  const graph = captureGraph(backend, () => {
    for (let i = 0; i < PRODUCTS; i++) gemm({ b: x, a: weights[i % weights.length], splitK, out });
  });
  owned.unshift(graph);
  return {
    repeat(calls) {
      for (let i = 0; i < calls; i++) graph.replay();
    },
  };
}

/** The bytes per second of a copy between buffers that are larger than the caches. */
function copyRate(copies, wait, rounds) {
  const copy = copies.copyCase([8192, 8192]);
  const [{ median }] = measureDevice([copy], wait, rounds, UNCOUNTED);
  return copy.bytes / median;
}

function weightRows(backend, { wait, rounds, rateOfCopy }, [n, k]) {
  const scope = new Scope();
  const owned = [];
  const wide = Array.from({ length: Math.ceil(ROTATED_BYTES / (2 * n * k)) }, (_, i) =>
    randomBf16(backend, [n, k], 2 + i),
  );
  const [first] = wide;
  const quantized = Object.entries(QUANTIZERS).map(([name, quantizer]) => {
    const weight = quantizer().quantize(first);
    const bytes = bytesOf(weight.copy("rowwise"));
    const weights = [weight];
    while (weights.length * bytes < ROTATED_BYTES) weights.push(quantizer().quantize(first));
    return { name, bytes, weights };
  });
  const rows = ROWS.flatMap((m) => {
    const x = randomBf16(backend, [m, k], 1);
    const cases = [
      productCase(backend, owned, { x, weights: wide, splitK: "auto" }),
      ...quantized.flatMap(({ weights }) =>
        [1, "auto"].map((splitK) => productCase(backend, owned, { x, weights, splitK })),
      ),
    ];
    const [bf16, ...others] = measureDevice(cases, wait, rounds, UNCOUNTED).map(
      ({ median }) => median / PRODUCTS,
    );
    return quantized.map(({ name, bytes }, i) => {
      const [chain, splits] = others.slice(2 * i);
      return {
        "a few rows by codes, M x N x K": `${m}x${n}x${k} ${name}`,
        "one chain, µs": chain * 1e6,
        "splitK auto, µs": splits * 1e6,
        "bf16, splitK auto, µs": bf16 * 1e6,
        "bf16 / auto": bf16 / splits,
        "of copy": bytes / splits / rateOfCopy,
      };
    });
  });
  for (const each of owned) each.dispose();
  scope.dispose();
  return rows;
}

/** One row for each weight, format and number of rows. */
export function fewRowsRows(backend, copies, wait, rounds) {
  const run = { wait, rounds, rateOfCopy: copyRate(copies, wait, rounds) };
  return WEIGHTS.flatMap((weight) => weightRows(backend, run, weight));
}
