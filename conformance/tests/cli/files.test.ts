/** The command line: compare, conform and fuzz. */
import { readFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import { type FileTensor, f32, raw, useWorkspace } from "../harness/cli.js";

const w = useWorkspace();

async function compare(a: readonly FileTensor[], b: readonly FileTensor[], ...options: string[]) {
  await w.write("a", a);
  await w.write("b", b);
  return w.run("compare", "@a", "@b", ...options);
}

describe("compare", () => {
  const smallTensor = f32("x", [2, 3], [0, 1, 2, 3, 4, 5]);

  it("reports equal files as equal and exits 0", async () => {
    const { status, stdout } = await compare([smallTensor], [smallTensor]);
    expect({ status, stdout }).toEqual({ status: 0, stdout: "1 of 1 tensors equal\n" });
    expect((await compare([], [])).status).toBe(0);
  });

  it("names the first difference by coordinate, values and codes, counts them all, exits 1", async () => {
    const { status, stdout } = await compare([smallTensor], [f32("x", [2, 3], [0, 1, 2, 3, -4, 6])]);
    expect(status).toBe(1);
    expect(stdout).toBe(
      "x: F32 [2,3], 2 of 6 elements differ; first at [1,1]: 4 (0x40800000) against -4 (0xc0800000)\n0 of 1 tensors equal\n",
    );
  });

  it.each<[string, FileTensor["dtype"], readonly number[], readonly number[], number]>([
    ["NaNs of f32 by any payload are equal", "F32", [1, 0, 0x80, 0x7f], [0, 0, 0xc0, 0xff], 0],
    ["NaN and infinity are not", "F32", [0, 0, 0x80, 0x7f], [1, 0, 0x80, 0x7f], 1],
    ["zeros of either sign are not", "F32", [0, 0, 0, 0], [0, 0, 0, 0x80], 1],
    ["NaNs of bf16 are equal", "BF16", [0xc0, 0x7f], [0x81, 0xff], 0],
    ["NaNs of f64 are equal", "F64", [1, 0, 0, 0, 0, 0, 0xf0, 0x7f], [0, 0, 0, 0, 0, 0, 0xf8, 0xff], 0],
    ["NaNs of F8_E4M3 are equal", "F8_E4M3", [0x7f], [0xff], 0],
    ["0x7e and 0x7f of F8_E4M3 are not", "F8_E4M3", [0x7e], [0x7f], 1],
    ["NaNs of F8_E5M2 are equal", "F8_E5M2", [0x7d], [0xff], 0],
    ["infinities of F8_E5M2 are not NaN", "F8_E5M2", [0x7c], [0x7d], 1],
    ["U8 codes are plain numbers", "U8", [0x7f], [0xff], 1],
    [
      "complex numbers have a NaN part by part",
      "C64",
      [0, 0, 0x80, 0x3f, 1, 0, 0x80, 0x7f],
      [0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x7f],
      0,
    ],
    [
      "and differ in the other part",
      "C64",
      [0, 0, 0x80, 0x3f, 1, 0, 0x80, 0x7f],
      [0, 0, 0x81, 0x3f, 0, 0, 0xc0, 0x7f],
      1,
    ],
  ])("%s", async (_, dtype, a, b, status) => {
    expect((await compare([raw("x", dtype, [1], a)], [raw("x", dtype, [1], b)])).status).toBe(status);
  });

  it("finds elements narrower than a byte, and differences far into a tensor", async () => {
    const nibbles = await compare(
      [raw("x", "F4", [2, 2], [0x21, 0x43])],
      [raw("x", "F4", [2, 2], [0x21, 0xc3])],
    );
    expect(nibbles.stdout).toMatch(
      "1 of 4 elements differ; first at [1,1]: 2 (0x4) against -4 (0xc)".replace("-4", "-2"),
    );
    const sixes = await compare(
      [raw("x", "F6_E2M3", [4], [0, 0, 0])],
      [raw("x", "F6_E2M3", [4], [0x40, 0, 0])],
    );
    expect(sixes.stdout).toMatch("first at [1]: 0 (0x00) against 0.125 (0x01)");
    const largeValues = new Float32Array(2 ** 20);
    const otherValues = largeValues.slice();
    otherValues[2 ** 20 - 3] = 1;
    const { stdout } = await compare(
      [f32("x", [2 ** 10, 2 ** 10], largeValues)],
      [f32("x", [2 ** 10, 2 ** 10], otherValues)],
    );
    expect(stdout).toMatch(
      "1 of 1048576 elements differ; first at [1023,1021]: 0 (0x00000000) against 1 (0x3f800000)",
    );
  });

  it("names tensors that only one file has, and tensors of different types or shapes", async () => {
    const a = [f32("gone", [1], [1]), f32("shape", [2, 3], new Float32Array(6)), f32("type", [1], [0])];
    const b = [
      f32("shape", [3, 2], new Float32Array(6)),
      raw("type", "I32", [1], [0, 0, 0, 0]),
      f32("new", [], [1]),
    ];
    const { status, stdout } = await compare(a, b, "--json");
    expect(status).toBe(1);
    const { tensors, equal } = JSON.parse(stdout) as {
      tensors: { name: string; status: string }[];
      equal: boolean;
    };
    expect(equal).toBe(false);
    expect(Object.fromEntries(tensors.map((tensor) => [tensor.name, tensor.status]))).toEqual({
      gone: "onlyA",
      shape: "shape",
      type: "type",
      new: "onlyB",
    });
    expect((await w.run("compare", "@a", "@b")).stdout).toMatch(/gone: F32 \[1\], missing in \S+b\n/);
  });

  it("refuses a prefix that no tensor's name begins with, and lists the names", async () => {
    const many = Array.from({ length: 9 }, (_, i) => f32(`y${i}`, [0], []));
    const wrongPrefix = await compare([smallTensor], many, "--prefix", "typo");
    expect(wrongPrefix).toMatchObject({ status: 2, stdout: "" });
    expect(wrongPrefix.stderr).toMatch(
      /^lockstep compare: --prefix: no tensor of \S+a or \S+b begins with "typo"; there are x, y0, .*y6, …\n$/,
    );
    expect((await compare([], [], "--prefix", "typo")).stderr).toMatch(/"typo"; there are none\n$/);
    expect((await compare([smallTensor], [...many, smallTensor], "--prefix", "x")).status).toBe(0);
    expect((await compare([], many, "--prefix", "y")).status).toBe(1);
  });

  it("reports the same with --json", async () => {
    const { stdout } = await compare([smallTensor], [f32("x", [2, 3], [0, 1, 2, 3, 4, -0])], "--json");
    expect(JSON.parse(stdout)).toMatchObject({
      equal: false,
      tensors: [
        {
          name: "x",
          status: "different",
          elements: 6,
          different: 1,
          first: {
            index: 5,
            coordinate: [1, 2],
            a: { value: "5", code: "0x40a00000" },
            b: { value: "-0", code: "0x80000000" },
          },
        },
      ],
    });
  });
});

describe("fuzz", () => {
  const CORPORA = [
    ["encode", ["--op", "encode", "--format", "e2m1", "--rounding", "toOdd"]],
    ["encode, stochastic", ["--op", "encode", "--format", "e5m2", "--rounding", "stochastic"]],
    [
      "quantize",
      ["--op", "quantize", "--quantizer", "nvfp4", "--usage", "rowwise,columnwise", "--stochastic"],
    ],
    [
      "quantize, with random bits",
      [
        "--op",
        "quantize",
        "--quantizer",
        "mxfp4",
        "--usage",
        "rowwise,columnwise",
        "--stochastic",
        "--random-bits",
      ],
    ],
    [
      "encode, with random bits",
      ["--op", "encode", "--format", "e4m3", "--rounding", "stochastic", "--random-bits"],
    ],
    ["quantize, delayed", ["--op", "quantize", "--quantizer", "fp8-delayed", "--scale", "3"]],
    ["gemm", ["--op", "gemm", "--split-accumulator"]],
    [
      "gemm, exact, all addends",
      ["--op", "gemm", "--datapath", "exact", "--beta", "0.5", "--bias", "--out-dtype", "e4m3"],
    ],
  ] as const;

  it.each(CORPORA)(
    "%s: the same seed gives the same bytes, and another seed gives other bytes",
    async (_, options) => {
      const make = (name: string, seed: string): Promise<string> =>
        w.succeed("fuzz", ...options, "--cases", "6", "--seed", seed, "-o", `@${name}`);
      await make("a", "1");
      await make("b", "1");
      await make("c", "2");
      const [a, b, c] = ["a", "b", "c"].map((name) => readFileSync(w.path(name)));
      expect(a?.equals(b!)).toBe(true);
      expect(a?.equals(c!)).toBe(false);
    },
  );

  it.each(["exact", "fp32", "hopper --split-k 3", "ada --split-accumulator", "blackwell --alpha -2"])(
    "has products on datapath %s",
    async (options) => {
      const output = await w.succeed(
        "fuzz",
        "--op",
        "gemm",
        "--cases",
        "12",
        "-o",
        "@out",
        "--datapath",
        ...options.split(" "),
      );
      expect(output).toMatch("12 cases of gemm");
      const { tensors } = await w.read("out");
      expect(Object.keys(tensors).filter((name) => name.endsWith(".d"))).toHaveLength(12);
    },
  );

  /** The requested operands, the data of a and b in the file, and the recorded spec of a. */
  const KINDS = [
    ["e4m3", "F8_E4M3", "F8_E4M3", undefined],
    ["e4m3:1x128,e5m2:128x128", "F8_E4M3", "F8_E5M2", undefined],
    ["e5m2:1xK,e4m3:tensor", "F8_E5M2", "F8_E4M3", undefined],
    ["bf16", "BF16", "BF16", undefined],
    ["mxfp6:e3m2,mxfp4", "U8", "U8", { quantizer: "mxfp6", format: "e3m2" }],
    ["fp8-row", "U8", "U8", { quantizer: "fp8-row", format: "e4m3" }],
    [
      "modelopt-nvfp4,torchao-nvfp4",
      "U8",
      "U8",
      { quantizer: "nvfp4", scaleRule: "twoLevelProduct", elementScaling: "divideAdd" },
    ],
    ["torchao-mxfp8-even:e5m2", "U8", "U8", { quantizer: "mxfp8", scaleRule: "e8m0Even", format: "e5m2" }],
  ] as const;

  it.each(KINDS)("multiplies operands of the kinds that are asked for: %s", async (kinds, a, b, spec) => {
    const options = ["--datapath", "exact", "--out-dtype", "f32"];
    await w.succeed("fuzz", "--op", "gemm", "--operands", kinds, "--cases", "5", "-o", "@corpus", ...options);
    const { tensors, metadata } = await w.read("corpus");
    for (let i = 0; i < 5; i++) {
      const dtypes = ["a", "b"].map(
        (x) => (tensors[`in.${i}.${x}`] ?? tensors[`in.${i}.${x}.rowwise.data`])?.dtype,
      );
      expect(dtypes).toEqual([a, b]);
      const recordedSpec = metadata?.[`lockstep.in.${i}.a`];
      if (spec) expect(JSON.parse(recordedSpec ?? "")).toMatchObject(spec);
      else expect(recordedSpec).toBeUndefined();
      expect(tensors[`out.${i}.d`]?.dtype).toBe("F32");
    }
  });

  it.each([
    ["mxfp9", /--operands: "mxfp9" is not a dtype, quantizer or dialect; did you mean mxfp[468]\?/],
    ["mxfp8,mxfp8,mxfp8", /"mxfp8,mxfp8,mxfp8" has more than two kinds/],
    ["e4m3:1x32", /"1x32" is not one of tensor, 1x128, 128x128, 1xK/],
    ["bf16:tensor", /bf16 with tile tensor; only e4m3 and e5m2 have scales/],
    ["mxfp8:e2m1", /mxfp8: format e2m1 is not one of e4m3, e5m2/],
    ["e4m3:tensor:tensor", /"e4m3:tensor:tensor" is not a dtype/],
    ["", /"" is not a dtype, quantizer or dialect/],
    ["ct-nvfp4", /scaleRule twoLevelDivisor, whose scale of the tensor divides/],
    ["mxfp8,f16", /datapath hopper does not multiply/],
  ])("refuses the kinds %s", async (kinds, reason) => {
    const { status, stderr } = await w.run("fuzz", "--op", "gemm", "--operands", kinds, "-o", "@out");
    expect(status).toBe(2);
    expect(stderr).toMatch(reason);
  });

  it("contains the results of encode and quantize", async () => {
    const options = ["--format", "e3m2", "--rounding", "towardPositive"];
    await w.succeed("fuzz", "--op", "encode", ...options, "--cases", "30", "-o", "@corpus");
    await w.succeed("encode", "@corpus", "-o", "@mine", ...options);
    const [corpus, ownTensors] = [await w.read("corpus"), await w.read("mine")];
    const cases = Object.keys(corpus.tensors).filter((name) => name.startsWith("in."));
    expect(cases).toHaveLength(30);
    for (const name of cases) {
      expect(corpus.tensors[name.replace("in.", "out.")]?.bytes, name).toEqual(
        ownTensors.tensors[name]?.bytes,
      );
    }
  });

  it("can be compared by prefix with the results of another kernel", async () => {
    await w.succeed("fuzz", "--op", "quantize", "--quantizer", "mxfp8", "--cases", "5", "-o", "@corpus");
    const { tensors } = await w.read("corpus");
    const answers = Object.values(tensors).filter(({ name }) => name.startsWith("out."));
    await w.write("mine", answers);
    expect((await w.run("compare", "@corpus", "@mine")).status).toBe(1);
    expect((await w.run("compare", "@corpus", "@mine", "--prefix", "out.")).status).toBe(0);
    const answer = answers.find(({ bytes }) => bytes.length > 0)!;
    answer.bytes[0]! ^= 1;
    await w.write("mine", answers);
    const { status, stdout } = await w.run("compare", "@corpus", "@mine", "--prefix", "out.");
    expect(status).toBe(1);
    expect(stdout).toMatch(`${answer.name}: U8`);
  });
});

describe("conform", () => {
  it("--law runs only the law of that name", async () => {
    const stdout = await w.succeed("conform", "--law", "encode is monotone", "--runs", "7");
    expect(stdout).toBe(
      "holds  encode is monotone: 7 runs\n1 of 1 laws hold for wasm, 7 inputs each, seed 1\n",
    );
  });

  it("refuses a --path that identifies no input of the law", async () => {
    const replay = ["--law", "encode is monotone", "--path", "0:999999:0"];
    const { status, stdout, stderr } = await w.run("conform", ...replay, "--seed", "4");
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toBe(
      'lockstep conform: --path 0:999999:0 leads to no input of law "encode is monotone" under seed 4; give --seed, --law and --path as the failure printed them\n',
    );
    expect((await w.run("conform", "--law", "encode is monotone", "--path", "0")).status).toBe(0);
  });

  it("prints declined inputs, the counterexample of a failure and the command that replays it, and exits 1", async () => {
    const failure = {
      counterexample: "{x:1}",
      message: "x: 1 of 1\nelements differ",
      seed: 9,
      path: "4:0:1",
      shrinks: 2,
    };
    const holdingLaw = {
      law: "it's held",
      operation: "encode",
      runs: 3,
      declined: [{ reason: "no toOdd", count: 2 }],
    };
    const failingLaw = { law: "fails", operation: "encode", runs: 5, declined: [], failure };
    const report = {
      ok: false,
      seed: 9,
      laws: [holdingLaw, failingLaw, { ...failingLaw, law: holdingLaw.law }],
    };
    vi.doMock("../../index.js", () => ({ runConformance: async () => report }));
    const { status, stdout } = await w.run("conform", "--seed", "9", "--threads", "1");
    vi.doUnmock("../../index.js");
    expect(status).toBe(1);
    expect(stdout.split("\n")).toEqual([
      "holds  it's held: 3 runs",
      "       declined 2: no toOdd",
      "FAILS  fails: 5 runs",
      "       counterexample, after 2 shrinks: {x:1}",
      "       x: 1 of 1 elements differ",
      "       replay: lockstep conform --backend wasm --threads 1 --seed 9 --law fails --path 4:0:1",
      "FAILS  it's held: 5 runs",
      "       counterexample, after 2 shrinks: {x:1}",
      "       x: 1 of 1 elements differ",
      "       replay: lockstep conform --backend wasm --threads 1 --seed 9 --law 'it'\\''s held' --path 4:0:1",
      "1 of 3 laws hold for wasm, 100 inputs each, seed 9",
      "",
    ]);
  });

  it("compares the reference with the oracles, and prints the number of laws", async () => {
    const stdout = await w.succeed("conform", "--op", "encode,amax", "--runs", "20", "--seed", "3");
    expect(stdout).toMatch(/holds {2}encode agrees with the reference: 20 runs/);
    expect(stdout).toMatch(/(\d+) of \1 laws hold for wasm, 20 inputs each, seed 3\n$/);
    const json = JSON.parse(await w.succeed("conform", "--op", "decode", "--runs", "5", "--json"));
    expect(json).toMatchObject({ ok: true, backend: "wasm", runs: 5, seed: 1 });
  });
});
