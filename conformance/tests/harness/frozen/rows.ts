/** Frozen cases of operations on rows: norms, softmax, losses, embeddings and transposes. */
import { WIDE_DTYPES, type WideDType } from "../../../../src/tensor/shape.js";
import { PlainTensor } from "../../../values/plain.js";
import { gridWideValues } from "../gemm/products.js";
import { type FrozenCase, frozenCase, indices, values } from "./case.js";

const ROWS = 67;
const COLUMNS = 258;
const SHAPE = [ROWS, COLUMNS];

/** One f32 of either sign for each row. */
function rowFactors(seed: number): PlainTensor<"f32"> {
  return gridWideValues("f32", [ROWS], seed) as PlainTensor<"f32">;
}

function normCases(dtype: WideDType, i: number): readonly FrozenCase[] {
  const [gamma, x] = [gridWideValues(dtype, [COLUMNS], 230 + i), gridWideValues(dtype, SHAPE, 240 + i)];
  const [grad, row] = [values("bf16", SHAPE, 210 + i), rowFactors(250 + i)];
  const forward = { x, gamma, beta: gamma, zeroCenteredGamma: true, eps: 1e-5, outDtype: dtype };
  const backward = { grad, x, gamma, zeroCenteredGamma: false, mean: row, rstd: row };
  return [
    frozenCase("norm", dtype, forward),
    frozenCase("normBackward", dtype, backward),
    frozenCase("columnSum", dtype, { x, outDtype: "f32" }),
  ];
}

function softmaxCases(dtype: WideDType, i: number): readonly FrozenCase[] {
  const [x, grad] = [values(dtype, [3, 65, 130], 700 + i), values("bf16", [3, 65, 130], 710 + i)];
  const y = gridWideValues(dtype, [3, 65, 130], 720 + i);
  return [true, false].flatMap((causal) => {
    const options = { causal, scale: 0.125, outDtype: dtype };
    const label = `${dtype}${causal ? " causal" : ""}`;
    return [
      frozenCase("softmax", label, { ...options, x }),
      frozenCase("softmaxBackward", label, { ...options, grad, y }),
    ];
  });
}

function lossCases(dtype: WideDType, i: number): readonly FrozenCase[] {
  const [logits, row] = [gridWideValues(dtype, SHAPE, 240 + i), rowFactors(250 + i)];
  const entropy = { logits, targets: indices([ROWS], COLUMNS, 260 + i), smoothing: 0.1, ignore: -100 };
  const squares = { x: logits, target: values("bf16", SHAPE, 730 + i) };
  return [
    frozenCase("crossEntropy", dtype, entropy),
    frozenCase("crossEntropyBackward", dtype, { ...entropy, grad: row, maximum: row, total: row }),
    frozenCase("mse", dtype, squares),
    frozenCase("mseBackward", dtype, { ...squares, grad: row }),
  ];
}

function lookupCases(dtype: WideDType, i: number): readonly FrozenCase[] {
  // repeated ids, and some out of range
  const ids = indices([5, 40], 70, 740 + i);
  return [
    frozenCase("gather", dtype, { x: values(dtype, SHAPE, 750 + i), ids: indices([ROWS, 9], 260, 745 + i) }),
    frozenCase("gatherBackward", dtype, {
      grad: gridWideValues(dtype, [ROWS, 9], 760 + i),
      ids: indices([ROWS, 9], 70, 745 + i),
      columns: 60,
    }),
    frozenCase("rowIdMap", dtype, {
      routingMap: indices([ROWS, 3], 70, 791 + i),
      numOutTokens: 200 - 50 * i,
      numExperts: 60,
      alignSize: 2 ** i,
    }),
    frozenCase("topk", dtype, {
      x: values(dtype, [ROWS, 64], 798 + i),
      k: 6,
      numGroups: 8,
      groupTopk: 1 + i,
    }),
    frozenCase("takeRows", dtype, {
      x: values(dtype, SHAPE, 750 + i),
      sources: indices([90], 2 * ROWS + 9, 792 + i),
      entriesPerRow: 2,
      weights: i === 0 ? undefined : gridWideValues("f32", [ROWS, 2], 793 + i),
      outDtype: dtype,
    }),
    frozenCase("combineRows", dtype, {
      x: values(dtype, SHAPE, 750 + i),
      rows: indices([40, 5], ROWS + 9, 794 + i),
      weights: i === 0 ? undefined : gridWideValues("f32", [40, 5], 795 + i),
      outDtype: dtype,
    }),
    frozenCase("rowDots", dtype, {
      grad: gridWideValues("f32", [40, COLUMNS], 796 + i),
      x: values(dtype, SHAPE, 750 + i),
      rows: indices([40, 5], ROWS + 9, 797 + i),
      outDtype: dtype,
    }),
    frozenCase("embedding", dtype, { table: values(dtype, SHAPE, 750 + i), ids, outDtype: dtype }),
    frozenCase("embeddingBackward", dtype, {
      grad: gridWideValues(dtype, [5, 40, COLUMNS], 760 + i),
      ids,
      vocabulary: ROWS,
      outDtype: "f32",
    }),
  ];
}

function reductionCases(dtype: WideDType, i: number): readonly FrozenCase[] {
  const grads = [gridWideValues(dtype, [40, 300], 770 + i), gridWideValues("bf16", [77], 780 + i)];
  return [
    frozenCase("amax", dtype, { x: values(dtype, SHAPE, 200 + i) }),
    frozenCase("gradNorm", dtype, { grads, maxNorm: 1 }),
  ];
}

function copyCases(dtype: WideDType, i: number): readonly FrozenCase[] {
  const x = values(dtype, [6, 17, 40], 790 + i);
  return [
    frozenCase("transpose", dtype, { x: values(dtype, SHAPE, 790 + i) }),
    frozenCase("swapAxes", dtype, { x, axis1: 0, axis2: 1 }),
    frozenCase("copySlice", `${dtype} slice`, { use: "slice", x, dim: 2, start: 3, end: 33 }),
    frozenCase("copySlice", `${dtype} concatenate`, { use: "concatenate", tensors: [x, x], dim: 1 }),
    frozenCase("copySlice", `${dtype} expand`, {
      use: "expand",
      x: values(dtype, [6, 1, 40], 795 + i),
      shape: [2, 6, 5, 40],
    }),
  ];
}

/** Cases of delayed scaling's update. Some of the newest amaxes are 0, infinite or NaN. */
function scaleUpdateCases(): readonly FrozenCase[] {
  const amaxes = values("f32", [16, 200], 800) as PlainTensor<"f32">;
  const amaxHistory = new PlainTensor(
    "f32",
    [16, 200],
    Float32Array.from(amaxes.data, (value, index) => (index % 7 === 0 ? 0 : Math.abs(value))),
  );
  const scale = gridWideValues("f32", [200], 801) as PlainTensor<"f32">;
  return (["max", "mostRecent"] as const).map((algorithm) =>
    frozenCase("updateScales", algorithm, {
      amaxHistory,
      scale,
      options: { formatMax: 448, margin: 1, algorithm },
    }),
  );
}

export const ROW_CASES: readonly FrozenCase[] = [
  ...WIDE_DTYPES.flatMap((dtype, i) => [
    ...normCases(dtype, i),
    ...softmaxCases(dtype, i),
    ...lossCases(dtype, i),
    ...lookupCases(dtype, i),
    ...reductionCases(dtype, i),
    ...copyCases(dtype, i),
  ]),
  ...scaleUpdateCases(),
];
