/** The command line: encode, decode, sweep, quantize, dequantize, and the messages for bad usage and bad input. */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { COMMANDS, runCli } from "../../../src/cli/main.js";
import { NO_BINARY } from "../../../src/cli/session.js";
import { factsOf, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarLayout } from "../../../src/formats/scalar.js";
import { programPath } from "../harness/bundle.js";
import { f32, floats, ramp, raw, useWorkspace } from "../harness/cli.js";

const w = useWorkspace();

describe("usage", () => {
  it("lists the commands, and each command's --help its options, with status 0", async () => {
    const help = await w.succeed("--help");
    for (const { name } of COMMANDS) {
      expect(help).toContain(`\n  ${name} `);
      expect(await w.succeed(name, "--help")).toMatch(new RegExp(`^lockstep ${name}`));
    }
  });

  it.each<[string, RegExp]>([
    ["", /no command was given; there are info, encode/],
    ["encrypt", /"encrypt" is not a command/],
    ["encode", /encode: IN is needed/],
    ["encode @in", /--output OUT is needed/],
    ["encode @in -o @out", /--format F is needed/],
    ["encode @in -o @out --format e9m9", /--format: no scalar format has the name "e9m9"; there are e4m3/],
    ["encode @in @two -o @out --format e4m3", /"\S+two" is one argument too many/],
    ["encode @in -o @out --format e4m3 --rounding up", /--rounding: "up" is not one of tiesToEven/],
    ["encode @in -o @out --format e4m3 --seed -1", /--seed: "-1" is not an integer from 0 to 2\^64 - 1/],
    ["encode @in -o @out --format e4m3 --frobnicate", /there is no option --frobnicate/],
    ["encode @in -o @out --format", /--format needs a value/],
    ["encode @in -o @out --format e4m3 --quiet=yes", /--quiet takes no value; "yes" was given/],
    ["encode @in -o @out --format e4m3 --threads 0", /--threads: "0" is not an integer from 1 to 64/],
    ["encode @in -o @out --format e4m3 --backend cuda", /cuda: .*open "wasm"/],
    ["sweep --format e4m3 --chunks 3-300", /--chunks: "3-300" is not A-B with 0 <= A <= B <= 255/],
    ["sweep --format e4m3 --chunks 4-3", /--chunks: "4-3"/],
    [
      "quantize @in -o @out --quantizer mxfp8 --usage rows",
      /--usage: "rows" is not one of rowwise, columnwise/,
    ],
    [
      "quantize @in -o @out --quantizer mxfp8 --pow2-scales",
      /--pow2-scales is for fp8-current, fp8-block, fp8-row; the quantizer is mxfp8/,
    ],
    ["quantize @in -o @out --quantizer mxfp8 --scale 2", /--scale is for fp8-delayed/],
    [
      "quantize @in -o @out --quantizer fp8-block --stochastic",
      /--stochastic is for mxfp8, mxfp6, mxfp4, nvfp4/,
    ],
    ["quantize @in -o @out --quantizer mxfp8 --random-bits", /--random-bits is for stochastic rounding/],
    ["encode @in -o @out --format e4m3 --random-bits", /--random-bits is for stochastic rounding/],
    ["quantize @in -o @out --quantizer fp8-block --pow2-scales --no-pow2-scales", /exclude each other/],
    [
      "quantize @in -o @out --quantizer fp8-block --amax-epsilon -1",
      /--amax-epsilon: "-1" is not a number from 0/,
    ],
    ["quantize @in -o @out --quantizer fp8-delayed --scale 0", /--scale: "0" is not a positive number/],
    [
      "quantize @in -o @out --quantizer fp8-delayed --scale 1e99",
      /--scale: "1e99" is not a finite number of f32's range/,
    ],
    [
      "quantize @in -o @out --quantizer mxfp6 --format e4m3",
      /--format e4m3 is not one of e2m3, e3m2, which mxfp6 has/,
    ],
    [
      "quantize @in -o @out --quantizer nvfp4 --tile 1x32",
      /--tile 1x32 is not one of 1x16, 16x16, which nvfp4 has/,
    ],
    ["quantize @in -o @out --quantizer nvfp4 --rht --four-over-six", /4over6 goes with neither/],
    ["quantize @in -o @out --quantizer nvfp4 --row-scaled --rht", /rowScaled goes with neither/],
    ["quantize @in -o @out --quantizer mxfp4 --row-scaled", /--row-scaled is for nvfp4/],
    ["quantize @in -o @out --quantizer nvfp4 --err-mode mse", /--err-mode is for --four-over-six/],
    ["quantize @in -o @out --quantizer nvfp4 --e4m3-max 256", /--e4m3-max is for --four-over-six/],
    ["quantize @in -o @out --quantizer nvfp4 --four-over-six --e4m3-max 100", /e4m3-max/],
    ["quantize @in -o @out --quantizer nvfp4 --four-over-six --err-mode l2", /err-mode/],
    ["quantize @in -o @out --quantizer mxfp8 --e4m3-max 256", /--e4m3-max is for nvfp4/],
    ["quantize @in -o @out --quantizer fp8-block --scales swizzled", /tensor "x".*no swizzled layout/],
    [
      "quantize @in -o @out --quantizer mxfp8 --tensors x,y",
      /tensor "y" is needed and not there; there are n, x/,
    ],
    [
      "quantize @in -o @out --quantizer mxfp8 --tensors n",
      /tensor "n": is I64; quantize takes F32, F16 and BF16/,
    ],
    [
      "quantize @in -o @out --quantizer nvfp4",
      /^lockstep quantize: tensor "x": last dimension 33 is not a multiple.*pad to 48/,
    ],
    [
      "quantize @in -o @out --quantizer mxfp8",
      /^lockstep quantize: tensor "x": last dimension 33 is not a multiple.*pad to 64/,
    ],
    ["encode @in -o @out --format e2m1", /tensor "x": shape \[32,33\].*the last dimension, 33, is odd/],
    ["encode @none -o @out --format e4m3", /none: cannot be read: there is no such file/],
    ["encode @in -o @no/out --format e4m3", /no\/out: cannot be written: there is no such file or folder/],
    ["fuzz --op encode -o @out", /--format is needed with --op encode/],
    ["fuzz --op encode --format e4m3 --rht -o @out", /--rht is no option of fuzz --op encode/],
    ["fuzz --op quantize -o @out", /--quantizer is needed/],
    ["conform --op nothing", /no operation is named "nothing"/],
    ["conform --law nothing", /no law has the name "nothing"/],
    ["conform --path 3:1", /--path is of a law; give --law as well/],
    ...["zz", "3:", ":", "-1", "1.5"].map((path): [string, RegExp] => [
      `conform --law sorted --path ${path}`,
      new RegExp(`--path: "${path}" is not a failure's path, integers from 0 between colons, such as 4:0:1`),
    ]),
  ])("%s exits 2 with one line and no file", async (line, message) => {
    await w.write("in", [f32("x", [32, 33], ramp(32 * 33)), raw("n", "I64", [1], new Array(8).fill(7))]);
    const { status, stdout, stderr } = await w.run(...line.split(" ").filter(Boolean));
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^lockstep[^\n]*\n$/);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(w.names).toEqual(["in"]);
  });

  it("refuses a truncated file in one line that names it", async () => {
    await w.write("in", [f32("x", [4], ramp(4))]);
    writeFileSync(w.path("in"), readFileSync(w.path("in")).subarray(0, -1));
    const { status, stderr } = await w.run("encode", "@in", "-o", "@out", "--format", "e4m3");
    expect(status).toBe(2);
    expect(stderr).toMatch(/in: tensor "x": data_offsets \[0, 16\] reach beyond the file.*truncated\n$/);
  });

  it("prints only JSON with --json, and nothing with --quiet", async () => {
    await w.write("in", [f32("x", [4], ramp(4))]);
    const json = await w.succeed("encode", "@in", "-o", "@out", "--format", "fp8e4m3", "--json");
    expect(JSON.parse(json)).toMatchObject({ format: "e4m3", encoded: ["x"] });
    expect(await w.succeed("encode", "@in", "-o", "@out", "--format", "e4m3", "--quiet")).toBe("");
    expect(JSON.parse(await w.succeed("info", "--json", "--threads", "2"))).toMatchObject({
      backends: [{ name: "wasm", threads: 2 }],
      missing: [{ name: "cuda" }],
    });
  });
});

