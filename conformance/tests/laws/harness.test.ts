/** The conformance harness itself: it detects errors, reports them clearly, and works for other implementations. */
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend, Support } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import type { OpArgs, OpName } from "../../../src/backends/ops.js";
import { ArgumentError, UnsupportedError } from "../../../src/errors.js";
import { empty } from "../../../src/ops/create.js";
import {
  type Answer,
  assertSame,
  assertSameBits,
  backendSubject,
  compareWith,
  encodeCase,
  expectNoLeak,
  fromCodes,
  GuardedBackend,
  MismatchError,
  ORACLE,
  PlainTensor,
  runConformance,
  type Subject,
} from "../../index.js";
import { derivedSeed } from "../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(async () => {
  expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  await backend.dispose();
});

/** The reference with one change. */
class AlteredBackend extends GuardedBackend {
  override readonly memory = this.inner.memory;

  constructor(
    inner: Backend,
    private readonly overrides: {
      readonly name?: Backend["name"];
      readonly run?: (op: OpName, args: OpArgs[OpName], run: () => void) => void;
      readonly supports?: (op: OpName) => Support;
    },
  ) {
    super(inner);
  }

  override get name(): Backend["name"] {
    return this.overrides.name ?? this.inner.name;
  }

  override supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return this.overrides.supports?.(op) ?? this.inner.supports(op, args);
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    const run = (): void => this.inner.run(op, args);
    if (this.overrides.run) this.overrides.run(op, args, run);
    else run();
  }
}

const decodeLaw = async (alteredBackend: Backend) => {
  const { ok, laws } = await runConformance({ backend: alteredBackend, operations: ["decode"], runs: 60 });
  return { ok, ...(laws[0] as (typeof laws)[number]) };
};

describe("comparison", () => {
  const bits = (...codes: number[]) => fromCodes("f32", [codes.length / 2, 2], codes).data;
  const compare = (actual: number[], expected: number[]) => () =>
    assertSameBits(bits(...actual), bits(...expected), { dtype: "f32", shape: [actual.length / 2, 2] });

  it("says how many elements differ, where the first is, both codes and both values", () => {
    expect(compare([0, 0, 0x3f800000, 0x80000000], [0, 0, 0x40000000, 0])).toThrow(
      "result: 2 of 4 elements differ, first at [1,0]: 0x3f800000 (1), expected 0x40000000 (2)",
    );
  });

  it("distinguishes +0 from -0, and treats all NaNs of a wide type as equal", () => {
    expect(compare([0x80000000, 0], [0, 0])).toThrow("0x80000000 (-0), expected 0x00000000 (0)");
    expect(compare([0x7f800001, 0xffffffff], [0x7fc00000, 0x7fffffff])).not.toThrow();
    expect(compare([0x7f800000, 0], [0x7f800001, 0])).toThrow(MismatchError);
  });

  it("treats the NaN codes of a narrow type as different, because only one of them is defined", () => {
    const code = (value: number) => fromCodes("e4m3", [1], [value]);
    expect(() => assertSame("codes", code(0xff), code(0x7f))).toThrow("0xff (NaN), expected 0x7f (NaN)");
  });

  it("counts FP4 by elements, not by bytes", () => {
    const [actual, expected] = [0x21, 0x31].map((byte) => fromCodes("e2m1", [1, 2], [byte & 15, byte >> 4]));
    expect(() => assertSame("codes", actual as PlainTensor, expected as PlainTensor)).toThrow(
      "1 of 2 elements differ, first at [0,1]: 0x2 (1), expected 0x3 (1.5)",
    );
  });

  it("compares types and shapes first", () => {
    const [row, column] = [fromCodes("u8", [1, 2], [1, 2]), fromCodes("u8", [2, 1], [1, 2])];
    expect(() => assertSame("codes", row, column)).toThrow("codes is u8 [1,2]");
  });
});

