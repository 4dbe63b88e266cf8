/** A task block has room for every field that its setters write: a field more must not reach into the memory behind it. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { GEMM_TASK } from "../../../src/formats/contract.gen.js";

/** Bytes of a field (assembly/core/record.ts). */
const FIELD = 8;

/** The largest number of a member of an enum of that source, plus that of the members of a record that begins there. */
function fieldsOf(source: string): number {
  const body = (name: string): readonly string[] =>
    (new RegExp(`const enum ${name} \\{([^}]*)\\}`).exec(source)?.[1] ?? "")
      .split(",")
      .map((line) => line.trim())
      .filter((line) => line !== "");
  let next = 0;
  for (const member of body("Field")) {
    const given = /=\s*(\d+)$/.exec(member)?.[1];
    next = (given === undefined ? next : Number(given)) + 1;
  }
  return next;
}

it.each([["gemm", GEMM_TASK.bytes]] as const)(
  "the fields of assembly/%s/task.ts lie in its block",
  (folder, bytes) => {
    const source = readFileSync(new URL(`../../../assembly/${folder}/task.ts`, import.meta.url), "utf8");
    const fields = fieldsOf(source);
    expect(fields).toBeGreaterThan(30);
    expect(fields * FIELD).toBeLessThanOrEqual(bytes);
  },
);
