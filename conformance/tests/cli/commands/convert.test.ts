/** The command line: convert. Its output equals the library's, and its report agrees with the files that it writes. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { copyFixture, readContents, reportOf, VECTORS } from "../../checkpoints/files/checkpoints.js";
import { useWorkspace } from "../../harness/cli.js";
import { draws } from "../../harness/draws.js";

const w = useWorkspace();

/** Fixtures, with targets for each kind of conversion: dequantization, repacking without rounding, quantization. */
const FORMS = {
  "ct-mxfp4": { as: "ct-mxfp4", targets: ["bf16", "f32", "torchao-mxfp4-floor", "ct-mxfp8"] },
  "ct-nvfp4": { as: "ct-nvfp4", targets: ["bf16", "modelopt-nvfp4", "lockstep-mxfp8"] },
  "modelopt-fp8": { as: "modelopt-fp8", targets: ["f32", "ct-fp8-channel"] },
} as const;
type Fixture = keyof typeof FORMS;

interface Report {
  readonly output: string;
  readonly to: string;
  readonly converted: readonly string[];
  readonly ways: Readonly<Record<string, string>>;
  readonly kept: readonly string[];
  readonly left: Readonly<Record<string, string>>;
  readonly dropped: readonly string[];
  readonly shards: readonly { readonly name: string; readonly tensors: number }[];
  readonly bytes: number;
  readonly written: boolean;
  readonly changes?: readonly Readonly<Record<string, number | string>>[];
}

const optionChoices = fc.constantFrom(...(Object.keys(FORMS) as Fixture[])).chain((fixture) =>
  fc.record({
    fixture: fc.constant(fixture),
    to: fc.constantFrom(...FORMS[fixture].targets),
    selectsOne: fc.boolean(),
    declaresSource: fc.boolean(),
    dryRun: fc.boolean(),
    force: fc.boolean(),
    exists: fc.boolean(),
  }),
);

