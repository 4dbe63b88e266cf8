/** The note on blocks of zeros names the codes that the operation stores for zeros, for every rule, format and scaling. */
import { expect, it } from "vitest";
import { codeText } from "../../../src/explain/text.js";
import { zeroBlockNote } from "../../../src/explain/zero-blocks.js";
import { BLOCK_FORMAT_NAMES, blockFormat, isTensorWide } from "../../../src/formats/block.js";
import { factsOf, valueOfCode } from "../../../src/formats/derive.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { storageBits } from "../../../src/tensor/shape.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { scaledSpecs } from "../arbitraries/scaled-specs.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });
const [ROWS, COLUMNS] = [256, 128];
const SPECS = BLOCK_FORMAT_NAMES.filter((name) => blockFormat(name).scaleSource !== "given").flatMap(
  scaledSpecs,
);
const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;

it("names the codes of zeros that are no zeros, and whether the matrix must be zeros", () => {
  const notes = SPECS.map((spec) => {
    using _scope = new Scope();
    // the first code of a matrix whose first half is zeros, and of a matrix of zeros
    const [besideNonzero, zerosOnly] = [1, 0].map((value) => {
      const values = new Float32Array(ROWS * COLUMNS).fill(value, isTensorWide(spec.tile) ? Infinity : 16384);
      const { data } = new SpecQuantizer(spec, LAYOUT)
        .quantize(tensor(backend(), values, [ROWS, COLUMNS]))
        .copy("rowwise");
      return Number(data.dataSync()[0]) & (storageBits(data.dtype) === 4 ? 15 : 255);
    }) as [number, number];
    const isZero = (code: number): boolean => valueOfCode(spec.format, code) === 0;
    const [zeroRange, code] = isZero(besideNonzero) ? ["matrix", zerosOnly] : ["block", besideNonzero];
    const note = zeroBlockNote(spec);
    const title = JSON.stringify(spec);
    if (isZero(code)) expect(note, title).toBeUndefined();
    else {
      expect(note, title).toMatch(new RegExp(`^a ${zeroRange} of zeros is 0 / 0 by ${spec.scaleRule} and `));
      expect(note, title).toContain(`its codes are ${codeText(code, factsOf(spec.format).bits)}, `);
    }
    return note;
  });
  for (const zeroRange of ["block", "matrix"])
    expect(notes.some((note) => note?.startsWith(`a ${zeroRange}`))).toBe(true);
});
