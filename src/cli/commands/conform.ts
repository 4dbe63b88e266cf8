/** `lockstep conform`: runs the conformance laws over generated inputs. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Answer, ConformanceOptions, ConformanceReport, LawReport, Subject } from "lockstep/conformance";
import type { Backend } from "../../backends/backend.js";
import { ArgumentError, LockstepError, UnsupportedError } from "../../errors.js";
import { requirePackages } from "../../packages.js";
import { defineCommand } from "../command.js";
import { integer, optional, positiveFloat32, someText, value } from "../options.js";
import { withFile } from "../pieces.js";
import type { Session } from "../session.js";
import { readCounterexample, type StoredCase, writeCounterexample } from "../subject/counterexample-file.js";
import type { Harness } from "../subject/harness.js";
import { Parent, SubjectProcess } from "../subject/process.js";
import { ProgramSubject, remembering } from "../subject/subject.js";
import { notesOf } from "../subject/support.js";
import { type Peer, SubjectError } from "../subject/talk.js";

/** The name of the program that started this one, among subjects. */
const PARENT = "-";

/** Quotes a word for a shell, if needed. */
function quoted(word: string): string {
  return /^[\w.,:=/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Returns the command that runs the counterexample of a failure again. */
function replayCommand(
  { general }: Session,
  program: string | undefined,
  { law, failure }: LawReport,
): string {
  const { backend, threads } = general;
  const words = [
    ...(program === undefined ? [] : ["--subject", program]),
    ...["--backend", backend],
    ...(threads ? ["--threads", String(threads)] : []),
  ];
  const replay = ["--seed", String(failure?.seed), "--law", law, "--path", failure?.path ?? ""];
  return ["lockstep", "conform", ...words, ...replay].map(quoted).join(" ");
}

/** Parses the path of a failure: the index of the generated input, then the index of each shrinking step. */
function failurePath(text: string): string {
  if (/^\d+(:\d+)*$/.test(text)) return text;
  throw new ArgumentError(`"${text}" is not a failure's path, integers from 0 between colons, such as 4:0:1`);
}

/** A report with the file of its counterexample, where one was written. */
interface Written extends LawReport {
  readonly file?: string;
}

function describe(
  session: Session,
  program: string | undefined,
  report: Written,
  isStored: boolean,
): string[] {
  const { law, runs, declined, failure } = report;
  const lines = [`${failure ? "FAILS" : "holds"}  ${law}: ${runs} runs`];
  for (const { reason, count } of declined) lines.push(`       declined ${count}: ${reason}`);
  for (const note of report.notes ?? []) lines.push(`       note: ${note}`);
  if (!failure) return lines;
  const { found, shrinks } = failure;
  // one input does not tell mistakes apart: the file has what all answers told
  const [first, ...others] = (!isStored && found?.mistakes) || [];
  return [
    ...lines,
    ...(first === undefined ? [] : [`       looks like: ${first}`]),
    ...others.map((each) => `       or: ${each}`),
    ...(first === undefined && found?.actual && !isStored
      ? [
          "       no known mistake explains every wrong bit",
          ...found.observations.map((each) => `       seen: ${each}`),
        ]
      : []),
    `       counterexample, after ${shrinks} shrinks: ${found?.text ?? failure.counterexample}`,
    `       ${(found?.message ?? failure.message).replace(/\s*\n\s*/g, " ")}`,
    ...(found?.explanation ?? []).map((line) => `         ${line}`),
    ...(isStored ? [] : [`       replay: ${replayCommand(session, program, report)}`]),
    ...(report.file === undefined
      ? []
      : [`       file: ${report.file}; again by: ${caseCommand(program, report.file)}`]),
  ];
}

/** Returns the command that gives the input of a file again. */
function caseCommand(program: string | undefined, file: string): string {
  const words = program === undefined || program === PARENT ? [] : ["--subject", program];
  return ["lockstep", "conform", ...words, "--case", file].map(quoted).join(" ");
}

/** A report as JSON: inputs and answers are texts, and files have them. */
function jsonOf({ failure, ...report }: Written): object {
  if (!failure) return report;
  const { input: _, found, ...own } = failure;
  if (!found) return { ...report, failure: own };
  const { text, message, mistakes, observations, explanation } = found;
  return { ...report, failure: { ...own, found: { text, message, mistakes, observations, explanation } } };
}

export const conform = defineCommand({
  name: "conform",
  summary:
    "tests a backend against its definition by property-based tests (laws); exits with 1 if a law fails",
  details: [
    "With --subject, tests a program in any language instead: a shell starts CMD, which reads inputs from standard input and writes results to standard output (docs/protocol.md). The results are compared with those of the backend. If CMD is -, the subject is the program that started this one.",
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
    case: optional({
      placeholder: "FILE",
      help: "test only the input in this file, which --counterexample wrote",
      parse: someText,
      file: "read",
    }),
  },
  async run({ session, values, given }) {
    const { subject: program, deadline, op, runs, seed, law, path, counterexample: folder } = values;
    if (path !== undefined && law === undefined)
      throw new ArgumentError("--path is of a law; give --law as well");
    if (values.case !== undefined) {
      const other = ["op", "runs", "seed", "law", "path", "counterexample"].find((name) => given.has(name));
      if (other !== undefined)
        throw new ArgumentError(`--case has one input of one operation; leave out --${other}`);
    }
    if (given.has("deadline") && program === undefined)
      throw new ArgumentError("--deadline is for --subject; give both, or leave out --deadline");
    requirePackages("the conformance suite", "fast-check");
    const backend = await session.backend();
    const progress = session.progress(1, "");
    const harness = await import("lockstep/conformance");
    const stored =
      values.case === undefined
        ? undefined
        : await withFile(session.files.open(values.case), (file) => readCounterexample(file, harness));
    const options: ConformanceOptions & { readonly stored?: StoredCase | undefined } = {
      stored,
      runs: stored ? 1 : runs,
      seed,
      ...(op ? { operations: op } : {}),
      ...(law !== undefined ? { replay: { law, path: path ?? "" } } : {}),
      onProgress: ({ done, planned }) => progress.set(done / planned),
    };
    const run =
      program === undefined
        ? runOn(backend, harness, options)
        : runOnProgram(backend, peerOf(session, program), harness, { ...options, deadline: deadline * 1000 });
    const { report, name, notes } = await run.catch((error: unknown) => {
      const isPath =
        error instanceof ArgumentError && path !== undefined && error.message.startsWith("path ");
      if (!isPath) throw error;
      throw new ArgumentError(
        `--path ${path} leads to no input of law "${law}" under seed ${seed}; give --seed, --law and --path as the failure printed them`,
        { cause: error },
      );
    });
    progress.finish();
    const laws: Written[] = [];
    for (const each of report.laws) {
      const found = each.failure?.found;
      const file = found && folder !== undefined ? join(folder, `${each.operation}.safetensors`) : undefined;
      if (found && file !== undefined && folder !== undefined) {
        await mkdir(folder, { recursive: true });
        await writeCounterexample(session, file, harness, found);
      }
      const own = each.failure && !stored ? { ...each, replay: replayCommand(session, program, each) } : each;
      laws.push(file === undefined ? own : { ...own, file });
    }
    const failed = laws.filter(({ failure }) => failure).length;
    const lines = [
      ...laws
        .filter(({ failure }) => failure || !session.general.quiet)
        .flatMap((each) => describe(session, program, each, stored !== undefined)),
      ...notes.map((note) => `note   ${note}`),
      stored
        ? `${laws.length - failed} of ${laws.length} laws hold for ${name}, for the input of ${values.case}`
        : `${laws.length - failed} of ${laws.length} laws hold for ${name}, ${runs} inputs each, seed ${seed}`,
    ];
    if (program !== PARENT)
      session.result(
        {
          backend: backend.name,
          ...(program ? { subject: name, notes } : {}),
          runs,
          ...report,
          laws: laws.map(jsonOf),
        },
        lines,
      );
    return report.ok ? 0 : 1;
  },
});

/** A report, and the name of what was tested. */
interface Tested {
  readonly report: ConformanceReport;
  readonly name: string;
  /** What was not drawn or not compared, in words. */
  readonly notes: readonly string[];
}

type Options = ConformanceOptions & { readonly stored?: StoredCase | undefined };

async function runOn(backend: Backend, harness: Harness, { stored, ...options }: Options): Promise<Tested> {
  const of = stored ? await onlyStored(options, stored) : options;
  return { report: await harness.runConformance({ backend, ...of }), name: backend.name, notes: [] };
}

/** Options of a run with the input of a file alone. */
async function onlyStored(
  options: ConformanceOptions,
  { operation, input }: StoredCase,
): Promise<ConformanceOptions> {
  const { constant } = await import("fast-check");
  return { ...options, operations: [operation], inputs: { [operation]: constant(input) }, comparing: true };
}

/** The subject, given the input that has to come before each input. */
function after(subject: Subject, { operation, before }: StoredCase): Subject {
  const ask = subject[operation];
  if (!before || !ask) return subject;
  const asking = async (input: object): Promise<Answer> => {
    await ask(before as never);
    return ask(input as never);
  };
  return { ...subject, [operation]: asking };
}

/** Holds a program to a backend. Only the inputs that it says it supports are drawn. */
async function runOnProgram(
  backend: Backend,
  begin: () => Peer,
  harness: Harness,
  { deadline, stored, ...options }: Options & { readonly deadline: number },
): Promise<Tested> {
  // the program's questions need the answer, and the law compares with it
  const reference = remembering(harness.backendSubject(backend));
  const { program, hello, subject } = await ProgramSubject.start(begin, harness, { deadline, reference });
  try {
    const asked = Array.from(hello.operations).filter(([name]) => options.operations?.includes(name) ?? true);
    const supported = Object.fromEntries(asked.map(([name, { fields }]) => [name, fields]));
    const notes = asked.flatMap(([, support]) => notesOf(support));
    const report = stored
      ? await harness.compareWith(after(subject, stored), reference, await onlyStored(options, stored))
      : await harness.compareWith(subject, reference, { ...options, supported, comparing: true });
    requireChecked(report, hello.name);
    program.tell({ type: "report", ...report, laws: report.laws.map(jsonOf), notes });
    return { report, name: hello.name, notes };
  } catch (error) {
    if (error instanceof LockstepError) program.tell({ type: "report", error: error.message });
    throw error;
  } finally {
    program.dispose();
  }
}

/** Starts a command line, or takes the parent process for `-`. */
function peerOf({ io }: Session, program: string): () => Peer {
  if (program !== PARENT) return () => new SubjectProcess(program);
  let parent: Parent | undefined;
  return () => {
    if (parent) throw new SubjectError("the subject is the parent process, which cannot be started again");
    parent = new Parent(io.binary);
    return parent;
  };
}

/** Throws `UnsupportedError` for a law of which a program declined all inputs: no run passes without checking anything. */
function requireChecked({ laws }: ConformanceReport, name: string): void {
  for (const { operation, runs, failure, declined } of laws) {
    if (runs > 0 || failure) continue;
    throw new UnsupportedError(
      operation,
      `${name} declined every input, so nothing was checked: ${declined.map(({ reason }) => reason).join("; ")}; let it say in its hello what it supports`,
    );
  }
}
