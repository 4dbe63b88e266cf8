/** `lockstep replay`: judges a recorded run of PyTorch on a CPU. */

import { UnsupportedError } from "../../errors.js";
import { codeText } from "../../io/codes.js";
import { compareRuns, type RunComparison } from "../../referee/against.js";
import { contractTerms, readContract } from "../../referee/contract.js";
import { type Difference, elementCoordinates } from "../../referee/differences.js";
import { describeDivision, judgeOperation, type Verdict } from "../../referee/replay.js";
import { type RecordedOperation, readLog } from "../../referee/run.js";
import { defineCommand } from "../command.js";
import { flag, integer, optional, someText, value } from "../options.js";
import { runPage } from "../pictures/run-page.js";
import { withFile } from "../pieces.js";
import type { Session } from "../session.js";

/** The maximum length of a log or a contract, in bytes. */
const MAX_LOG_BYTES = 2 ** 28;

function placeOf({ first, computed }: Difference): string {
  if (!first) return "";
  const { dtype, shape } = computed;
  const [recordedCode, modelledCode] = [codeText(dtype, first.a), codeText(dtype, first.b)];
  return `; first at [${elementCoordinates(shape, first.index)}]: recorded ${recordedCode.value} (${recordedCode.code}), computed ${modelledCode.value} (${modelledCode.code})`;
}

function differenceLines(difference: Difference): readonly string[] {
  const { output, different, elements, isSample, computed, lines } = difference;
  const count =
    different === undefined
      ? "differs"
      : `${different} of ${elements}${isSample ? " sampled" : ""} elements differ`;
  const description = `  output ${output}, ${computed.dtype} [${computed.shape}]: ${count}${placeOf(difference)}`;
  return [description, ...lines.map((line) => `    ${line}`)];
}

/** The report of a difference as JSON, without bytes. */
function differenceJson(difference: Difference): unknown {
  const { output, different, elements, first, computed, isSample, lines } = difference;
  const { dtype, shape } = computed;
  const located = first && {
    coordinate: elementCoordinates(shape, first.index),
    recorded: codeText(dtype, first.a),
    computed: codeText(dtype, first.b),
  };
  return { output, dtype, shape, different, elements, sampled: isSample, first: located, lines };
}

/** The reasons why operations have no model, with the number of operations. The most frequent reason comes first. */
function reasonsOf(
  verdicts: readonly Verdict[],
): readonly { readonly schema: string; readonly reason: string; readonly count: number }[] {
  const counts = new Map<string, { schema: string; reason: string; count: number }>();
  for (const { schema, reason } of verdicts) {
    if (reason === undefined) continue;
    const entry = counts.get(`${schema} ${reason}`) ?? { schema, reason, count: 0 };
    counts.set(`${schema} ${reason}`, { ...entry, count: entry.count + 1 });
  }
  return [...counts.values()].sort((a, b) => b.count - a.count);
}

async function operationsOf({ files }: Session, folder: string): Promise<readonly RecordedOperation[]> {
  const path = `${folder}/log.json`;
  return readLog(path, await files.text(path, "a log", MAX_LOG_BYTES));
}

/** The line about the comparison with another run. */
function comparisonLine(otherRun: string, { compared, different, first }: RunComparison): string {
  if (!first) return `against ${otherRun}: the outputs of ${compared} operations are the same`;
  const { index, schema, what } = first;
  return `against ${otherRun}: operation ${index}, ${schema}, is the first of ${different} that differ: ${what}`;
}

/** The products that are the same with K divided. */
function splitLines(verdicts: readonly Verdict[]): readonly string[] {
  const counts = new Map<string, number>();
  for (const verdict of verdicts) {
    const division = describeDivision(verdict);
    const name = `${verdict.schema} with K in ${division}`;
    if (division !== undefined) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => `same: ${name}, ${count}`);
}

