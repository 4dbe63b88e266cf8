/**
 * A conversion to any form makes no value NaN or infinite: it refuses, or its output has no error. The reported errors equal
 * plain loops over elements.
 */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LOCKSTEP_TARGETS } from "../../../../src/checkpoints/convert/targets/lockstep.js";
import { DIALECT_TARGETS, parseTarget } from "../../../../src/checkpoints/convert/targets/named.js";
import { conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { FileError } from "../../../../src/errors.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { convertTo, inFolder, reportOf, transpose, valuesIn, writeContents } from "../files/checkpoints.js";
import { bf16 } from "../files/plain.js";

const backend = useBackend({ threads: 1 });
const SIDE = 128;
const NAME = "blk.0.ffn_down.weight";
const EXPERTS = "mlp.experts.down_proj";

/** Weights of realistic distribution: sums of four uniform draws. */
const ORDINARY = (() => {
  let state = 7;
  const draw = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return Array.from({ length: SIDE * SIDE }, () => bf16((draw() + draw() + draw() + draw() - 2) / 16).value);
})();
const ordinaryWith = (index: number, value: number) =>
  ORDINARY.map((element, i) => (i === index ? value : element));

/** Matrices of bf16 values. */
const INPUTS = {
  ordinary: ORDINARY,
  "with rows of zeros": ORDINARY.map((value, i) => (i % (3 * SIDE) < SIDE || i % 256 < 64 ? 0 : value)),
  "of zeros": ORDINARY.map((_, i) => (i % 2 === 0 ? 0 : -0)),
  tiny: ORDINARY.map((value) => bf16(value * 2 ** -122).value),
  "with tiny rows": ORDINARY.map((value, i) => (i < SIDE ? bf16(value * 2 ** -120).value : value)),
  "with a huge row": ORDINARY.map((value, i) => (i < SIDE ? bf16(value * 2 ** 124).value : value)),
} as const;
const REFUSED = {
  NaN: ordinaryWith(77, Number.NaN),
  infinity: ordinaryWith(77, Number.POSITIVE_INFINITY),
} as const;

/** Every target. The modes of torchao differ only in the quantizer; two of the modes cover every scale rule. */
const TARGETS = [...DIALECT_TARGETS, ...LOCKSTEP_TARGETS.keys()].filter(
  (name) => !/^torchao-mx.*-(ceil|even)$/.test(name),
);

const isExperts = (target: string): boolean => {
  const { dialectTarget: row } = parseTarget(target);
  return row !== undefined && conventionOf(row.convention).transposedWide === true;
};

/** Converts a matrix, and calls `body` with the folder of the output. */
async function withConverted<T>(
  target: string,
  values: readonly number[],
  body: (out: string, conversion: Awaited<ReturnType<typeof convertTo>>) => Promise<T>,
): Promise<T> {
  return inFolder(async (folder) => {
    const experts = isExperts(target);
    const tensor = {
      dtype: "BF16" as const,
      shape: experts ? [1, SIDE, SIDE] : [SIDE, SIDE],
      bytes: new Uint8Array(
        Uint16Array.from(experts ? transpose(values, SIDE, SIDE) : values, (value) => bf16(value).bits)
          .buffer,
      ),
    };
    const name = experts ? EXPERTS : NAME;
    await writeContents(folder, { tensors: new Map([[name, tensor]]), metadata: {}, json: new Map() });
    const out = join(folder, "out");
    return body(out, await convertTo(backend(), folder, out, target, [name]));
  });
}

describe.each(sampleCases(TARGETS, 24))("a weight as %s", (target) => {
  it.each(sampleCases(Object.entries(INPUTS), 1, TARGETS.indexOf(target)))(
    "%s: has no error, or is refused with the number of values",
    async (title, values) => {
      const attempt = withConverted(target, values, async (out, { changes: [changes] }) => {
        // the input is the original of each form, so nothing has to be inferred
        const { findings } = await reportOf(out, join(out, ".."));
        expect(findings.filter(({ name }) => name !== "codes-zero")).toEqual([]);
        const [converted] = [...(await valuesIn(out)).values()];
        if (!changes || !converted) return;
        const wrongValues = [...converted.entries()].filter(
          ([i, value]) => !Number.isFinite(value) || (values[i] === 0 && value !== 0),
        );
        expect(wrongValues.slice(0, 3).map(([i, value]) => [values[i], value])).toEqual([]);
        const sum = (term: (i: number) => number): number =>
          values.reduce((total, _, i) => total + term(i) ** 2, 0);
        const [noise, signal] = [
          sum((i) => (values[i] as number) - (converted[i] as number)),
          sum((i) => values[i] as number),
        ];
        expect(Math.abs(changes.noise - noise)).toBeLessThanOrEqual(1e-5 * noise + 1e-12 * signal);
        if (changes.noise > 0) expect(Math.abs(changes.signal - signal)).toBeLessThanOrEqual(1e-9 * signal);
      });
      const refusal = await attempt.then(
        () => undefined,
        (error: unknown) => error,
      );
      if (refusal === undefined) return;
      if (!(refusal instanceof FileError)) throw refusal;
      expect(title).not.toBe("ordinary");
      expect(String(refusal)).toMatch(
        new RegExp(
          `${SIDE * SIDE} values would become NaN or infinite as ${target}: |the SQNR would be|scale-zero|scale-not-finite`,
        ),
      );
    },
  );

  it.each(sampleCases(Object.entries(REFUSED), 1, TARGETS.indexOf(target)))(
    "with %s is refused",
    async (_, values) => {
      await expect(withConverted(target, values, async () => {})).rejects.toThrow(
        /has NaN or infinity, which is not quantized/,
      );
    },
  );
});
