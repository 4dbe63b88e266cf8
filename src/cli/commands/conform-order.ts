/** `lockstep conform --order any`: accepts kernels whose order of summation is free. */
import type { AnyOrderReport, OrderOptions, OrderReport, Subject } from "lockstep/conformance";
import type { Backend } from "../../backends/backend.js";
import { ArgumentError, LockstepError } from "../../errors.js";
import type { AccumulatorName } from "../../orders/accumulators.js";
import type { ExitCode } from "../command-types.js";
import type { Session } from "../session.js";
import type { Harness } from "../subject/harness.js";
import { ProgramSubject } from "../subject/subject.js";
import { PARENT } from "./conform-report.js";
import { peerOf } from "./conform-run.js";

/** The values of --order. */
export const ORDER_CHOICES = ["reference", "any"] as const;

/** The options of `lockstep conform` that a run of any order reads. */
export interface OrderValues {
  readonly subject: string | undefined;
  readonly accumulator: AccumulatorName | undefined;
  readonly deadline: number;
  readonly op: readonly string[] | undefined;
  readonly runs: number;
  readonly seed: number;
}

/** Options of laws, which compare with the reference. */
const LAW_OPTIONS = ["law", "path", "case", "counterexample"];

/** Throws `ArgumentError` for options that `--order any` does not accept. */
export function requireOrderOptions(order: string, usedOptions: ReadonlySet<string>): void {
  if (order === "any") {
    const lawOption = LAW_OPTIONS.find((name) => usedOptions.has(name));
    if (lawOption !== undefined)
      throw new ArgumentError(
        `--${lawOption} is of a law, which compares with the reference; leave out --order any`,
      );
  } else if (usedOptions.has("accumulator"))
    throw new ArgumentError("--accumulator is for --order any; give both, or leave out --accumulator");
}

/** Runs the acceptance of any order and prints its verdict. Returns the exit status. */
export async function conformAnyOrder(
  session: Session,
  backend: Backend,
  values: OrderValues,
  harness: Harness,
): Promise<ExitCode> {
  const progress = session.progress(1, "");
  const options: OrderOptions = {
    runs: values.runs,
    seed: values.seed,
    ...(values.op ? { operations: values.op } : {}),
    ...(values.accumulator ? { accumulator: values.accumulator } : {}),
    onProgress: ({ done, planned }) => progress.set(done / planned),
  };
  const { report, name } = await (values.subject === undefined
    ? acceptBackend(backend, harness, options)
    : acceptProgram(session, values.subject, backend, harness, {
        ...options,
        deadline: values.deadline * 1000,
      }));
  progress.finish();
  if (values.subject !== PARENT)
    session.result(
      { order: "any", ...(values.subject ? { subject: name } : {}), backend: backend.name, ...report },
      reportLines(session, report, name, values),
    );
  return report.ok ? 0 : 1;
}

/** A report, and the name of the judged backend or program. */
interface Accepted {
  readonly report: AnyOrderReport;
  readonly name: string;
}

async function acceptBackend(backend: Backend, harness: Harness, options: OrderOptions): Promise<Accepted> {
  const { gemm, columnSum } = harness.backendSubject(backend);
  return { report: await harness.acceptAnyOrder({ gemm, columnSum }, options), name: backend.name };
}

async function acceptProgram(
  session: Session,
  command: string,
  backend: Backend,
  harness: Harness,
  { deadline, ...options }: OrderOptions & { readonly deadline: number },
): Promise<Accepted> {
  const reference = harness.backendSubject(backend);
  const { program, hello, subject } = await ProgramSubject.start(peerOf(session, command), harness, {
    deadline,
    reference,
    compares: false,
  });
  try {
    const supported = Object.fromEntries(
      Array.from(hello.operations, ([name, { fields }]) => [name, fields]),
    );
    const report = await harness.acceptAnyOrder(subject satisfies Subject, { ...options, supported });
    program.send({ type: "report", order: "any", ...report });
    return { report, name: hello.name };
  } catch (error) {
    if (error instanceof LockstepError) program.send({ type: "report", error: error.message });
    throw error;
  } finally {
    program.dispose();
  }
}

function operationLines({ operation, ok, runs, declined, lines }: OrderReport): readonly string[] {
  return [
    `${ok ? "accepted" : "REJECTED"}  ${operation}, any order: ${runs} inputs`,
    ...declined.map(({ reason, count }) => `       declined ${count}: ${reason}`),
    ...lines.map((line) => `       ${line}`),
  ];
}

function reportLines(
  session: Session,
  { operations, ok }: AnyOrderReport,
  name: string,
  { runs, seed }: OrderValues,
): readonly string[] {
  return [
    ...operations.filter((each) => !each.ok || !session.general.quiet).flatMap(operationLines),
    `${name} is ${ok ? "accepted" : "rejected"}, ${runs} inputs each, seed ${seed}`,
  ];
}
