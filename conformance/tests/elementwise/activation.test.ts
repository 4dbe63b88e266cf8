import { beforeAll, describe, expect, test } from "vitest";
import { ACTIVATION } from "../../../src/formats/contract.gen.js";
import * as wide from "../../oracle/core/wide.js";
import { type ActivationName, gatedElement, RULES, swish } from "../../oracle/elementwise/activation.js";
import { anyF32, EVERY_BF16, evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { derivedSeed } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { describeLaws, useBackend } from "../harness/suite.js";

const NAMES = [
  "gelu",
  "relu",
  "silu",
  "qgelu",
  "srelu",
  "sigmoid",
] as const satisfies readonly ActivationName[];
const SCRATCH = 1 << 14;
const inputs = [...SPECIALS, ...EVERY_BF16, ...anyF32(1 << 15), ...evenF32(1 << 15, 12)];
const zip = (n: number) => Array.from({ length: n }, (_, i) => i);

let stems: Stems;
beforeAll(async () => {
  stems = await openStems();
});

function resetScratch(): number {
  stems.reset();
  return stems.allocate(SCRATCH);
}

describe.each(NAMES.map((name, kind) => ({ name, kind, rule: RULES[name] })))(
  "$name",
  ({ name, kind, rule }) => {
    function run(): { readonly values: number[]; readonly derivatives: number[] } {
      const scratch = resetScratch();
      const n = inputs.length;
      const src = stems.putWide(0, inputs);
      const oneGradients = stems.putWide(
        0,
        inputs.map(() => 1),
      );
      const [value, derivative] = [stems.allocate(4 * n), stems.allocate(4 * n)];
      const source = { src, srcType: 0, dstType: 0, kind };
      const part = { scratch, begin: 0, end: n };
      stems.run("activation", { ...source, dst: value }, part);
      stems.run("activationBackward", { ...source, grad: oneGradients, gradType: 0, dst: derivative }, part);
      return { values: stems.getWide(0, value, n), derivatives: stems.getWide(0, derivative, n) };
    }

    test("the value and the derivative have the bits of their definition", () => {
      const { values, derivatives } = run();
      expect(inputs.filter((x, i) => !Object.is(values[i], Math.fround(rule.value(x))))).toEqual([]);
      expect(inputs.filter((x, i) => !Object.is(derivatives[i], Math.fround(rule.derivative(x))))).toEqual(
        [],
      );
    });

    test("the value is within 0.51 ulp of the true one, the derivative within 0.51 ulp or 2^-31", () => {
      const { values, derivatives } = run();
      const testedIndices = zip(inputs.length).filter(
        (i) => i % (IS_FULL ? 8 : 64) === 1 && Number.isFinite(inputs[i]),
      );
      const ulps = testedIndices.map((i) =>
        wide.ulpsApart(values[i]!, rule.trueValue(wide.real(inputs[i]!))),
      );
      expect(Math.max(...ulps)).toBeLessThan(0.51);
      for (const i of testedIndices) {
        const truth = rule.trueDerivative(wide.real(inputs[i]!));
        const distanceInUlps = wide.ulpsApart(derivatives[i]!, truth);
        const absolute = Math.abs(derivatives[i]! - Number(truth >> 192n) / 2 ** 64);
        expect(
          distanceInUlps < 0.51 || absolute < 2 ** -31,
          `${name}'(${inputs[i]}): ${distanceInUlps} ulp`,
        ).toBe(true);
      }
    });
  },
);

test.each(WIDE_TYPES)(
  "$name sources and results are rounded once, however the range is divided among threads",
  ({ type, round }) => {
    const values = [...SPECIALS, ...evenF32(1500, 6)].map(round);
    const n = values.length;
    for (const out of WIDE_TYPES) {
      const scratch = resetScratch();
      const src = stems.putWide(type, values);
      const dst = stems.allocate(4 * n);
      for (const [begin, end] of [
        [0, 1],
        [1, 514],
        [514, 515],
        [515, n],
      ] as const) {
        const args = { src, srcType: type, dst, dstType: out.type, kind: 0 };
        stems.run("activation", args, { scratch, begin, end });
      }
      const expected = values.map((x) => out.round(Math.fround(RULES.gelu.value(x))));
      expect(stems.getWide(out.type, dst, n)).toEqual(expected);
    }
  },
);

describe("gated", () => {
  const clamp = { alpha: Math.fround(1.702), limit: 7, offset: 1 };
  const cases = NAMES.map((name, kind) => ({
    name: name as string,
    kind,
    rule: RULES[name],
    clamp: undefined,
  }));
  const allCases = [...cases, { name: "clamped swiglu", kind: -1, rule: swish(clamp.alpha), clamp }];

  test.each(allCases)(
    "$name has the bits of its definition forward and backward, for any width",
    ({ kind, rule, clamp }) => {
      for (const columns of [1, 3, 32, 511, 513, 1030]) {
        const rows = 3;
        const scratch = resetScratch();
        const x = [...SPECIALS, ...evenF32(2 * rows * columns, 10, columns)].slice(0, 2 * rows * columns);
        const upstream = evenF32(rows * columns, 3, 77);
        const [src, grad] = [stems.putWide(0, x), stems.putWide(0, upstream)];
        const [out, dx] = [stems.allocate(4 * rows * columns), stems.allocate(8 * rows * columns)];
        const activation = clamp
          ? { kind: ACTIVATION.silu, clamps: true, ...clamp }
          : { kind, clamps: false, alpha: 0, limit: 0, offset: 0 };
        const source = { src, srcType: 0, dstType: 0, columns, ...activation };
        for (const [begin, end] of [
          [0, 1],
          [1, rows],
        ] as const) {
          const part = { scratch, begin, end };
          stems.run("gated", { ...source, dst: out }, part);
          stems.run("gatedBackward", { ...source, grad, gradType: 0, dst: dx }, part);
        }
        const expected = zip(rows * columns).map((i) => {
          const [row, column] = [Math.floor(i / columns), i % columns];
          const a = 2 * row * columns + column;
          return { a, ...gatedElement(rule, x[a]!, x[a + columns]!, upstream[i]!, clamp) };
        });
        const gradient = stems.getWide(0, dx, 2 * rows * columns);
        expect(stems.getWide(0, out, rows * columns)).toEqual(expected.map((element) => element.out));
        expect(expected.map((element) => gradient[element.a])).toEqual(expected.map((element) => element.dA));
        expect(expected.map((element) => gradient[element.a + columns])).toEqual(
          expected.map((element) => element.dG),
        );
      }
    },
  );
});

const ACTIVATIONS = ["activation", "activationBackward", "gated", "gatedBackward"] as const;
describeLaws(useBackend({ threads: 2 }), ACTIVATIONS, { runs: 150, seed: derivedSeed(18) });
