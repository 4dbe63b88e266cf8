/** The output of `lockstep conform`: laws, counterexamples, and the commands that repeat them. */
import type { LawReport } from "lockstep/conformance";
import type { Session } from "../session.js";

/** The value of --subject that names the parent process. */
export const PARENT = "-";

/** Quotes a word for a shell if it needs quotes. */
function quoteForShell(word: string): string {
  return /^[\w.,:=/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Returns the command that replays the counterexample of a failure. */
export function replayCommand(
  { general }: Session,
  program: string | undefined,
  { law, failure }: LawReport,
): string {
  const { backend, threads } = general;
  const clauses = [
    ...(program === undefined ? [] : ["--subject", program]),
    ...["--backend", backend],
    ...(threads ? ["--threads", String(threads)] : []),
  ];
  const replay = ["--seed", String(failure?.seed), "--law", law, "--path", failure?.path ?? ""];
  return ["lockstep", "conform", ...clauses, ...replay].map(quoteForShell).join(" ");
}

/** The report of a law, and the file of its counterexample if one was written. */
export interface WrittenReport extends LawReport {
  readonly file?: string;
}

/** Prints the report of a law: its runs and, if it fails, the suspected mistake, the counterexample, and how to repeat it. */
export function reportLines(
  session: Session,
  program: string | undefined,
  report: WrittenReport,
  isStored: boolean,
): string[] {
  const { law, runs, declined, failure } = report;
  const lines = [`${failure ? "FAILS" : "holds"}  ${law}: ${runs} runs`];
  for (const { reason, count } of declined) lines.push(`       declined ${count}: ${reason}`);
  for (const note of report.notes ?? []) lines.push(`       note: ${note}`);
  if (!failure) return lines;
  const { found, shrinks } = failure;
  // the mistakes are derived from all answers; a single stored input does not distinguish them
  const [first, ...otherMistakes] = (!isStored && found?.mistakes) || [];
  return [
    ...lines,
    ...(first === undefined ? [] : [`       looks like: ${first}`]),
    ...otherMistakes.map((each) => `       or: ${each}`),
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

/** Returns the command that tests the input of a file. */
function caseCommand(program: string | undefined, file: string): string {
  const subjectArgs = program === undefined || program === PARENT ? [] : ["--subject", program];
  return ["lockstep", "conform", ...subjectArgs, "--case", file].map(quoteForShell).join(" ");
}

/** A report as JSON. Inputs and answers are only in its strings and in the file. */
export function jsonOf({ failure, ...report }: WrittenReport): object {
  if (!failure) return report;
  const { input: _, found, ...fields } = failure;
  if (!found) return { ...report, failure: fields };
  const { text, message, mistakes, observations, explanation } = found;
  return { ...report, failure: { ...fields, found: { text, message, mistakes, observations, explanation } } };
}
