/**
 * Operand names: x and w equal b and a of layout TN, bit for bit. A call needs one complete pair of names and nothing
 * of the other.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, LockstepError } from "../../../src/errors.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GeneralOperands, InputAndWeight, NamedOperands } from "../../../src/ops/gemm/named-operands.js";
import type { GemmInput, ScaledTensor } from "../../../src/ops/gemm/operand.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { gemmCase } from "../../operations/gemm/arbitrary.js";
import { batchedCase } from "../../operations/gemm/arbitrary-batched.js";
import { runBatchedGemm } from "../../operations/gemm/batched.js";
import { runGemm } from "../../operations/gemm/gemm.js";
import type { Answer } from "../../operations/operation.js";
import { draws } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

const byInputAndWeight = <T>({ a, b }: GeneralOperands<T>): InputAndWeight<T> => ({ x: b, w: a });

/** The result of a product, or the class and code of its error. */
function outcome(run: () => Answer): Answer | string {
  using _scope = new Scope();
  try {
    return run();
  } catch (error) {
    if (error instanceof LockstepError) return `${error.constructor.name} ${error.code}`;
    throw error;
  }
}

function expectSame(direct: Answer | string, general: Answer | string): void {
  if (typeof direct === "string" || typeof general === "string") expect(direct).toEqual(general);
  else assertSameAnswer(direct, general);
}

describe("x and w are b and a of layout TN", () => {
  testInScope("in gemm, for every pair of operands, datapath and epilogue", () => {
    const input = gemmCase().filter(({ layout }) => layout === "TN");
    fc.assert(
      fc.property(input, (drawn) => {
        expectSame(
          outcome(() => runGemm(backend(), drawn, byInputAndWeight)),
          outcome(() => runGemm(backend(), drawn)),
        );
      }),
      { numRuns: draws(150) },
    );
  });

  testInScope("in batchedGemm", () => {
    const input = batchedCase().filter(({ layout }) => layout === "TN");
    fc.assert(
      fc.property(input, (drawn) => {
        expectSame(
          outcome(() => runBatchedGemm(backend(), drawn, byInputAndWeight)),
          outcome(() => runBatchedGemm(backend(), drawn)),
        );
      }),
      { numRuns: draws(60) },
    );
  });

  testInScope("with the plan, the type and the leading dimensions that the product of b has", () => {
    const [x, w] = [zeros(backend(), "bf16", [2, 3, 32]), zeros(backend(), "bf16", [5, 32])];
    const [direct, general] = [gemm({ x, w }), gemm({ a: w, b: x, layout: "TN" })];
    expect(direct.plan).toEqual(general.plan);
    expect([direct.out.shape, direct.out.dtype]).toEqual([[2, 3, 5], "bf16"]);
    expect([general.out.shape, general.out.dtype]).toEqual([[2, 3, 5], "bf16"]);
  });
});

const NAMES = ["x", "w", "a", "b", "layout"] as const;
/** The states of a name in a call. */
const STATES = ["absent", "undefined", "given"] as const;
/** The only combinations that name the operands of one product. */
const WHOLE: readonly string[] = ["x w", "a b", "a b layout"];

const FUNCTIONS = {
  gemm: (options: object) => gemm(options as Parameters<typeof gemm>[0]),
  batchedGemm: (options: object) => batchedGemm(options as Parameters<typeof batchedGemm>[0]),
} as const;

/** Every assignment of a state to each of the four names. */
function* assignments(): Generator<Readonly<Record<string, (typeof STATES)[number]>>> {
  for (let code = 0; code < STATES.length ** NAMES.length; code++) {
    yield Object.fromEntries(
      NAMES.map((name, i) => [
        name,
        STATES[Math.floor(code / STATES.length ** i) % STATES.length] ?? "absent",
      ]),
    );
  }
}

/** Why these names are not one complete pair. */
function faultOf(given: readonly string[]): string {
  const operands = given.filter((name) => name !== "layout");
  const [direct, general] = [/[xw]/, /[ab]/].map((pair) => operands.some((name) => pair.test(name)));
  if (direct && general) return `${operands.join(" and ")} are given; an operand has one name`;
  if (direct && given.includes("layout")) return "layout is TN and x and w are multiplied as x·wᵀ";
  const other = { x: "w", w: "x", a: "b", b: "a" }[operands[0] ?? ""];
  return other
    ? `${other} is missing; give it together with ${operands[0]}`
    : "x and w are missing; give them, or a and b";
}

describe.each(Object.entries(FUNCTIONS))("the operands of %s", (name, product) => {
  const operand = () => zeros(backend(), "bf16", name === "gemm" ? [2, 32] : [2, 2, 32]);

  testInScope("must be one complete pair and nothing of the other: each of the 243 combinations", () => {
    for (const states of assignments()) {
      const options = Object.fromEntries(
        NAMES.filter((key) => states[key] !== "absent").map((key) => {
          if (states[key] === "undefined") return [key, undefined];
          return [key, key === "layout" ? "TN" : operand()];
        }),
      );
      const given = NAMES.filter((key) => states[key] === "given");
      if (WHOLE.includes(given.join(" "))) {
        expect(product(options).out.shape).toHaveLength(name === "gemm" ? 2 : 3);
        continue;
      }
      const { live } = backend().memoryUse();
      const refused = (): unknown => product(options);
      expect(refused, given.join(" ")).toThrow(ArgumentError);
      expect(refused, given.join(" ")).toThrow(`${name}: ${faultOf(given)}`);
      expect(backend().memoryUse().live).toBe(live);
    }
  });
});

