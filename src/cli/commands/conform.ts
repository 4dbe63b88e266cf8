/** `lockstep conform`: runs the conformance laws over generated inputs. */
import type { ConformanceOptions, ConformanceReport, LawReport } from "lockstep/conformance";
import type { Backend } from "../../backends/backend.js";
import { ArgumentError, LockstepError, UnsupportedError } from "../../errors.js";
import { requirePackages } from "../../packages.js";
import { defineCommand } from "../command.js";
import { integer, optional, positiveFloat32, someText, value } from "../options.js";
import type { Session } from "../session.js";
import { Parent, SubjectProcess } from "../subject/process.js";
import { ProgramSubject, remembering } from "../subject/subject.js";
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

function describe(session: Session, program: string | undefined, report: LawReport): string[] {
  const { law, runs, declined, failure } = report;
  const lines = [`${failure ? "FAILS" : "holds"}  ${law}: ${runs} runs`];
  for (const { reason, count } of declined) lines.push(`       declined ${count}: ${reason}`);
  if (!failure) return lines;
  return [
    ...lines,
    `       counterexample, after ${failure.shrinks} shrinks: ${failure.counterexample}`,
    `       ${failure.message.replace(/\s*\n\s*/g, " ")}`,
    `       replay: ${replayCommand(session, program, report)}`,
  ];
}

export const conform = defineCommand({
  name: "conform",
  summary:
    "tests a backend against its definition by property-based tests (laws); exits with 1 if a law fails",
  details: [
    "With --subject, tests a program in any language instead: a shell starts CMD, which reads inputs from standard input and writes results to standard output (docs/protocol.md). The results are compared with those of the backend. If CMD is -, the subject is the program that started this one.",
    "The reference (--backend wasm) is compared with independent oracles in exact arithmetic, and a GPU with the reference. Prints the inputs that the backend does not support, with the reasons. For a failure, prints the shrunk counterexample and the command that replays it.",
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
  },
  async run({ session, values: { subject: program, deadline, op, runs, seed, law, path }, given }) {
    if (path !== undefined && law === undefined)
      throw new ArgumentError("--path is of a law; give --law as well");
    if (given.has("deadline") && program === undefined)
      throw new ArgumentError("--deadline is for --subject; give both, or leave out --deadline");
    requirePackages("the conformance suite", "fast-check");
    const backend = await session.backend();
    const progress = session.progress(1, "");
    const options: ConformanceOptions = {
      runs,
      seed,
      ...(op ? { operations: op } : {}),
      ...(law !== undefined ? { replay: { law, path: path ?? "" } } : {}),
      onProgress: ({ done, planned }) => progress.set(done / planned),
    };
    const run =
      program === undefined
        ? runOn(backend, options)
        : runOnProgram(backend, peerOf(session, program), { ...options, deadline: deadline * 1000 });
    const { report, name } = await run.catch((error: unknown) => {
      const isPath =
        error instanceof ArgumentError && path !== undefined && error.message.startsWith("path ");
      if (!isPath) throw error;
      throw new ArgumentError(
        `--path ${path} leads to no input of law "${law}" under seed ${seed}; give --seed, --law and --path as the failure printed them`,
        { cause: error },
      );
    });
    progress.finish();
    const laws = report.laws.map((each) =>
      each.failure ? { ...each, replay: replayCommand(session, program, each) } : each,
    );
    const failed = laws.filter(({ failure }) => failure).length;
    const lines = [
      ...laws
        .filter(({ failure }) => failure || !session.general.quiet)
        .flatMap((each) => describe(session, program, each)),
      `${laws.length - failed} of ${laws.length} laws hold for ${name}, ${runs} inputs each, seed ${seed}`,
    ];
    if (program !== PARENT)
      session.result(
        { backend: backend.name, ...(program ? { subject: name } : {}), runs, ...report, laws },
        lines,
      );
    return report.ok ? 0 : 1;
  },
});

/** A report, and the name of what was tested. */
interface Tested {
  readonly report: ConformanceReport;
  readonly name: string;
}

async function runOn(backend: Backend, options: ConformanceOptions): Promise<Tested> {
  const { runConformance } = await import("lockstep/conformance");
  return { report: await runConformance({ backend, ...options }), name: backend.name };
}

/** Holds a program to a backend. Only the inputs that it says it supports are drawn. */
async function runOnProgram(
  backend: Backend,
  begin: () => Peer,
  { deadline, ...options }: ConformanceOptions & { readonly deadline: number },
): Promise<Tested> {
  const harness = await import("lockstep/conformance");
  // the program's questions need the answer, and the law compares with it
  const reference = remembering(harness.backendSubject(backend));
  const { program, hello, subject } = await ProgramSubject.start(begin, harness, { deadline, reference });
  try {
    const asked = Array.from(hello.operations).filter(([name]) => options.operations?.includes(name) ?? true);
    const inputs = Object.assign(
      {},
      ...asked.map(([name, supported]) => harness.supportedInputs(name, supported)),
    );
    const report = await harness.compareWith(subject, reference, { ...options, inputs, comparing: true });
    requireChecked(report, hello.name);
    program.tell({ type: "report", ...report });
    return { report, name: hello.name };
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