describe("the progress bar", () => {
  const run = async (isTTY: boolean, ...options: string[]): Promise<{ stdout: string; stderr: string }> => {
    const outputs = { stdout: "", stderr: "" };
    const sink = (name: "stdout" | "stderr") => ({
      isTTY,
      columns: 60,
      write: (text: string) => (outputs[name] += text),
    });
    const status = await runCli(["sweep", "--format", "e5m2", "--chunks", "0-1", ...options], {
      stdout: sink("stdout"),
      stderr: sink("stderr"),
      binary: NO_BINARY,
    });
    expect(status).toBe(0);
    return outputs;
  };

  it("is drawn only on a terminal's stderr, within its width, and erased at the end", async () => {
    const { stdout, stderr } = await run(true);
    expect(stdout.split("\n")).toHaveLength(3);
    expect(stderr).toMatch(/^\rsweep █+░* +\d+ % of 33.6 Mcodes/);
    expect(stderr.endsWith("\r\x1b[K")).toBe(true);
    for (const line of stderr.split("\r")) expect(line.replace("\x1b[K", "").length).toBeLessThan(60);
  });

  it("is not drawn into a pipe, nor where it is quiet", async () => {
    expect((await run(false)).stderr).toBe("");
    expect((await run(true, "--quiet")).stderr).toBe("");
  });
});

