/**
 * The command line as a process: signals end it at once, also during a computation. A closed output pipe does not
 * change the exit status.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { programPath } from "../harness/bundle.js";
import { f32, takesThreads, useWorkspace } from "../harness/cli.js";
import { sampleCases } from "../harness/draws.js";

const w = useWorkspace();
const isBuilt = existsSync(new URL("../../../dist/src/cli/bin.js", import.meta.url));
const program = isBuilt ? programPath("bin") : "";
const programTitle = isBuilt ? "node dist/src/cli/bin.js" : "(not built: npm run build makes dist)";

/** Writes a sparse file of zeros, which uses no disk space. */
function writeSparseFile(
  name: string,
  tensors: readonly (readonly [name: string, shape: readonly number[]])[],
): void {
  let offset = 0;
  const entries = tensors.map(([tensor, shape]) => {
    const begin = offset;
    offset += 4 * shape.reduce((product, size) => product * size, 1);
    return [tensor, { dtype: "F32", shape, data_offsets: [begin, offset] }];
  });
  const header = Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(header.length));
  writeFileSync(w.path(name), Buffer.concat([prefix, header]));
  truncateSync(w.path(name), 8 + header.length + offset);
}

/** Commands that compute for longer than a test waits. */
const LONG: Readonly<Record<string, readonly string[]>> = {
  encode: ["@large", "-o", "@out", "--format", "e4m3", "--rounding", "stochastic"],
  decode: ["@codes", "-o", "@out", "--format", "tf32"],
  sweep: ["--format", "e4m3"],
  quantize: ["@large", "-o", "@out", "--quantizer", "nvfp4", "--usage", "rowwise,columnwise"],
  gemm: ["@product", "-o", "@out", "--datapath", "exact"],
  compare: ["@many", "@many"],
  conform: ["--runs", "1000000"],
  fuzz: ["--op", "gemm", "--cases", "100000", "-o", "@out"],
};

const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;
const RUNS = Object.keys(LONG).flatMap((command, i) => {
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[];
  const counts = takesThreads(command) ? [1, 2] : [1];
  return counts.map((threads) => [command, threads, names[(i + threads) % 3]!] as const);
});

/** Much longer than the signal takes on an idle machine. */
const PROMPT_MS = 3000;

describe.skipIf(!isBuilt)(`the program, as ${programTitle}`, () => {
  it.each(sampleCases(RUNS, 2))(
    "%s on %i threads ends at once on %s, and leaves no file",
    async (command, threads, signal) => {
      // below the maximum size of a tensor of the reference (docs/guide.md)
      const largeShape = [16384, 12288] as const;
      writeSparseFile("large", [["x", largeShape]]);
      const names = Array.from({ length: 8 }, (_, i) => `x${i}`);
      writeSparseFile(
        "many",
        names.map((name) => [name, largeShape]),
      );
      writeSparseFile("product", [
        ["a", [2048, 8192]],
        ["b", [2048, 8192]],
      ]);
      writeSparseFile("codes", [["x", largeShape]]);
      const namesBefore = w.names;
      const args = (LONG[command] ?? []).map((word) => (word.startsWith("@") ? w.path(word.slice(1)) : word));
      const options = takesThreads(command) ? ["--threads", String(threads)] : [];
      const child = spawn(process.execPath, [program, command, ...args, ...options], {
        stdio: ["ignore", "ignore", "pipe"],
      });
      let stderr = "";
      child.stderr.on("data", (text) => (stderr += text));
      await setTimeout(1500);
      const isRunning = child.exitCode === null;
      const killedAt = performance.now();
      child.kill(signal);
      const [status, exitSignal] = isRunning ? await once(child, "close") : [child.exitCode, null];
      // a command that has already ended cannot be interrupted; its status shows that it ended
      if (isRunning) {
        expect(performance.now() - killedAt).toBeLessThan(PROMPT_MS);
        expect(exitSignal ?? status).toBe(exitSignal ? signal : SIGNALS[signal]);
        expect(w.names.filter((name) => name.endsWith(".tmp"))).toEqual([]);
        expect(w.names).toEqual(namesBefore);
        expect(stderr).toBe("");
      } else expect([0, 1]).toContain(status);
    },
  );

  it("the exit status does not depend on when the reader closes the pipe: at once, later, or never", async () => {
    const many = Array.from({ length: 3000 }, (_, i) => f32(`tensor${i}`, [1], [i]));
    await w.write("a", many);
    await w.write(
      "b",
      many.map(({ name }) => f32(name, [1], [-1])),
    );
    const run = (shell: string): string => {
      const script = `"$NODE" "$PROGRAM" ${shell}; echo "$?" >&3`;
      const env = {
        ...process.env,
        NODE: process.execPath,
        PROGRAM: program,
        A: w.path("a"),
        B: w.path("b"),
      };
      const { output } = spawnSync("sh", ["-c", `{ ${script}; } | head -n "$LINES_READ"`], {
        encoding: "utf8",
        env: { ...env, LINES_READ: "1" },
        stdio: ["ignore", "pipe", "pipe", "pipe"],
      });
      expect(output[2]).toBe("");
      return String(output[3]).trim();
    };
    expect(run('compare "$A" "$B"')).toBe("1");
    expect(run('compare "$A" "$B" --json')).toBe("1");
    expect(run('compare "$A" "$A"')).toBe("0");
    expect(run('compare "$A" /none 2>/dev/null')).toBe("2");
    expect(run("--help")).toBe("0");
  });

  it("writes one path from several processes at a time, and leaves one whole file", async () => {
    await w.write("in", [f32("x", [64, 64], new Float32Array(4096).fill(1.5))]);
    const children = Array.from({ length: 6 }, () =>
      spawn(
        process.execPath,
        [program, "quantize", w.path("in"), "-o", w.path("out"), "--quantizer", "mxfp8", "--threads", "1"],
        { stdio: "ignore" },
      ),
    );
    for (const statuses of await Promise.all(children.map((child) => once(child, "close"))))
      expect(statuses[0]).toBe(0);
    expect(readdirSync(w.path("."))).toHaveLength(2);
    expect(Object.keys((await w.read("out")).tensors)).toHaveLength(2);
  });
});