describe("a backend is caught", () => {
  it("that forgets to write a result", async () => {
    const forgetfulBackend = new AlteredBackend(backend, {
      run: (op, _, run) => (op === "decode" ? undefined : run()),
    });
    expect(await decodeLaw(forgetfulBackend)).toMatchObject({
      ok: false,
      failure: { message: /elements differ/ },
    });
  });

  it("that writes past the end of a result", async () => {
    const overwritingBackend = new AlteredBackend(backend, {
      run(_, args, run) {
        run();
        if (!("out" in args)) return;
        backend.memory.write(args.out.address + args.out.byteLength, Uint8Array.of(0));
      },
    });
    expect(await decodeLaw(overwritingBackend)).toMatchObject({
      ok: false,
      failure: { message: /wrote outside a tensor/ },
    });
  });

  it("that keeps memory", async () => {
    const leaks: { dispose(): void }[] = [];
    const leakingSubject: Subject = {
      decode(input) {
        const memoryBefore = backend.memoryUse();
        const address = backend.memory.allocate(8);
        leaks.push({ dispose: () => backend.memory.free(address) });
        const answer = backendSubject(backend).decode(input);
        expectNoLeak(backend, memoryBefore);
        return answer;
      },
    };
    const { laws } = await compareWith(leakingSubject, ORACLE, { runs: 5 });
    for (const tensor of leaks) tensor.dispose();
    expect(laws[0]?.failure?.message).toMatch(/8 bytes in 1 blocks were not given back/);
  });

  it("that differs from the reference, by comparison with it", async () => {
    const brokenBackend = new AlteredBackend(backend, {
      name: "cuda",
      run(op, args, run) {
        run();
        if (op === "decode" && "out" in args && args.out.byteLength > 0)
          backend.memory.write(args.out.address, Uint8Array.of(1));
      },
    });
    expect(await decodeLaw(brokenBackend)).toMatchObject({ ok: false });
    expect(await decodeLaw(new AlteredBackend(backend, { name: "cuda" }))).toMatchObject({ ok: true });
  });
});

describe("a report", () => {
  const wrongSubject: Subject = {
    async decode(input): Promise<Answer> {
      const { values } = await ORACLE.decode(input);
      const codes = values?.codes.map((code, i) => (i === 3 ? code ^ 1 : code)) ?? [];
      return values ? { values: fromCodes(values.dtype, values.shape, codes) } : {};
    },
  };

  it("of a failure has a counterexample that its seed and path replay at once", async () => {
    const { ok, laws } = await compareWith(wrongSubject, ORACLE, { runs: 100, seed: derivedSeed(5) });
    const failure = laws[0]?.failure;
    expect(ok).toBe(false);
    expect(failure?.message).toMatch(/first at \[3\]/);
    const replay = { law: laws[0]?.law ?? "", path: failure?.path ?? "" };
    const rerun = await compareWith(wrongSubject, ORACLE, { runs: 100, seed: failure?.seed ?? 0, replay });
    expect(rerun.laws[0]?.failure?.counterexample).toBe(failure?.counterexample);
    expect(rerun.laws[0]).toMatchObject({ runs: 1, failure: { shrinks: 0 } });
  });

  it("counts declined inputs by reason, and not as runs", async () => {
    const pickyBackend = new AlteredBackend(backend, {
      supports: (op) => (op === "decode" ? { ok: false, reason: "not today" } : { ok: true, agrees: "bits" }),
    });
    const declinedReasons = [{ reason: "decode: not today", count: 60 }];
    expect(await decodeLaw(pickyBackend)).toMatchObject({ ok: true, runs: 0, declined: declinedReasons });
  });

  it("is the same for the same seed, with the same inputs", async () => {
    const inputsSeen = async (seed: number) => {
      const inputs: string[] = [];
      const spy: Subject = {
        amax(input) {
          inputs.push(`${input.x}`);
          return ORACLE.amax(input);
        },
      };
      await compareWith(spy, ORACLE, { runs: 20, seed });
      return inputs;
    };
    expect(await inputsSeen(3)).toEqual(await inputsSeen(3));
    expect(await inputsSeen(3)).not.toEqual(await inputsSeen(4));
  });

  it("gives the progress of all laws together", async () => {
    const counts: number[] = [];
    await compareWith({ transpose: ORACLE.transpose }, ORACLE, {
      runs: 10,
      onProgress: (progress) => counts.push(progress.done / progress.planned),
    });
    expect(counts).toEqual(Array.from({ length: 10 }, (_, i) => (i + 1) / 10));
  });

  it("is refused for unknown names, and if no law would run", async () => {
    await expect(compareWith({}, ORACLE, { operations: ["sort"] })).rejects.toThrow(ArgumentError);
    await expect(compareWith({}, ORACLE, { operations: ["sort"] })).rejects.toThrow(/"sort".*decode, encode/);
    await expect(compareWith({ amax: ORACLE.amax }, ORACLE, { operations: ["encode"] })).rejects.toThrow(
      "the subject has no encode; it has amax",
    );
    const replay = { law: "encode is monotone", path: "0" };
    await expect(compareWith({}, ORACLE, { replay })).rejects.toThrow(/no encode; it has nothing/);
    await expect(compareWith({}, ORACLE, { replay: { law: "no such law", path: "0" } })).rejects.toThrow(
      /no law has the name "no such law"/,
    );
  });
});