describe("convert", () => {
  it("writes and says the same for any options, and nothing where the output exists", async () => {
    await fc.assert(
      fc.asyncProperty(
        optionChoices,
        async ({ fixture, to, selectsOne, declaresSource, dryRun, force, exists }) => {
          const input = join(VECTORS, fixture);
          const [firstName = "", ...otherNames] = (await reportOf(input)).weights.map(({ name }) => name);
          const run = async (name: string, ...extraArgs: readonly string[]) => {
            if (exists) {
              mkdirSync(w.path(name));
              writeFileSync(join(w.path(name), "mine.txt"), "mine");
            }
            const args = [
              ...[
                "convert",
                input,
                "-o",
                `@${name}`,
                "--to",
                to,
                ...(selectsOne ? ["--tensors", firstName] : []),
              ],
              ...(declaresSource ? [`--as=${fixture}`] : []),
              ...(dryRun ? ["--dry-run"] : []),
              ...(force ? ["--force"] : []),
              ...extraArgs,
            ];
            return w.run(...args);
          };
          const id = w.names.length;
          const [json, text, quiet] = [
            await run(`json${id}`, "--json"),
            await run(`text${id}`),
            await run(`quiet${id}`, "--quiet"),
          ];
          const isWide = to === "bf16" || to === "f32";
          // a checkpoint has one quantization, so the other weights cannot keep theirs
          const isMixed = selectsOne && !isWide && otherNames.length > 0;
          const isTaken = exists && !force;
          const status = isTaken || isMixed ? 2 : 0;
          for (const finishedRun of [json, text, quiet])
            expect([finishedRun.status, finishedRun.stderr !== ""]).toEqual([status, status > 0]);
          if (status > 0) {
            const message = isTaken
              ? /exists; give a new folder/
              : /would stay so; a checkpoint has one quantization/;
            expect([text.stdout, text.stderr]).toEqual(["", expect.stringMatching(message)]);
            expect(exists ? readdirSync(w.path(`text${id}`)) : w.names.slice(id)).toEqual(
              exists ? ["mine.txt"] : [],
            );
            return;
          }
          const report = JSON.parse(json.stdout) as Report;
          expect([report.to, report.output, report.written]).toEqual([to, w.path(`json${id}`), !dryRun]);
          expect(report.converted).toEqual(Object.keys(report.ways));
          expect(new Set(report.converted)).toEqual(
            new Set(selectsOne ? [firstName] : [firstName, ...otherNames]),
          );
          expect(new Set(Object.values(report.ways))).toEqual(
            new Set([isWide ? "dequantized" : expect.stringMatching(/^(carried|quantized)$/)]),
          );
          expect(new Set(report.kept)).toEqual(new Set(selectsOne && isWide ? otherNames : []));
          const lines = text.stdout.trimEnd().split("\n");
          for (const name of report.converted)
            expect(lines.filter((line) => line.startsWith(`${name}: `))).toHaveLength(1);
          expect(lines.at(-1)).toBe(
            `${w.path(`text${id}`)}: ${report.converted.length} weights to ${to}, ${report.kept.length} still quantized, ${report.bytes} bytes in ${report.shards.length} shards${dryRun ? " (not written)" : ""}`,
          );
          if (dryRun) {
            expect([report.changes, existsSync(w.path(`json${id}`))]).toEqual([undefined, exists]);
            return;
          }
          expect(quiet.stdout).toBe("");
          const output = await readContents(w.path(`json${id}`));
          const sizes = [...output.tensors.values()].map(({ bytes }) => bytes.length);
          expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(report.bytes);
          for (const otherName of [`text${id}`, `quiet${id}`])
            expect((await readContents(w.path(otherName))).tensors).toEqual(output.tensors);
          expect(existsSync(join(w.path(`json${id}`), "mine.txt"))).toBe(exists);
          for (const { name } of report.shards) expect(readdirSync(w.path(`json${id}`))).toContain(name);
          expect(report.changes?.map(({ name }) => name)).toEqual(report.converted);
          for (const { way, name, changed, max, relativeRms, sqnr } of report.changes ?? []) {
            expect(way).toBe(report.ways[String(name)]);
            const isExact = changed === 0;
            expect([max === 0, relativeRms === 0, sqnr === "Infinity"]).toEqual([isExact, isExact, isExact]);
            // a global scale that the other library stores as its reciprocal is rounded
            if (way === "carried") expect(relativeRms).toBeLessThan(2 ** -23);
          }
        },
      ),
      { numRuns: draws(24, 5) },
    );
  });

  it.each<readonly [readonly string[], string, RegExp]>([
    [["@in", "--to", "bf16"], "ARGUMENT", /--output DIR is needed|--output/],
    [["@in", "-o", "@out"], "ARGUMENT", /--to/],
    [["@in", "-o", "@out", "--to", "bf17"], "ARGUMENT", /bf17/],
    [["@in", "-o", "@out", "--to", "te"], "ARGUMENT", /te/],
    [["@in", "-o", "@out", "--to", "bf16", "--tensors", "nothing*"], "ARGUMENT", /nothing\*/],
    [["@in", "-o", "@out", "--to", "bf16", "--as", "mxfp4"], "ARGUMENT", /--as: "mxfp4" is not one of/],
    [["@in", "-o", "@out", "--to", "bf16", "--as", "ct-nvfp4"], "FILE", /./],
    [["@none", "-o", "@out", "--to", "bf16"], "FILE", /none/],
    [["@empty", "-o", "@out", "--to", "bf16"], "FILE", /empty/],
    [["@file.txt", "-o", "@out", "--to", "bf16"], "FILE", /file\.txt/],
    [["@in", "-o", "@file.txt", "--to", "bf16", "--force"], "ARGUMENT", /exists; give a new folder$/m],
    [["@in", "-o", "@none/out", "--to", "bf16"], "FILE", /cannot be made|cannot be written/],
    [["@in", "@in", "-o", "@out", "--to", "bf16"], "ARGUMENT", /one argument too many/],
    [["-o", "@out", "--to", "bf16"], "ARGUMENT", /PATH/],
  ])("refuses %j, and writes nothing", async (args, code, message) => {
    copyFixture("ct-mxfp4", w.path("in"));
    mkdirSync(w.path("empty"));
    writeFileSync(w.path("file.txt"), "no checkpoint");
    const filesBefore = [w.names, readdirSync(w.path("in"))];
    const { status, stdout, stderr } = await w.run("convert", ...args);
    expect({ status, stdout, stderr }).toEqual({
      status: 2,
      stdout: "",
      stderr: expect.stringMatching(message),
    });
    const json = await w.run("convert", ...args, "--json");
    expect(json.status).toBe(2);
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: false, error: { code } });
    expect([w.names, readdirSync(w.path("in"))]).toEqual(filesBefore);
  });
});
