/** `lockstep conform`: runs the conformance laws over generated inputs. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { ConformanceOptions, ConformanceReport } from "lockstep/conformance";
import { ArgumentError } from "../../errors.js";
import { ACCUMULATOR_NAMES } from "../../orders/accumulators.js";
import { requirePackages } from "../../packages.js";
import { defineCommand } from "../command.js";
import { choice, integer, oneOf, optional, positiveFloat32, someText, value } from "../options.js";
import { withFile } from "../pieces.js";
import type { Session } from "../session.js";
import { readCounterexample, type StoredCase, writeCounterexample } from "../subject/counterexample-file.js";
import type { Harness } from "../subject/harness.js";
import { conformAnyOrder, ORDER_CHOICES, requireOrderOptions } from "./conform-order.js";
import { jsonOf, PARENT, replayCommand, reportLines, type WrittenReport } from "./conform-report.js";
import { peerOf, type RunOptions, runOn, runOnProgram, type Tested } from "./conform-run.js";

/** Parses the path of a failure: the index of the generated input, then the index of each shrinking step. */
function failurePath(text: string): string {
  if (/^\d+(:\d+)*$/.test(text)) return text;
  throw new ArgumentError(`"${text}" is not a failure's path, integers from 0 between colons, such as 4:0:1`);
}

export const conform = defineCommand({
  name: "conform",
  summary:
    "tests a backend against its definition by property-based tests (laws); exits with 1 if a law fails",
  details: [
    "With --subject, tests a program in any language instead: a shell starts CMD, which reads inputs from standard input and writes results to standard output (docs/protocol.md). The results are compared with those of the backend. If CMD is -, the subject is the program that started this one.",
    "With --order any, the order in which a product or sum is added is free. The order is searched by exclusion and then every element has to have its bits; without one, every element has to lie in the interval that holds all orders under the declared accumulator (docs/test-my-kernel.md).",
    "The reference (--backend wasm) is compared with independent oracles in exact arithmetic, and a GPU with the reference. Prints the inputs that the backend does not support, with the reasons. For a failure, prints what the mistake looks like, where it is a known one, a counterexample of few and simple values, how the first wrong element has to be computed, and the command that replays it. A mistake is named if it explains every bit of all answers.",
  ],
  example: "--op encode,amax --runs 20",
  inputs: [],
  options: {
    subject: optional({
      placeholder: "CMD",
      help: "test this program instead of the backend",
      parse: someText,
    }),
    deadline: value({
      placeholder: "S",
      help: "with --subject: the number of seconds that an answer may take",
      parse: positiveFloat32,
      fallback: 60,
      shown: "60",
    }),
    op: optional({
      placeholder: "OP,…",
      help: "test only these operations",
      parse: (text) => text.split(","),
    }),
    runs: value({
      placeholder: "N",
      help: "number of inputs for each law",
      parse: integer(1),
      fallback: 100,
      shown: "100",
    }),
    seed: value({
      placeholder: "S",
      help: "seed of the inputs",
      parse: integer(0, 2 ** 31 - 1),
      fallback: 1,
      shown: "1",
    }),
    law: optional({ placeholder: "LAW", help: "test only the law with this name", parse: (text) => text }),
    path: optional({
      placeholder: "P",
      help: "with --law and --seed: replay the counterexample at this path",
      parse: failurePath,
    }),
    counterexample: optional({
      placeholder: "DIR",
      help: "write the counterexample of each failing operation to a file in this folder",
      parse: someText,
    }),
    order: choice(ORDER_CHOICES, {
      help: "the order of sums",
      meanings: { reference: "the reference's, bit by bit", any: "any order, for products and column sums" },
      fallback: "reference",
    }),
    accumulator: optional({
      placeholder: ACCUMULATOR_NAMES.join("|"),
      help: "with --order any: the accumulator that the kernel declares (docs/cli.md; default: f32 for f32 operands, else tensor-core)",
      parse: oneOf(ACCUMULATOR_NAMES),
    }),
    case: optional({
      placeholder: "FILE",
      help: "test only the input in this file, which --counterexample wrote",
      parse: someText,
      file: "read",
    }),
  },
  async run({ session, values, usedOptions }) {
    if (values.subject === PARENT && session.general.json)
      throw new ArgumentError("--subject - reports in a frame; leave out --json");
    requireConsistent(values, usedOptions);
    requireOrderOptions(values.order, usedOptions);
    requirePackages("the conformance suite", "fast-check");
    const backend = await session.backend();
    const harness = await import("lockstep/conformance");
    if (values.order === "any") return conformAnyOrder(session, backend, values, harness);
    const progress = session.progress(1, "");
    const stored = await storedCase(session, values.case, harness);
    const options: RunOptions = {
      stored,
      ...lawOptions(values, stored !== undefined),
      onProgress: ({ done, planned }) => progress.set(done / planned),
    };
    const { report, name, notes } = await withPathHint(values, () =>
      values.subject === undefined
        ? runOn(backend, harness, options)
        : runOnProgram(backend, peerOf(session, values.subject), harness, {
            ...options,
            deadline: values.deadline * 1000,
          }),
    );
    progress.finish();
    const laws = await writtenReports(session, values, report, { harness, isStored: stored !== undefined });
    if (values.subject !== PARENT)
      session.result(
        {
          backend: backend.name,
          ...(values.subject ? { subject: name, notes } : {}),
          runs: values.runs,
          ...report,
          laws: laws.map(jsonOf),
        },
        resultLines(session, values, { laws, name, notes }),
      );
    return report.ok ? 0 : 1;
  },
});

