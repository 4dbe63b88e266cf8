import { beforeAll, describe, expect, test } from "vitest";
import * as twin from "../../oracle/core/math.js";
import { fromBits } from "../../oracle/core/rational.js";
import * as wide from "../../oracle/core/wide.js";
import { anyF32, EVERY_BF16, evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { draws, sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";

const FUNCTIONS = [
  { name: "exp", definition: twin.exp, truth: wide.exp },
  { name: "log", definition: twin.log, truth: wide.log },
  { name: "tanh", definition: twin.tanh, truth: wide.tanh },
  { name: "erf", definition: twin.erf, truth: wide.erf },
  { name: "sigmoid", definition: twin.sigmoid, truth: wide.sigmoid },
];
const samples = anyF32(draws(1 << 17));

let stems: Stems;
beforeAll(async () => {
  stems = await openStems();
});

describe.each(FUNCTIONS)("$name", ({ name, definition, truth }) => {
  test("has the bits of its definition, for every bf16 and random f32", () => {
    const call = stems.call[name]!;
    const mismatches = [...SPECIALS, ...EVERY_BF16, ...samples].filter(
      (x) => !Object.is(call(x), definition(x)),
    );
    expect(mismatches).toEqual([]);
  });

  test("is within 0.51 ulp of the true value", () => {
    const call = stems.call[name]!;
    const inputs = [
      ...EVERY_BF16.filter((_, i) => i % (IS_FULL ? 16 : 128) === 3),
      ...samples.slice(0, draws(1 << 12)),
    ];
    const finiteInputs = inputs.filter((x) => Number.isFinite(x) && (name !== "log" || x > 0));
    const worst = Math.max(...finiteInputs.map((x) => wide.ulpsApart(call(x), truth(wide.real(x)))));
    expect(worst).toBeGreaterThan(0.4);
    expect(worst).toBeLessThan(0.51);
  });
});

test("2^t has the f64 bits of its definition", () => {
  const call = stems.call.exp2!;
  const inputs = [...SPECIALS, 0.5, 1.5, -0.5, 1023.6, 1024, -1022.5, -1023, ...evenF32(1 << 16, 1100)];
  expect(inputs.filter((t) => !Object.is(call(t), twin.exp2(t)))).toEqual([]);
});

describe("wide types", () => {
  const NAN = 0x7fff;

  test("bf16 and f16 widen exactly", () => {
    const mismatches = sampleCases([...new Array(1 << 16).keys()]).filter((code) => {
      const address = stems.put(Uint16Array.of(code));
      const [asBf16, asF16] = [1, 2].map((type) => stems.call.loadWide!(address, type, 0));
      stems.reset();
      const magnitude = (code & 0x3ff) + (code & 0x7c00 ? 0x400 : 0);
      const exponent = Math.max((code >> 10) & 31, 1) - 25;
      const special = code & 0x3ff ? Number.NaN : 1 / 0;
      const value = (code & 0x7c00) === 0x7c00 ? special : magnitude * 2 ** exponent;
      return !Object.is(asBf16, fromBits(code * 65536)) || !Object.is(asF16, code & 0x8000 ? -value : value);
    });
    expect(mismatches).toEqual([]);
  });

  test("narrowing is nearest even, in bulk as one by one", () => {
    const inputs = Float32Array.from([...SPECIALS, 65519.99, 65520, 3.4e38, ...samples.slice(0, 1 << 14)]);
    const halves = EVERY_BF16.slice(0, 1 << 14).map((x, i) => (i % 2 ? x + x * 2 ** -8 : x * (1 + 2 ** -11)));
    const all = Float32Array.from([...inputs, ...halves]);
    const source = stems.put(all);
    for (const { type, round } of WIDE_TYPES.slice(1)) {
      const codes = stems.allocate(2 * all.length);
      stems.call.narrow!(source, codes, type, 0, all.length);
      const bulk = stems.u16(codes, all.length).slice();
      for (const [i, x] of all.entries()) stems.call.storeWide!(codes, type, i, x);
      expect(stems.u16(codes, all.length)).toEqual(bulk);
      const wideAddress = stems.allocate(4 * all.length);
      stems.call.widen!(codes, type, 0, all.length, wideAddress);
      const values = stems.f32(wideAddress, all.length);
      const mismatches = all.filter((x, i) => {
        const isNarrowed = Number.isNaN(x) ? bulk[i] === NAN : Object.is(values[i], round(x));
        return !isNarrowed || !Object.is(stems.call.roundWide!(type, x), values[i]);
      });
      expect(mismatches).toEqual(new Float32Array());
    }
    stems.reset();
  });
});