describe("encode and decode", () => {
  it.each(SCALAR_FORMAT_NAMES)(
    "decode %s gives the codes' values, and encode their codes again",
    async (format) => {
      const { bits, storageBits } = factsOf(format);
      const count = Math.min(2 ** bits, 4096);
      const step = 2 ** bits / count;
      // encoding never produces the smallest code of a symmetric integer, which is only the sign bit
      const { specials }: ScalarLayout = SCALAR_FORMATS[format];
      const minusZeroCode = specials === "symmetric" ? count / 2 : -1;
      const codes = Array.from({ length: count }, (_, i) => (i === minusZeroCode ? i + 1 : i) * step);
      const storedTensor = {
        4: () =>
          raw(
            "x",
            "U8",
            [2, count / 4],
            codes.filter((_, i) => i % 2 === 0).map((code) => code | ((code + 1) << 4)),
          ),
        8: () => raw("x", "U8", [2, count / 2], codes),
        16: () => raw("x", "U16", [2, count / 2], new Uint8Array(Uint16Array.from(codes).buffer)),
        32: () => raw("x", "U32", [2, count / 2], new Uint8Array(Uint32Array.from(codes).buffer)),
      }[storageBits as 4 | 8 | 16 | 32]();
      await w.write("codes", [storedTensor]);
      await w.succeed("decode", "@codes", "-o", "@values", "--format", format);
      const values = (await w.read("values")).tensors.x!;
      expect(values).toMatchObject({ dtype: "F32", shape: [2, count / 2] });
      await w.succeed("encode", "@values", "-o", "@again", "--format", format, "--overflow", "nonfinite");
      await w.succeed("decode", "@again", "-o", "@twice", "--format", format);
      const reencodedTensor = (await w.read("again")).tensors.x!;
      expect(reencodedTensor).toMatchObject({ dtype: storedTensor.dtype, shape: storedTensor.shape });
      expect((await w.run("compare", "@values", "@twice")).status).toBe(0);
    },
  );

  it("copies other tensors and the metadata, and accepts the 8-bit types of safetensors files", async () => {
    const otherTensors = [raw("n", "I32", [1], [1, 2, 3, 4]), raw("e", "F8_E5M2", [2], [0x3c, 0x40])];
    await w.write("in", [...otherTensors, raw("f", "F8_E4M3", [2], [0x38, 0x7f])], { note: "kept" });
    await w.succeed("decode", "@in", "-o", "@out", "--format", "e4m3");
    const { tensors, metadata } = await w.read("out");
    expect({ ...metadata }).toEqual({ note: "kept" });
    expect([...floats(tensors.f!)]).toEqual([1, Number.NaN]);
    expect([tensors.n, tensors.e]).toEqual(otherTensors);
  });

  it("accepts tensors without elements and scalars, and may overwrite its input file", async () => {
    await w.write("in", [f32("none", [0, 3], []), f32("scalar", [], [2])]);
    await w.succeed("encode", "@in", "-o", "@in", "--format", "e4m3", "--force");
    const { tensors } = await w.read("in");
    expect(tensors.none).toEqual(raw("none", "U8", [0, 3], []));
    expect(tensors.scalar).toEqual(raw("scalar", "U8", [], [0x40]));
    expect(w.names).toEqual(["in"]);
  });

  it("gives the same codes for a tensor larger than one chunk", async () => {
    const count = 2 ** 23 + 6;
    const values = ramp(count);
    await w.write("in", [f32("x", [count], values), f32("tail", [6], values.subarray(-6))]);
    await w.succeed("encode", "@in", "-o", "@out", "--format", "e2m1");
    const { tensors } = await w.read("out");
    expect(tensors.x?.bytes.subarray(-3)).toEqual(tensors.tail?.bytes);
    await w.succeed("decode", "@out", "-o", "@back", "--format", "e2m1");
    const back = (await w.read("back")).tensors;
    expect(floats(back.x!).subarray(-6)).toEqual(floats(back.tail!));
  });

  it("rounds stochastically by random words that depend on seed and element index only", async () => {
    await w.write("in", [f32("x", [40], ramp(40)), f32("y", [20], ramp(20))]);
    const args = ["encode", "@in", "--format", "e2m1", "--rounding", "stochastic", "--offset", "5"];
    await w.succeed(...args, "--seed", "0xfedcba9876543210", "-o", "@a");
    await w.succeed(...args, "--seed", "18364758544493064720", "-o", "@b", "--threads", "1");
    await w.succeed(...args, "--seed", "1", "-o", "@c");
    const [a, b, c] = [await w.read("a"), await w.read("b"), await w.read("c")];
    expect(b).toEqual(a);
    expect(c).not.toEqual(a);
    expect(a.tensors.x?.bytes.subarray(0, 10)).toEqual(a.tensors.y?.bytes);
  });
});

