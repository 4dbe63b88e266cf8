/** `lockstep contract`: checks the contract of a recorded run, or compares two contracts. */
import { ArgumentError } from "../../errors.js";
import { type Contract, checkContract, contractDifferences, readContract } from "../../referee/contract.js";
import { defineCommand } from "../command.js";
import type { ExitCode } from "../command-types.js";
import type { Session } from "../session.js";

/** The maximum length of a contract, in bytes. */
const MAX_CONTRACT_BYTES = 2 ** 20;

async function contractOf(session: Session, run: string): Promise<Contract> {
  const path = `${run}/contract.json`;
  return readContract(path, await session.files.text(path, "a contract", MAX_CONTRACT_BYTES));
}

async function check(session: Session, run: string): Promise<ExitCode> {
  const contract = await contractOf(session, run);
  const { problems, witnessed, unverified } = checkContract(contract);
  const { torch, driver } = contract.versions;
  session.result({ run, ok: problems.length === 0, contract, problems, witnessed, unverified }, [
    `${run}: chip ${contract.chip ?? "none"}, computed by ${contract.computedBy}, PyTorch ${torch ?? "unknown"}, driver ${driver ?? "unknown"}`,
    ...problems,
    `confirmed by a GPU under these versions: ${witnessed.join(", ") || "no operator"}; ${unverified.length} operators are unverified`,
  ]);
  return problems.length > 0 ? 1 : 0;
}

async function diffOf(session: Session, a: string, b: string): Promise<ExitCode> {
  const differences = contractDifferences(await contractOf(session, a), await contractOf(session, b));
  const lines = differences.map(
    (difference) => `${difference.term}: ${difference.a ?? "unknown"} against ${difference.b ?? "unknown"}`,
  );
  session.result({ a, b, equal: differences.length === 0, differences }, [
    ...lines,
    `${differences.length} terms differ`,
  ]);
  return differences.length > 0 ? 1 : 0;
}

export const contract = defineCommand({
  name: "contract",
  summary:
    "checks the contract of a recorded run (check RUN), or compares two (diff A B): chip, versions and settings that decide bits",
  details: [
    "check exits with 1 if the models of lockstep operators do not hold for the run: another chip, or settings such as TF32. diff exits with 1 if a term differs.",
  ],
  example: "check run",
  inputs: ["ACTION", "RUN…"],
  without: ["backend", "threads"],
  options: {},
  async run({ session, inputs: [action = "", ...runs] }) {
    const [a, b, surplus] = runs;
    if (action === "check" && a !== undefined && b === undefined) return check(session, a);
    if (action === "diff" && a !== undefined && b !== undefined && surplus === undefined)
      return diffOf(session, a, b);
    throw new ArgumentError(`contract: "${action}" with ${runs.length} runs; give check RUN or diff A B`);
  },
});