/** The options of `conform` that the functions below read. */
interface ConformValues {
  readonly subject: string | undefined;
  readonly op: readonly string[] | undefined;
  readonly runs: number;
  readonly seed: number;
  readonly law: string | undefined;
  readonly path: string | undefined;
  readonly counterexample: string | undefined;
  readonly case: string | undefined;
}

/** Throws `ArgumentError` for options that exclude or require each other. */
function requireConsistent(values: ConformValues, usedOptions: ReadonlySet<string>): void {
  if (values.path !== undefined && values.law === undefined)
    throw new ArgumentError("--path is of a law; give --law as well");
  if (values.case !== undefined) {
    const conflictingOption = ["op", "runs", "seed", "law", "path", "counterexample"].find((name) =>
      usedOptions.has(name),
    );
    if (conflictingOption !== undefined)
      throw new ArgumentError(`--case has one input of one operation; leave out --${conflictingOption}`);
  }
  if (usedOptions.has("deadline") && values.subject === undefined)
    throw new ArgumentError("--deadline is for --subject; give both, or leave out --deadline");
}

/** Reads the input of --case; undefined without the option. */
async function storedCase(
  session: Session,
  path: string | undefined,
  harness: Harness,
): Promise<StoredCase | undefined> {
  if (path === undefined) return undefined;
  return withFile(session.files.open(path), (file) => readCounterexample(file, harness));
}

/** The options of the laws. A stored input runs once. */
function lawOptions({ op, runs, seed, law, path }: ConformValues, isStored: boolean): ConformanceOptions {
  return {
    runs: isStored ? 1 : runs,
    seed,
    ...(op ? { operations: op } : {}),
    ...(law !== undefined ? { replay: { law, path: path ?? "" } } : {}),
  };
}

/** Calls `body`. If the path of --path leads to no input, the error names the options that must be used together. */
async function withPathHint<T>({ path, law, seed }: ConformValues, body: () => Promise<T>): Promise<T> {
  try {
    return await body();
  } catch (error) {
    if (!(error instanceof ArgumentError && path !== undefined && error.message.startsWith("path ")))
      throw error;
    throw new ArgumentError(
      `--path ${path} leads to no input of law "${law}" under seed ${seed}; give --seed, --law and --path as the failure printed them`,
      { cause: error },
    );
  }
}

/** The reports of the laws. Writes a file for each counterexample if --counterexample names a folder. */
async function writtenReports(
  session: Session,
  { subject, counterexample: folder }: ConformValues,
  report: ConformanceReport,
  { harness, isStored }: { readonly harness: Harness; readonly isStored: boolean },
): Promise<readonly WrittenReport[]> {
  const laws: WrittenReport[] = [];
  for (const lawReport of report.laws) {
    const law =
      lawReport.failure && !isStored
        ? { ...lawReport, replay: replayCommand(session, subject, lawReport) }
        : lawReport;
    const counterexample = lawReport.failure?.found;
    if (!counterexample || folder === undefined) {
      laws.push(law);
      continue;
    }
    const file = join(folder, `${lawReport.operation}.safetensors`);
    await mkdir(folder, { recursive: true });
    await writeCounterexample(session, file, harness, counterexample);
    laws.push({ ...law, file });
  }
  return laws;
}

/** The lines of the result: the laws that failed (without --quiet, all laws), the notes, and a summary. */
function resultLines(
  session: Session,
  { subject, runs, seed, case: stored }: ConformValues,
  { laws, name, notes }: { readonly laws: readonly WrittenReport[] } & Pick<Tested, "name" | "notes">,
): readonly string[] {
  const passedLaws = laws.filter(({ failure }) => !failure).length;
  const inputs = stored === undefined ? `${runs} inputs each, seed ${seed}` : `for the input of ${stored}`;
  return [
    ...laws
      .filter(({ failure }) => failure || !session.general.quiet)
      .flatMap((law) => reportLines(session, subject, law, stored !== undefined)),
    ...notes.map((note) => `note   ${note}`),
    `${passedLaws} of ${laws.length} laws hold for ${name}, ${inputs}`,
  ];
}
