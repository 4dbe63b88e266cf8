/** Rows of `lockstep/conformance`. */
import * as fc from "fast-check";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { LAWS } from "../../../laws/laws.js";
import { OPERATION_NAMES, OPERATIONS, ORACLE } from "../../../operations/operations.js";
import { fromCodes } from "../../../values/plain.js";
import type { Row, Rows } from "./row.js";
import { LAYOUT, LAYOUT_NUMBERS } from "./rows-others.js";

const SPEC = makeSpec("nvfp4", {});
const CODES = [1, 2, 3, 4] as const;
const SHAPE = [2, 2] as const;
const plainTensor = () => fromCodes("bf16", SHAPE, CODES);
const aim = { dtype: "bf16", shape: SHAPE, block: 2, max: 6 } as const;
const arbitraries = Object.fromEntries(OPERATION_NAMES.map((name) => [name, OPERATIONS[name].arbitrary]));

const DRAW = { cases: 1, seed: 2 } as const;
const AIM = { datapath: "hopper", splitAccumulator: false, splitK: 1, c: true, bias: true } as const;
const drawNumbers = { "draw.cases": "index", "draw.seed": "int32" } as const;

const OPTIONS = {
  runs: 1,
  seed: 2,
  operations: ["transpose"],
  inputs: arbitraries,
  supported: Object.fromEntries(OPERATION_NAMES.map((name) => [name, {}])),
  onProgress: () => undefined,
} as const;
const COMPARISON_OPTIONS = { ...OPTIONS, comparing: true } as const;
const REPLAY = { replay: { law: LAWS[0]?.name, path: "0" } } as const;

const ANY_ORDER = {
  ...{ runs: 1, seed: 2, operations: ["columnSum"], supported: OPTIONS.supported },
  ...{ accumulator: "f32", onProgress: () => undefined },
} as const;

const specRow: Row = {
  calls: [() => [SPEC]],
  numbers: { "spec.amaxEpsilon": "atLeastZero", "spec.amaxLimit": "atLeastZero", "spec.rhtSigns": "bits16" },
};
const nameRow: Row = { calls: [() => ["mxfp8"]] };
const layoutRow: Row = { calls: [() => [LAYOUT]], numbers: LAYOUT_NUMBERS };
const optionNumbers = (path: string) => ({ [`${path}.runs`]: "count", [`${path}.seed`]: "int32" }) as const;

export const CONFORMANCE_ROWS: Rows = {
  assertSame: { calls: [() => ["result", plainTensor(), plainTensor()]] },
  assertSameBits: {
    calls: [() => [plainTensor().data, plainTensor().data, { dtype: "bf16", shape: SHAPE, name: "result" }]],
  },
  differenceOf: { calls: [() => [plainTensor(), plainTensor()]] },
  expectNoLeak: {
    calls: [(w) => [w.backend, w.backend.memoryUse()]],
    numbers: { "before.live": "index", "before.reserved": "index", "before.blocks": "index" },
  },
  // the guarded backend disposes of its inner backend, so it gets a separate one
  GuardedBackend: {
    calls: [({ backend }) => [Object.create(backend, { dispose: { value: () => undefined } })]],
  },
  lawNamed: { calls: [() => [LAWS[0]?.name]] },
  lawsFor: { calls: [() => [ORACLE, ["encode"]]] },
  encodeCases: { calls: [() => ["e4m3", DRAW]], numbers: drawNumbers, isSlow: true },
  quantizeCases: {
    calls: [() => [SPEC, DRAW]],
    numbers: {
      ...drawNumbers,
      "spec.amaxEpsilon": "atLeastZero",
      "spec.amaxLimit": "atLeastZero",
      "spec.rhtSigns": "bits16",
    },
    isSlow: true,
  },
  gemmCases: {
    calls: [
      () => [AIM, DRAW],
      () => [
        {
          ...AIM,
          operands: [
            { dtype: "e4m3", tile: "1x128" },
            { dtype: "e5m2", tile: "1x128" },
          ],
        },
        DRAW,
      ],
      () => [{ ...AIM, datapath: "exact", operands: [{ spec: SPEC }, { spec: SPEC }] }, DRAW],
    ],
    numbers: {
      ...drawNumbers,
      "aim.splitK": "count",
      ...Object.fromEntries(
        [0, 1].flatMap((i) => [
          [`aim.operands.${i}.spec.amaxEpsilon`, "atLeastZero"],
          [`aim.operands.${i}.spec.amaxLimit`, "atLeastZero"],
          [`aim.operands.${i}.spec.rhtSigns`, "bits16"],
        ]),
      ),
    },
    isSlow: true,
  },
  encodeCase: { calls: [() => [fc.constant("e4m3")]] },
  quantizeCase: { calls: [() => [["mxfp8"], () => fc.constant([32, 32])]] },
  backendSubject: { calls: [(w) => [w.backend]] },
  fromCodes: { calls: [() => ["bf16", SHAPE, CODES]] },
  PlainTensor: { calls: [() => ["bf16", SHAPE, Uint16Array.of(...CODES)]] },
  wideValues: { calls: [() => [plainTensor()]] },
  compareWith: {
    calls: [() => [ORACLE, ORACLE, COMPARISON_OPTIONS], () => [ORACLE, ORACLE, REPLAY]],
    numbers: optionNumbers("options"),
    isSlow: true,
  },
  acceptAnyOrder: {
    calls: [() => [ORACLE, ANY_ORDER]],
    numbers: optionNumbers("options"),
    isSlow: true,
  },
  runConformance: {
    calls: [({ backend }) => [{ backend, ...COMPARISON_OPTIONS }], ({ backend }) => [{ backend, ...REPLAY }]],
    numbers: optionNumbers("backendOptions"),
    isSlow: true,
  },
  supportedInputs: { calls: [() => ["amax", { "x.dtype": ["f32"] }]] },
  rounding: { calls: [() => [["tiesToEven"]]] },
  indexIn: { calls: [() => [-1, 3]], numbers: { index: "int32", count: "count" } },
  wideMatrix: { calls: [() => [aim]], numbers: { "aim.block": "index", "aim.max": "atLeastZero" } },
  matrixShape: {
    calls: [() => [1, 32, 100]],
    numbers: { multiple: "count", block: "index", most: "index" },
  },
  aimedPattern: layoutRow,
  patternFor: layoutRow,
  narrowed: { calls: [() => [1, "bf16"]], numbers: { bits: "index" } },
  splitmix32: { calls: [() => [1]], numbers: { seed: "integer" } },
  words: { calls: [() => [1, 2]], numbers: { seed: "integer", count: "index" } },
  optionsOf: nameRow,
  specsOf: nameRow,
  quantizeSpec: { calls: [() => [["mxfp8"]]] },
  sourceTypes: specRow,
  sourceType: specRow,
  layoutsOf: specRow,
  scaleLayout: specRow,
};