interface Digests {
  readonly runs: readonly {
    readonly format: string;
    readonly rounding: string;
    readonly overflow: string;
    readonly chunks: readonly number[][];
  }[];
}

describe("sweep", () => {
  const { runs } = JSON.parse(
    readFileSync(new URL("../../vectors/cuda-digests.json", import.meta.url), "utf8"),
  ) as Digests;

  it.each(runs.slice(0, 4))(
    "$format $rounding $overflow digests a chunk as an independent implementation does",
    async (recordedCase) => {
      const { format, rounding, overflow } = recordedCase;
      const args = [
        "--format",
        format,
        "--rounding",
        rounding,
        "--overflow",
        overflow,
        "--chunks",
        "66-66",
        "--json",
      ];
      const chunks = recordedCase.chunks.filter(([chunk]) => chunk === 66);
      expect(JSON.parse(await w.succeed("sweep", ...args))).toEqual({ format, rounding, overflow, chunks });
    },
  );
});

describe("the program", () => {
  const program = new URL("../../../dist/src/cli/bin.js", import.meta.url).pathname;
  const isBuilt = existsSync(program);
  const programTitle = isBuilt ? "node dist/src/cli/bin.js" : "(not built: npm run build makes dist)";

  it.skipIf(!isBuilt)(`runs as ${programTitle}`, () => {
    const infoRun = spawnSync(process.execPath, [program, "info", "--json"], { encoding: "utf8" });
    expect({ status: infoRun.status, stderr: infoRun.stderr }).toEqual({ status: 0, stderr: "" });
    expect(JSON.parse(infoRun.stdout)).toMatchObject({ version: "0.1.0" });
    const failedRun = spawnSync(process.execPath, [program, "gemm"], { encoding: "utf8" });
    expect(failedRun).toMatchObject({ status: 2, stdout: "", stderr: "lockstep gemm: IN… is needed\n" });
  });

  const full = "/dev/full";
  it.skipIf(!isBuilt || !existsSync(full))(
    `exits 2 where its output cannot be written: ${existsSync(full) ? programTitle : `(there is no ${full})`}`,
    async () => {
      await w.write("in", [f32("x", [4], ramp(4))]);
      const disk = openSync(full, "w");
      const run = (args: readonly string[], stdout: number | "pipe", stderr: number | "pipe") => {
        const stdio = ["ignore" as const, stdout, stderr];
        return spawnSync(process.execPath, [programPath("bin"), ...args], { encoding: "utf8", stdio });
      };
      for (const args of [
        ["compare", w.path("in"), w.path("in")],
        ["sweep", "--format", "e2m1", "--chunks", "0"],
      ]) {
        const stderr = `lockstep ${args[0]}: standard output: cannot be written: the disk is full\n`;
        expect(run(args, disk, "pipe")).toMatchObject({ status: 2, stderr });
      }
      expect(run(["--help"], disk, "pipe").stderr).toMatch(/^lockstep: standard output[^\n]*\n$/);
      expect(run(["gemm"], "pipe", disk)).toMatchObject({ status: 2, stdout: "" });
      closeSync(disk);
    },
  );

  it.skipIf(!isBuilt)(
    `ends without an error message if its reader has closed the pipe: ${programTitle}`,
    async () => {
      const child = spawn(process.execPath, [programPath("bin"), "--help"], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      child.stdout.destroy();
      let stderr = "";
      child.stderr.on("data", (text) => (stderr += text));
      expect(await once(child, "close")).toEqual([0, null]);
      expect(stderr).toBe("");
    },
  );

  it.skipIf(!isBuilt)(
    "has every file that it needs in the package, and no source map of a source that the package lacks",
    () => {
      const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
      const [{ files }] = JSON.parse(spawnSync("npm", args, { encoding: "utf8" }).stdout) as [
        { files: { path: string }[] },
      ];
      const paths = files.map(({ path }) => path);
      const neededFiles = ["dist/src/cli/bin.js", "dist/src/index.d.ts", "dist/conformance/index.js"];
      expect(paths).toEqual(expect.arrayContaining(neededFiles));
      expect(paths.filter((path) => path.endsWith(".map"))).toEqual([]);
    },
  );
});
