/** The command line: statistics of compare. */
import { describe, expect, it } from "vitest";
import { DIALECT_NAMES } from "../../../../src/dialects/table.js";
import { type FileTensor, f32, raw, useWorkspace } from "../../harness/cli.js";
import { sampleCases } from "../../harness/draws.js";

const w = useWorkspace();

/** 32 rows of 64: the first block has an exact tie of e4m3 under the scale 1; the rest are small. */
const VALUES = Float32Array.from({ length: 2048 }, (_, i) =>
  i === 0 ? 448 : i === 1 ? -1.0625 : (i % 7) / 8,
);
const X = f32("x", [32, 64], VALUES);

interface Report {
  readonly equal: boolean;
  readonly passes?: boolean;
  readonly tensors: readonly {
    readonly name: string;
    readonly statistics: {
      readonly different: number;
      readonly causes: Record<string, number>;
      readonly maxUlp: number;
    };
    readonly examples: readonly { readonly explanation?: string }[];
  }[];
}

/** Writes x, its quantization, and a copy with changed bytes. */
async function quantizedTensors(
  alter: (codes: Uint8Array, scales: Uint8Array) => void,
  ...options: readonly string[]
): Promise<void> {
  await w.write("in", [X]);
  await w.succeed("quantize", "@in", "-o", "@a", "--quantizer", "mxfp8", ...options);
  const { tensors, metadata } = await w.read("a");
  const copies = Object.values(tensors).map((tensor) => ({ ...tensor, bytes: tensor.bytes.slice() }));
  const bytes = (suffix: string) =>
    copies.find(({ name }) => name.endsWith(suffix))?.bytes ?? new Uint8Array();
  alter(bytes(".data"), bytes(".scale_inv"));
  await w.write("b", copies, metadata);
}

async function report(...options: readonly string[]): Promise<Report & { readonly status: number }> {
  const { status, stdout, stderr } = await w.run("compare", "@a", "@b", "--json", ...options);
  expect(stderr).toBe("");
  return { status, ...(JSON.parse(stdout) as Report) };
}

const dataOf = ({ tensors }: Report) => tensors.find(({ name }) => name.endsWith(".data"));