/** A pair of operand names. */
interface Naming {
  readonly input: string;
  readonly weight: string;
  readonly product: string;
  readonly of: <T>(x: T, w: T) => NamedOperands<T>;
}

const NAMINGS: readonly Naming[] = [
  { input: "x", weight: "w", product: "x·wᵀ", of: (x, w) => ({ x, w }) },
  { input: "b", weight: "a", product: "layout TN", of: (x, w) => ({ a: w, b: x }) },
];

const bf16 = (...shape: readonly number[]) => zeros(backend(), "bf16", shape);
const codes = () => zeros(backend(), "e4m3", [4, 4]);
const factors = (...scales: readonly number[]): ScaledTensor => ({
  data: codes(),
  scaleInv: tensor(backend(), scales),
});

/** Products that are refused. The error message names both operands, with this text in between. */
const REFUSED: Readonly<Record<string, (naming: Naming) => readonly [refused: () => unknown, says: string]>> =
  {
    "another K": ({ input, weight, product, of }) => [
      () => gemm(of(bf16(2, 4), bf16(3, 5))),
      `${product} sums over 5 of ${weight} [3,5] and 4 of ${input} [2,4]`,
    ],
    "another K in a batch": ({ input, weight, product, of }) => [
      () => batchedGemm(of(bf16(1, 2, 4), bf16(1, 3, 5))),
      `${product} sums over 5 of ${weight} [1,3,5] and 4 of ${input} [1,2,4]`,
    ],
    "another batch": ({ input, weight, of }) => [
      () => batchedGemm(of(bf16(1, 2, 4), bf16(2, 2, 4))),
      `${weight} is [2,2,4] and ${input} [1,2,4]`,
    ],
    "two types in a batch": ({ input, weight, of }) => [
      () => batchedGemm(of<Tensor>(bf16(1, 2, 4), zeros(backend(), "f16", [1, 2, 4]))),
      `${weight} is f16 and ${input} bf16`,
    ],
    "a matrix in a batch": ({ input, of }) => [
      () => batchedGemm(of(bf16(2, 4), bf16(1, 2, 4))),
      `${input} is [2,4]`,
    ],
    "a type that is not multiplied": ({ weight, of }) => [
      () => gemm(of<GemmInput>(bf16(2, 4), zeros(backend(), "u8", [2, 4]))),
      `${weight} is u8`,
    ],
    "an output in the weight": ({ weight, of }) => {
      const out = bf16(4, 4);
      return [() => gemm({ ...of(bf16(4, 4), out), out }), `shares memory with ${weight},`];
    },
    "an output in the input of a batch": ({ input, of }) => {
      const out = bf16(1, 4, 4);
      return [() => batchedGemm({ ...of(out, bf16(1, 4, 4)), out }), `shares memory with ${input},`];
    },
    "scales of another shape": ({ input, of }) => [
      () => gemm(of<GemmInput>(factors(1, 2), codes())),
      `the scale of ${input} is [2]`,
    ],
    "a bias gradient of scaled codes": ({ input, of }) => [
      () => gemm({ ...of<GemmInput>(factors(1), codes()), biasGradient: true, datapath: "exact" }),
      `sums ${input}, which is codes with separate scales; dequantize ${input}`,
    ],
  };

describe.each(NAMINGS)("a product of $input and $weight", (naming) => {
  for (const [what, make] of Object.entries(REFUSED)) {
    testInScope(`that is refused for ${what}: the error has the caller's names`, () => {
      const [refused, says] = make(naming);
      expect(refused).toThrow(LockstepError);
      expect(refused).toThrow(says);
    });
  }
});

it("the types refuse an incomplete pair", () => {
  const [x, w] = [bf16(2, 4), bf16(3, 4)];
  using _scope = new Scope();
  const each: readonly (() => unknown)[] = [
    // @ts-expect-error one name of each pair
    () => gemm({ x, a: w }),
    // @ts-expect-error three names
    () => gemm({ x, w, b: x }),
    // @ts-expect-error half a pair
    () => gemm({ w }),
    // @ts-expect-error a layout, which belongs to a and b
    () => gemm({ x, w, layout: "NN" }),
    // @ts-expect-error no operands
    () => gemm({ datapath: "exact" }),
    // @ts-expect-error one name of each pair
    () => batchedGemm({ a: w, x }),
    // @ts-expect-error a layout, which belongs to a and b
    () => batchedGemm({ x, w, layout: "TN" }),
  ];
  for (const refused of each) expect(refused).toThrow(ArgumentError);
  x.dispose();
  w.dispose();
});
