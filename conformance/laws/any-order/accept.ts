/** Accepts kernels whose order of summation is free (`lockstep conform --order any`). */
import { ArgumentError, messageOf, UnsupportedError } from "../../../src/errors.js";
import type { AccumulatorName } from "../../../src/orders/accumulators.js";
import { type JudgedResult, judgeResults, type OrderVerdict } from "../../../src/orders/judge.js";
import { formatOf } from "../../operations/gemm/operand.js";
import type { Answer } from "../../operations/operation.js";
import type { Cases, Subject } from "../../operations/operations.js";
import { PlainTensor } from "../../values/plain.js";
import { checkSubject } from "../run-options.js";
import { type Drawn, drawProducts, drawSums, ORDERED_OPERATIONS, type OrderedOperation } from "./draw.js";
import { checkOrderOptions, type OrderOptions } from "./options.js";
import { productResult, sumResult } from "./results.js";
import { verdictLines } from "./words.js";

/** The outcome for one operation. */
export interface OrderReport {
  /** The operation. */
  readonly operation: OrderedOperation;
  /** Whether every element of every input is right. */
  readonly ok: boolean;
  /** The number of inputs that the kernel answered. */
  readonly runs: number;
  /** The inputs that the kernel does not support: each reason with its count. */
  readonly declined: readonly { readonly reason: string; readonly count: number }[];
  /** The verdict. Absent if the kernel gave an answer of another type or shape, or failed. */
  readonly verdict?: OrderVerdict;
  /** The description of the failure, if the kernel failed instead of answering. */
  readonly error?: string;
  /** The verdict in plain words. */
  readonly lines: readonly string[];
}

/** The outcome of a run that accepts any order. */
export interface AnyOrderReport {
  /** Whether every operation is right. */
  readonly ok: boolean;
  /** The seed that draws the same inputs again. */
  readonly seed: number;
  /** One report for each operation. */
  readonly operations: readonly OrderReport[];
}

/**
 * Tests products and sums whose order is free. Draws inputs, asks the subject, and searches the order that explains every bit of
 * its answers; without one, every element has to lie in the interval that holds all orders under the declared accumulator.
 *
 * @throws `ArgumentError` for an invalid option, an unknown accumulator, a subject without such an operation, and if it supports
 * no input whose order is free.
 */
export async function acceptAnyOrder(subject: Subject, options: OrderOptions = {}): Promise<AnyOrderReport> {
  const ownOptions = checkOrderOptions("acceptAnyOrder", options);
  const { runs = 100, seed = 1, operations, supported = {}, accumulator, onProgress } = ownOptions;
  const ownSubject = checkSubject("acceptAnyOrder", subject, "subject");
  const chosenOperations = ORDERED_OPERATIONS.filter(
    (name) => operations?.includes(name) ?? ownSubject[name],
  );
  const other = operations?.find((name) => !ORDERED_OPERATIONS.some((each) => each === name));
  if (
    chosenOperations.length === 0 ||
    other !== undefined ||
    chosenOperations.some((name) => !ownSubject[name])
  )
    throw new ArgumentError(
      `order any is for ${ORDERED_OPERATIONS.join(" and ")}; the subject has ${Object.keys(ownSubject).join(", ") || "nothing"}${operations ? `, and ${operations.join(", ")} are selected` : ""}`,
    );
  const progress = { done: 0, planned: runs * chosenOperations.length };
  const onRun = (): void => onProgress?.({ ...progress, done: ++progress.done });
  const reports: OrderReport[] = [];
  for (const name of chosenOperations) {
    const fields = supported[name] ?? {};
    const common = { runs, accumulator, onRun };
    if (name === "gemm")
      reports.push(
        await accept("gemm", drawProducts(fields, runs, seed), ownSubject.gemm as Ask<Cases["gemm"]>, {
          ...common,
          result: productResult,
          isWide: ({ a, b }) => [a, b].some(({ source }) => formatOf(source) === "f32"),
        }),
      );
    else
      reports.push(
        await accept(
          "columnSum",
          drawSums(fields, runs, seed),
          ownSubject.columnSum as Ask<Cases["columnSum"]>,
          {
            ...common,
            result: sumResult,
            isWide: () => true,
          },
        ),
      );
  }
  return { ok: reports.every(({ ok }) => ok), seed, operations: reports };
}

type Ask<C> = (input: C) => Answer | Promise<Answer>;

/** How the answers of an operation are judged. */
interface Judging<C> {
  readonly accumulator: AccumulatorName | undefined;
  readonly onRun: () => void;
  readonly result: (draw: Drawn<C>, answer: Answer) => JudgedResult;
  /** Whether an operand is f32, which tensor cores do not multiply. */
  readonly isWide: (input: C) => boolean;
}

/** Returns a description of what is wrong with the type or the shape of an answer; undefined if both are right. */
function malformed(answer: Answer, size: number): string | undefined {
  const { out } = answer;
  if (!(out instanceof PlainTensor))
    return `the answer has ${Object.keys(answer).join(", ") || "nothing"}; it has to have out`;
  if (out.codes.length !== size) return `out has ${out.codes.length} elements; it has to have ${size}`;
  return undefined;
}

async function accept<C extends Cases[OrderedOperation]>(
  operation: OrderedOperation,
  draws: readonly Drawn<C>[],
  ask: Ask<C>,
  { accumulator, onRun, result, isWide }: Judging<C>,
): Promise<OrderReport> {
  const declined = new Map<string, number>();
  const answeredDraws: { readonly drawn: Drawn<C>; readonly result: JudgedResult }[] = [];
  const failed = (error: string): OrderReport => ({
    operation,
    ok: false,
    runs: answeredDraws.length,
    declined: countsOf(declined),
    error,
    lines: [error],
  });
  for (const draw of draws) {
    onRun();
    try {
      const answer = await ask(draw.input);
      const size = "x" in draw.input ? draw.input.x.matrix[1] : sizeOf(draw.input);
      const problem = malformed(answer, size);
      if (problem !== undefined) return failed(problem);
      answeredDraws.push({ drawn: draw, result: result(draw, answer) });
    } catch (error) {
      if (!(error instanceof UnsupportedError)) return failed(messageOf(error));
      declined.set(error.message, (declined.get(error.message) ?? 0) + 1);
    }
  }
  if (answeredDraws.length === 0)
    throw new UnsupportedError(
      operation,
      `the subject declined every input, so nothing was checked: ${[...declined.keys()].join("; ")}`,
    );
  const declared =
    accumulator ?? (answeredDraws.some(({ drawn: { input } }) => isWide(input)) ? "f32" : "tensor-core");
  const verdict = judgeResults(
    answeredDraws.map((each) => each.result),
    declared,
  );
  const inputs = answeredDraws.map((each) => each.drawn);
  return {
    operation,
    ok: verdict.ok,
    runs: answeredDraws.length,
    declined: countsOf(declined),
    verdict,
    lines: verdictLines(verdict, inputs),
  };
}

const sizeOf = ({ a, b }: Cases["gemm"]): number => a.codes.matrix[0] * b.codes.matrix[0];

const countsOf = (declined: ReadonlyMap<string, number>): OrderReport["declined"] =>
  Array.from(declined, ([reason, count]) => ({ reason, count }));