describe("compare --stats", () => {
  it("counts an exact tie, explains it, and names half-away rounding", async () => {
    await quantizedTensors((codes) => {
      codes[1] = 0xb9;
    });
    const { status, stdout } = await w.run("compare", "@a", "@b", "--stats", "--inputs", w.path("in"));
    expect(status).toBe(1);
    expect(stdout).toMatch("1 of 2048 differ: 1 exact ties");
    expect(stdout).toContain(
      "[0,1]: x = -0x1.1p+0 (-1.0625), exact tie between 0xb8 and 0xb9: even gives 0xb8, yours 0xb9; half-away rounding?",
    );
  });

  it("says which rule gives a scale that differs, and counts the elements under it", async () => {
    await quantizedTensors((_codes, scales) => {
      scales[3] = 0x75;
    });
    const result = await report("--stats", "--inputs", w.path("in"));
    expect(dataOf(result)?.statistics.causes).toMatchObject({ scale: 27, tie: 0, wrong: 0 });
    expect(dataOf(result)?.examples[0]?.explanation).toContain(
      "amax 0x1.8p-1 (0.75): e8m0Up gives the scale 0x76, yours 0x75, 1 code away",
    );
  });

  it.each([
    ["a minus zero", (codes: Uint8Array) => codes.fill(0x80, 7, 8), "signOfZero"],
    ["NaN", (codes: Uint8Array) => codes.fill(0x7f, 9, 10), "nan"],
    ["a code far off", (codes: Uint8Array) => codes.fill(0x01, 9, 10), "wrong"],
  ])("counts %s", async (_, alter, cause) => {
    await quantizedTensors(alter);
    const { statistics } = dataOf(await report("--stats")) ?? {};
    expect(statistics?.causes).toEqual({
      scale: 0,
      tie: 0,
      offByOne: 0,
      signOfZero: 0,
      nan: 0,
      wrong: 0,
      [cause]: 1,
    });
  });

  const PASSING_OPTIONS: readonly (readonly [string, readonly string[], number])[] = [
    ["one code", ["--ulp", "1"], 0],
    ["no code", ["--ulp", "0"], 1],
    ["an absolute error", ["--max-abs", "0.125"], 0],
    ["a smaller absolute error", ["--max-abs", "0.12"], 1],
    ["a relative error", ["--max-rel", "0.125"], 0],
    ["a smaller relative error", ["--max-rel", "0.12"], 1],
    ["a ratio", ["--min-sqnr", "60"], 0],
    ["a larger ratio", ["--min-sqnr", "200"], 1],
    ["two limits of which one is exceeded", ["--ulp", "1", "--max-abs", "0"], 1],
    ["no limit", ["--stats"], 1],
  ];
  it.each(PASSING_OPTIONS)("exits by the limit of %s", async (_, options, expected) => {
    await quantizedTensors((codes) => {
      codes[1] = 0xb9;
    });
    const { status, passes, equal } = await report(...options);
    expect({ status, passes, equal }).toEqual({
      status: expected,
      passes: expected === 0,
      equal: false,
    });
  });

  it("never allows NaN on one side, another scale of a power of two, other shapes, or a missing tensor", async () => {
    const limits = ["--ulp", "300", "--max-abs", "1e30", "--max-rel", "1e30", "--min-sqnr", "-1000"];
    await quantizedTensors((codes) => codes.fill(0x7f, 9, 10));
    expect((await report(...limits)).status).toBe(1);
    await quantizedTensors((_codes, scales) => scales.fill(0x75, 3, 4));
    expect((await report("--ulp", "300")).status).toBe(1);
    await w.write("a", [f32("x", [2], [1, 2])]);
    await w.write("b", [f32("x", [1, 2], [1, 2])]);
    expect((await report(...limits)).status).toBe(1);
    await w.write("b", []);
    expect((await report(...limits)).status).toBe(1);
  });

  const PLAIN: readonly (readonly [FileTensor["dtype"], readonly number[], readonly number[], number])[] = [
    ["BF16", [0x80, 0x3f, 0, 0], [0x81, 0x3f, 0, 0], 1],
    ["F16", [0, 0x3c], [0xff, 0x3b], 1],
    ["F32", [0, 0, 0x80, 0x3f], [3, 0, 0x80, 0x3f], 3],
    ["F64", [0, 0, 0, 0, 0, 0, 0xf0, 0x3f], [2, 0, 0, 0, 0, 0, 0xf0, 0x3f], 2],
    ["F8_E5M2", [0x01], [0x81], 2],
    ["F4", [0x21], [0x31], 1],
    ["F6_E2M3", [0x40, 0, 0], [0x80, 0, 0], 1],
    ["I8", [0xff], [0x01], 2],
    ["I64", [0, 0, 0, 0, 0, 0, 0, 0x80], [1, 0, 0, 0, 0, 0, 0, 0x80], 1],
    ["BOOL", [0], [1], 1],
  ];
  it.each(PLAIN)("counts codes between elements of %s", async (dtype, a, b, ulp) => {
    const bits = { F4: 4, F6_E2M3: 6, BF16: 16, F16: 16, F32: 32, F64: 64, I64: 64 }[dtype as string] ?? 8;
    const shape = [(a.length * 8) / bits];
    await w.write("a", [raw("x", dtype, shape, a)]);
    await w.write("b", [raw("x", dtype, shape, b)]);
    const { tensors } = await report("--stats");
    expect(tensors[0]?.statistics).toMatchObject({ different: 1, maxUlp: ulp });
  });

  /** bf16 values whose scaled values are mostly not bf16 numbers. */
  const WIDE = raw(
    "x",
    "BF16",
    [32, 128],
    Array.from({ length: 32 * 128 }, (_, i) => [
      (i * 73) % 256,
      0x3e + (i % 2) + 128 * (i % 3 === 0 ? 1 : 0),
    ]).flat(),
  );

  /** The largest difference between the f32 values of x in two files, and the relative difference. */
  async function errorsOf(
    ...options: readonly string[]
  ): Promise<{ readonly maxAbsError: number; readonly maxRelError: number }> {
    const values: Float32Array[] = [];
    for (const side of ["a", "b"]) {
      await w.succeed("dequantize", `@${side}`, "-o", `@${side}-values`, "--dtype", "f32", ...options);
      const { tensors } = await w.read(`${side}-values`);
      values.push(new Float32Array(tensors.x?.bytes.slice().buffer ?? new ArrayBuffer(0)));
    }
    const [a = new Float32Array(), b = new Float32Array()] = values;
    const errors = Array.from(a, (x, i) => Math.abs(x - (b[i] ?? Number.NaN)));
    expect(errors.filter((error) => error > 0)).toHaveLength(8);
    return {
      maxAbsError: Math.max(...errors),
      maxRelError: Math.max(...errors.map((error, i) => (error > 0 ? error / Math.abs(a[i] ?? 0) : 0))),
    };
  }

  it.each(sampleCases(DIALECT_NAMES, 4))(
    "measures errors of the values that %s reads, and of the values that dequantize reads",
    async (dialect) => {
      await w.write("in", [WIDE]);
      await w.succeed("quantize", "@in", "-o", "@a", "--dialect", dialect);
      const { tensors, metadata } = await w.read("a");
      const copies = Object.values(tensors).map((tensor) => ({ ...tensor, bytes: tensor.bytes.slice() }));
      const codes = copies.find(({ name }) => name.endsWith(".data"))?.bytes ?? new Uint8Array();
      // one code of eight blocks becomes its neighbour
      for (let i = 0; i < 8; i++) codes[Math.floor((i * codes.length) / 8) + 5]! ^= 1;
      await w.write("b", copies, metadata);
      expect(dataOf(await report("--stats"))?.statistics).toMatchObject(await errorsOf());
      expect(dataOf(await report("--dialect", dialect))?.statistics).toMatchObject(
        await errorsOf("--dialect", dialect),
      );
    },
  );

  it("refuses a dialect that does not have the quantizer", async () => {
    await quantizedTensors((codes) => codes.fill(1, 9, 10));
    const { status, stderr } = await w.run("compare", "@a", "@b", "--dialect", "ct-nvfp4");
    expect({ status, stderr }).toEqual({
      status: 2,
      stderr: expect.stringMatching(/ct-nvfp4 has no quantizer mxfp8; it has nvfp4/),
    });
  });

  const FUZZED = ["fuzz", "--op", "quantize", "--stochastic", "--cases", "6", "--seed", "5", "-o", "@a"];
  it.each([
    ["with its seed", ["--quantizer", "nvfp4"]],
    ["with its random bits", ["--quantizer", "mxfp6", "--random-bits", "--usage", "rowwise,columnwise"]],
  ])("explains the results of fuzz by its inputs, %s", async (_, options) => {
    await w.succeed(...FUZZED, ...options);
    const { tensors, metadata } = await w.read("a");
    const copies = Object.values(tensors).map((tensor) => ({ ...tensor, bytes: tensor.bytes.slice() }));
    for (const { name, bytes } of copies)
      if (/^out.*\.data$/.test(name) && bytes.length > 0) bytes[0] = (bytes[0] ?? 0) ^ 0x01;
    await w.write("b", copies, metadata);
    const result = await report("--prefix", "out.", "--inputs", w.path("a"), "--examples", "1");
    const texts = result.tensors.flatMap(({ examples }) => examples.map(({ explanation }) => explanation));
    expect(texts.length).toBeGreaterThan(0);
    for (const text of texts) expect(text).toMatch(/, yours 0x/);
  });
});