describe("a single kernel under test", () => {
  /** bf16 by the usual integer trick, in and out as 16-bit words. */
  function toBf16(values: Float32Array): Uint16Array {
    return Uint16Array.from(new Uint32Array(values.buffer, values.byteOffset, values.length), (bits) => {
      if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
      return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
    });
  }

  const kernel: Subject = {
    encode({ x, format, rounding, overflow, scale }) {
      const isSupported =
        format === "bf16" && rounding === "tiesToEven" && overflow === "nonfinite" && scale === 1;
      if (!isSupported || x.dtype !== "f32")
        throw new UnsupportedError("encode", "f32 to bf16, ties to even, only");
      return { codes: new PlainTensor("u16", x.shape, toBf16(x.data as Float32Array)) };
    },
  };

  it("is compared with the oracle on the inputs that it supports, and its reasons for declining others are counted", async () => {
    const { ok, laws } = await compareWith(kernel, ORACLE, { runs: 50, seed: derivedSeed(2) });
    const reason = "encode: f32 to bf16, ties to even, only";
    expect(ok).toBe(true);
    for (const { runs, declined: declinedReasons } of laws)
      expect(declinedReasons).toEqual([{ reason, count: 50 - runs }]);
  });

  it("can be tested on given inputs only", async () => {
    const support = { rounding: "tiesToEven", overflow: "nonfinite", scale: 1 } as const;
    const inputs = {
      encode: encodeCase(fc.constant("bf16"))
        .filter(({ x }) => x.dtype === "f32")
        .map((entry) => ({ ...entry, ...support })),
    };
    const [agreementLaw] = (await compareWith(kernel, ORACLE, { runs: 200, inputs })).laws;
    expect(agreementLaw).toMatchObject({
      law: "encode agrees with the reference",
      runs: 200,
      declined: [],
    });
    const truncatingSubject: Subject = {
      encode: ({ x }) => ({
        codes: fromCodes(
          "u16",
          x.shape,
          x.codes.map((bits) => bits >>> 16),
        ),
      }),
    };
    const [failedLaw] = (await compareWith(truncatingSubject, ORACLE, { runs: 200, inputs })).laws;
    expect(failedLaw?.failure?.counterexample).toMatch(/"format":"bf16"/);
  });
});

it("new memory is filled with a pattern, so that unwritten elements are detected", () => {
  const x = empty(new GuardedBackend(backend), "u8", [4]);
  expect(x.dataSync()).toEqual(Uint8Array.of(0xa7, 0xa7, 0xa7, 0xa7));
  x.dispose();
});