export const replay = defineCommand({
  name: "replay",
  summary:
    "computes each operation of a recorded run of PyTorch from its recorded inputs, and compares the results bit by bit; exits with 1 if any differ",
  details: [
    "RUN is a folder that lockstep.torch.record wrote: log.json, tensors.safetensors and contract.json. An operation is the same, differs, or is not modelled; the first ones that differ are explained. All NaN are equal. A product beyond the sizes that a GPU confirmed is also the same if it is so with K in 2 to 64 splits, whose number cuBLASLt chooses; an f32 product also if it is so with lanes, sums that take terms in turn. If none fits an f32 product, it is not modelled. An operation is unverified if no GPU has confirmed its model under the versions of the contract. If no operation is modelled, the exit status is 2.",
  ],
  example: "run",
  inputs: ["RUN"],
  options: {
    examples: value({
      placeholder: "N",
      help: "number of operations that differ to explain",
      parse: integer(0, 1000),
      fallback: 3,
      shown: "3",
    }),
    against: optional({
      placeholder: "RUN",
      help: "also compare the outputs with those of another run of the program, by their digests",
      parse: someText,
      file: "read",
    }),
    page: optional({
      placeholder: "HTML",
      help: "page to write: every operation with its verdict, and the differences explained",
      parse: someText,
      file: "written",
    }),
    "all-modelled": flag("exit with 1 also if an operation is not modelled"),
  },
  async run({ session, values, inputs: [folder = ""] }) {
    const path = `${folder}/log.json`;
    const operations = await operationsOf(session, folder);
    const comparison =
      values.against === undefined
        ? undefined
        : compareRuns(operations, await operationsOf(session, values.against));
    const contractPath = `${folder}/contract.json`;
    const contract = readContract(
      contractPath,
      await session.files.text(contractPath, "a contract", MAX_LOG_BYTES),
    );
    const backend = await session.backend();
    const verdicts = await withFile(session.files.open(`${folder}/tensors.safetensors`), async (file) => {
      const progress = session.progress(operations.length, "operations");
      const list: Verdict[] = [];
      for (const [index, operation] of operations.entries()) {
        list.push(await judgeOperation({ backend, file, contract }, path, operation, index));
        progress.add(1);
      }
      progress.finish();
      return list;
    });
    const verdictsOf = (kind: Verdict["verdict"]): readonly Verdict[] =>
      verdicts.filter(({ verdict }) => verdict === kind);
    const [equalVerdicts, differentVerdicts, unknown] = [
      verdictsOf("same"),
      verdictsOf("differs"),
      verdictsOf("not modelled"),
    ];
    const reasons = reasonsOf(unknown);
    if (equalVerdicts.length + differentVerdicts.length === 0 && !comparison)
      throw new UnsupportedError(
        "replay",
        `none of the ${verdicts.length} operations of ${folder} is modelled, so nothing was compared`,
      );
    const unverified = verdicts.filter((verdict) => verdict.unverified).length;
    const count = `${verdicts.length} operations: ${equalVerdicts.length} same, ${differentVerdicts.length} differ, ${unknown.length} not modelled; ${unverified} unverified`;
    const listedVerdicts = differentVerdicts.slice(0, values.examples);
    const lines = [
      ...(comparison ? [comparisonLine(values.against as string, comparison)] : []),
      ...listedVerdicts.flatMap(({ index, schema, differences = [] }) => [
        `operation ${index}, ${schema}: differs`,
        ...differences.flatMap(differenceLines),
      ]),
      ...(listedVerdicts.length < differentVerdicts.length
        ? [`${differentVerdicts.length - listedVerdicts.length} further operations differ`]
        : []),
      ...splitLines(equalVerdicts),
      ...reasons.map(({ schema, reason, count }) => `not modelled: ${schema}, ${count}: ${reason}`),
    ];
    const report = {
      run: folder,
      equal: differentVerdicts.length === 0,
      against: comparison,
      operations: verdicts.length,
      same: equalVerdicts.length,
      differs: differentVerdicts.length,
      notModelled: unknown.length,
      unverified,
      first: differentVerdicts[0]?.index,
      reasons,
      verdicts: verdicts.map(({ differences, ...verdict }) =>
        differences ? { ...verdict, differences: differences.map(differenceJson) } : verdict,
      ),
    };
    const { page } = values;
    if (page !== undefined)
      await session.files.writeText(
        page,
        runPage({
          ...{ run: folder, summary: count, operations, verdicts },
          comparison: comparison && comparisonLine(values.against as string, comparison),
          contract: Object.entries(contractTerms(contract)).map(([term, value]) => [
            term,
            String(value ?? "unknown"),
          ]),
          explain: ({ differences = [] }) => differences.flatMap(differenceLines),
        }),
      );
    if (lines.length > 0) session.result(report, [...lines, count]);
    else session.summary(report, [count]);
    return differentVerdicts.length > 0 || comparison?.first || (values["all-modelled"] && unknown.length > 0)
      ? 1
      : 0;
  },
});
