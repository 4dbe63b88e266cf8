/** `lockstep conform`: runs the conformance laws over generated inputs. */
import type { LawReport } from "lockstep/conformance";
import { ArgumentError } from "../../errors.js";
import { requirePackages } from "../../packages.js";
import { defineCommand } from "../command.js";
import { integer, optional, value } from "../options.js";
import type { Session } from "../session.js";

/** Quotes a word for a shell, if needed. */
function quoted(word: string): string {
  return /^[\w.,:=/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Returns the command that runs the counterexample of a failure again. */
function replayCommand({ general }: Session, { law, failure }: LawReport): string {
  const { backend, threads } = general;
  const words = ["--backend", backend, ...(threads ? ["--threads", String(threads)] : [])];
  const replay = ["--seed", String(failure?.seed), "--law", law, "--path", failure?.path ?? ""];
  return ["lockstep", "conform", ...words, ...replay].map(quoted).join(" ");
}

/** Parses the path of a failure: the index of the generated input, then the index of each shrinking step. */
function failurePath(text: string): string {
  if (/^\d+(:\d+)*$/.test(text)) return text;
  throw new ArgumentError(`"${text}" is not a failure's path, integers from 0 between colons, such as 4:0:1`);
}

function describe(session: Session, report: LawReport): string[] {
  const { law, runs, declined, failure } = report;
  const lines = [`${failure ? "FAILS" : "holds"}  ${law}: ${runs} runs`];
  for (const { reason, count } of declined) lines.push(`       declined ${count}: ${reason}`);
  if (!failure) return lines;
  return [
    ...lines,
    `       counterexample, after ${failure.shrinks} shrinks: ${failure.counterexample}`,
    `       ${failure.message.replace(/\s*\n\s*/g, " ")}`,
    `       replay: ${replayCommand(session, report)}`,
  ];
}

export const conform = defineCommand({
  name: "conform",
  summary:
    "tests a backend against its definition by property-based tests (laws); exits with 1 if a law fails",
  details: [
    "The reference (--backend wasm) is compared with independent oracles in exact arithmetic, and a GPU with the reference. Prints the inputs that the backend does not support, with the reasons. For a failure, prints the shrunk counterexample and the command that replays it.",
  ],
  example: "--op encode,amax --runs 20",
  inputs: [],
  options: {
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
  async run({ session, values: { op, runs, seed, law, path } }) {
    if (path !== undefined && law === undefined)
      throw new ArgumentError("--path is of a law; give --law as well");
    requirePackages("the conformance suite", "fast-check");
    const { runConformance } = await import("lockstep/conformance");
    const backend = await session.backend();
    const progress = session.progress(1, "");
    const report = await runConformance({
      backend,
      runs,
      seed,
      ...(op ? { operations: op } : {}),
      ...(law !== undefined ? { replay: { law, path: path ?? "" } } : {}),
      onProgress: ({ done, planned }) => progress.set(done / planned),
    }).catch((error: unknown) => {
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
      each.failure ? { ...each, replay: replayCommand(session, each) } : each,
    );
    const failed = laws.filter(({ failure }) => failure).length;
    const lines = [
      ...laws
        .filter(({ failure }) => failure || !session.general.quiet)
        .flatMap((each) => describe(session, each)),
      `${laws.length - failed} of ${laws.length} laws hold for ${backend.name}, ${runs} inputs each, seed ${seed}`,
    ];
    session.result({ backend: backend.name, runs, ...report, laws }, lines);
    return report.ok ? 0 : 1;
  },
});
