/** `identifyDialect` names the dialect that produced codes and scales, and no dialect that did not. */
import { describe, expect, it } from "vitest";
import { identifyDialect, type StoredCodes } from "../../../src/dialects/identify/identify.js";
import { quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../../src/dialects/table.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import { type BlockFormatName, blockFormat, type Tile } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });

interface Row {
  readonly dialect: DialectName;
  readonly quantizer: BlockFormatName;
  readonly format: ScalarFormat;
  readonly tile: Tile;
}

/** Every dialect with each of its quantizers, formats and tiles. */
const ROWS: readonly Row[] = DIALECT_NAMES.flatMap((dialect) => {
  const { forms }: Dialect = DIALECTS[dialect];
  return forms.flatMap(({ quantizer, formats, tiles }) =>
    (formats ?? blockFormat(quantizer).elements).flatMap((format) =>
      (tiles ?? blockFormat(quantizer).tiles).map((tile) => ({ dialect, quantizer, format, tile })),
    ),
  );
});

const SIZE = [128, 256] as const;

/**
 * Numbers that distinguish rules: magnitudes of all binades by rows, ties of every format, both zeros, and subnormals. bf16
 * distinguishes types and the rounding to them; f32 distinguishes single ulps.
 */
function drawDecidingValues(seed: number, dtype: "f32" | "bf16"): Tensor {
  const next = splitmix32(seed);
  const values = Float32Array.from({ length: SIZE[0] * SIZE[1] }, (_, i) => {
    const block = Math.floor(i / 16);
    const exponent = block % 3 === 0 ? ((block * 37) % 250) - 126 : ((block * 5) % 12) - 8;
    const bits = 2 ** (1 + (next() % 3));
    const tie = ((next() % bits) + 0.5) / bits;
    const mantissa = 1 + (next() % 3 === 0 ? tie : (next() % 2 ** 23) / 2 ** 23);
    const sign = next() % 2 === 0 ? 1 : -1;
    return next() % 16 === 0 ? sign * 0 : sign * mantissa * 2 ** (exponent - (next() % 4));
  });
  const bits = new Uint32Array(values.buffer);
  if (dtype === "f32") return tensor(backend(), values, SIZE);
  return tensor(
    backend(),
    Uint16Array.from(bits, (word) => word >>> 16),
    SIZE,
    "bf16",
  );
}

/** An ordinary tensor, in which ties and zeros do not occur. */
function ordinary(seed: number): Tensor {
  const next = splitmix32(seed);
  const uniform = () => (next() % 2 ** 24) / 2 ** 24;
  const normal = () => Math.sqrt(-2 * Math.log(uniform() + 2 ** -25)) * Math.cos(2 * Math.PI * uniform());
  return tensor(backend(), Float32Array.from({ length: SIZE[0] * SIZE[1] }, normal), SIZE);
}

interface StoredTensors extends StoredCodes {
  readonly codes: Tensor;
  readonly scales: Tensor;
}

function quantizeBy(
  { dialect, quantizer, format, tile }: Row,
  x: Tensor,
  scaleLayout: "logical" | "swizzled" = "logical",
): StoredTensors {
  const { data, scaleInv, amax } = quantizerOf({ dialect, quantizer, format, tile, scaleLayout })
    .quantize(x)
    .copy("rowwise");
  return { codes: data, scales: scaleInv, ...(amax ? { tensorScale: amax } : {}) };
}

const bytes = (x: Tensor): Uint8Array => {
  const data = x.dataSync();
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
};

/** Whether a dialect produces these codes and scales. */
function isReproducedBy(row: Row, x: Tensor, storedTensors: StoredTensors): boolean {
  const candidate = quantizeBy(row, x);
  const haveEqualBytes = (a: Tensor | undefined, b: Tensor | undefined): boolean =>
    Buffer.compare(a ? bytes(a) : new Uint8Array(), b ? bytes(b) : new Uint8Array()) === 0;
  return (
    haveEqualBytes(candidate.codes, storedTensors.codes) &&
    haveEqualBytes(candidate.scales, storedTensors.scales) &&
    haveEqualBytes(candidate.tensorScale, storedTensors.tensorScale)
  );
}

const INPUTS = [
  ["bf16 that decides", () => drawDecidingValues(1, "bf16")],
  ["f32 that decides", () => drawDecidingValues(2, "f32")],
  ["ordinary numbers", () => ordinary(3)],
] as const;

describe.each(sampleCases(ROWS, 5))("$dialect $quantizer $format $tile", (row) => {
  it.each(sampleCases(INPUTS, 1, ROWS.indexOf(row)))(
    "is named, and none that gives other bits is, for %s",
    (_, draw) => {
      using _scope = new Scope();
      const x = draw();
      const storedTensors = quantizeBy(row, x);
      const identification = identifyDialect(x, storedTensors);
      const equivalent = ROWS.filter(
        (candidate) =>
          candidate.quantizer === row.quantizer &&
          candidate.format === row.format &&
          candidate.tile === row.tile &&
          isReproducedBy(candidate, x, storedTensors),
      ).map(({ dialect }) => dialect);
      expect(identification.dialects).toContain(row.dialect);
      expect(identification.dialects).toEqual(equivalent);
      for (const { dialect, because } of identification.excluded) expect(because, dialect).not.toBe("");
      expect(identification.words).toContain(row.dialect);
    },
  );
});

const ROUNDINGS = [
  ["te", "mxfp8", { rounding: "tiesToEven", zero: "kept" }],
  ["gptoss-mxfp4", "mxfp4", { rounding: "tiesToAway", zero: "kept" }],
  ["modelopt-mxfp4", "mxfp4", { rounding: "tiesToZero", zero: "minusZero" }],
  ["gguf-nvfp4", "nvfp4", { rounding: "tiesToZero", zero: "plusZero" }],
  ["ct-mxfp4", "mxfp4", { rounding: "tiesToEven", zero: "addsZero" }],
] as const;
it.each(sampleCases<(typeof ROUNDINGS)[number]>(ROUNDINGS))(
  "tells how %s rounds",
  (dialect, quantizer, rule) => {
    using _scope = new Scope();
    const row = ROWS.find(
      (candidate) => candidate.dialect === dialect && candidate.quantizer === quantizer,
    ) as Row;
    const x = drawDecidingValues(4, "bf16");
    const { readings } = identifyDialect(x, quantizeBy(row, x));
    expect(readings[0]?.elements[0]).toMatchObject({ ...rule, overflow: "saturate" });
  },
);

/** The rows with block scales, whose layouts can differ. */
const BLOCKS = ROWS.filter(
  ({ quantizer, dialect }) => blockFormat(quantizer).scaleSource === "blocks" && dialect !== "te",
);

const like = (x: Tensor, data: Uint8Array): Tensor => {
  const values = x.dataSync();
  return values instanceof Float32Array
    ? tensor(x.backend, new Float32Array(data.slice().buffer), x.shape)
    : tensor(x.backend, data, x.shape, "u8");
};

const swapNibbles = (byte: number): number => (byte >> 4) | ((byte & 15) << 4);

function transpose(x: Tensor): Tensor {
  const [rows, columns] = x.shape as readonly [number, number];
  const data = x.dataSync();
  const out = data.slice();
  for (let row = 0; row < rows; row++)
    for (let c = 0; c < columns; c++) out[c * rows + row] = data[row * columns + c] as number;
  return out instanceof Float32Array
    ? tensor(x.backend, out, [columns, rows])
    : tensor(x.backend, out as Uint8Array, [columns, rows], "u8");
}

const OF_NIBBLES = BLOCKS.filter(({ format }) => factsOf(format).storageBits === 4);
const OF_BYTES = BLOCKS.filter(({ quantizer }) => blockFormat(quantizer).scale !== "f32");
/** Row scales form one line, whose transpose has the same bytes. */
const OF_LINES = BLOCKS.filter(({ tile }) => tile !== "128x128" && tile !== "1xK");
const WITH_RECIPROCALS = BLOCKS.filter(({ quantizer }) =>
  ["f32", "e8m0"].includes(blockFormat(quantizer).scale),
);
const NAME = "$dialect $quantizer $format $tile";

describe("names the dialect, and how it is stored otherwise", () => {
  it.each(sampleCases(OF_NIBBLES))(`swapped nibbles, in bytes without a type: ${NAME}`, (row) => {
    using _scope = new Scope();
    const x = drawDecidingValues(4, "bf16");
    const storedTensors = quantizeBy(row, x);
    const swappedBytes = Uint8Array.from(bytes(storedTensors.codes), swapNibbles);
    const codes = tensor(backend(), swappedBytes, [SIZE[0], SIZE[1] / 2], "u8");
    const { dialects, readings, words } = identifyDialect(x, { ...storedTensors, codes });
    expect(dialects).toContain(row.dialect);
    expect(readings[0]).toMatchObject({ packing: "high nibble first", arrangement: "plain", form: "scale" });
    expect(words).toContain("nibbles swapped");
  });

  it.each(sampleCases(OF_BYTES))(`swizzled scales: ${NAME}`, (row) => {
    using _scope = new Scope();
    const x = drawDecidingValues(5, "bf16");
    const { dialects, readings, words } = identifyDialect(x, quantizeBy(row, x, "swizzled"));
    expect(dialects).toContain(row.dialect);
    expect(readings[0]).toMatchObject({ arrangement: "swizzled", form: "scale" });
    expect(words).toContain("scales swizzled");
  });

  it.each(sampleCases(OF_LINES))(`transposed scales, in a buffer of either shape: ${NAME}`, (row) => {
    using _scope = new Scope();
    const x = drawDecidingValues(6, "bf16");
    const storedTensors = quantizeBy(row, x);
    const transposedScales = transpose(storedTensors.scales);
    for (const scales of [
      transposedScales,
      transposedScales.reshape([...transposedScales.shape].reverse()),
    ]) {
      const { dialects, readings } = identifyDialect(x, { ...storedTensors, scales });
      expect(dialects).toContain(row.dialect);
      expect(readings[0]).toMatchObject({ arrangement: "transposed", form: "scale" });
    }
  });

  it.each(sampleCases(BLOCKS.filter((row) => !OF_NIBBLES.includes(row))))(
    `transposed codes: ${NAME}`,
    (row) => {
      using _scope = new Scope();
      const x = drawDecidingValues(7, "bf16");
      const storedTensors = quantizeBy(row, x);
      const { dialects, readings } = identifyDialect(x, {
        ...storedTensors,
        codes: transpose(storedTensors.codes),
      });
      expect(dialects).toContain(row.dialect);
      expect(readings[0]).toMatchObject({ transposed: true, arrangement: "plain" });
    },
  );

  it.each(sampleCases(WITH_RECIPROCALS))(`stored reciprocals: ${NAME}`, (row) => {
    using _scope = new Scope();
    const x = ordinary(8);
    const storedTensors = quantizeBy(row, x);
    const scaleValues = storedTensors.scales.dataSync();
    const inverse =
      scaleValues instanceof Float32Array
        ? scaleValues.map((scale) => 1 / scale)
        : Uint8Array.from(scaleValues as Uint8Array, (code) => 254 - code);
    const scales = like(storedTensors.scales, new Uint8Array(inverse.buffer));
    const { dialects, readings, words } = identifyDialect(x, { ...storedTensors, scales });
    expect(dialects).toContain(row.dialect);
    expect(readings[0]).toMatchObject({ form: "reciprocal" });
    expect(words).toContain("one over each scale stored");
  });
});

/** Numbers of rows that are not multiples of any block. */
const RAGGED = [1, 7, 33, 97] as const;

describe.each(RAGGED)("a matrix of %i rows", (rows) => {
  it.each(
    sampleCases(
      BLOCKS.filter((_, i) => i % RAGGED.length === RAGGED.indexOf(rows)),
      1,
    ),
  )(`is identified from its rowwise copy, also with swizzled scales: ${NAME}`, (row) => {
    using _scope = new Scope();
    const columns = SIZE[0] * 2;
    const x = drawDecidingValues(13, "bf16").slice(0, [rows, columns]);
    for (const layout of OF_BYTES.includes(row)
      ? (["logical", "swizzled"] as const)
      : (["logical"] as const)) {
      const { dialects, readings } = identifyDialect(x, quantizeBy(row, x, layout));
      expect(dialects).toContain(row.dialect);
      const expected = layout === "swizzled" ? layout : "plain";
      expect(readings.map(({ arrangement }) => arrangement)).toContain(expected);
    }
  });
});

it.each(sampleCases(BLOCKS, 1))(
  `names none for codes of which one was changed, and the place: ${NAME}`,
  (row) => {
    using _scope = new Scope();
    const x = drawDecidingValues(9, "bf16");
    const storedTensors = quantizeBy(row, x);
    const alteredCodes = bytes(storedTensors.codes).slice();
    const alteredIndex = (5 * alteredCodes.length) / 8;
    alteredCodes[alteredIndex] = (alteredCodes[alteredIndex] as number) ^ 5;
    const codes = tensor(backend(), alteredCodes, [SIZE[0], alteredCodes.length / SIZE[0]], "u8");
    const { dialects, readings, excluded, nearest } = identifyDialect(x, { ...storedTensors, codes });
    expect({ dialects, readings }).toEqual({ dialects: [], readings: [] });
    expect(nearest?.scales.different).toBe(0);
    // under the closest element scaling, which need not be the first one of the rule
    expect(nearest?.codes).toEqual({ different: 1, of: x.size });
    expect(excluded.find(({ dialect }) => dialect === row.dialect)?.because).toMatch(/code at \[80, /);
  },
);

/** Codes under e8m0Floor scales and a rounding that no dialect uses. */
function quantizeByFloor(
  x: Tensor,
  quantizer: "mxfp8" | "mxfp4",
  rounding: "tiesToAway" | "towardZero",
): StoredTensors {
  const storedTensors = quantizeBy(
    { dialect: `ocp-${quantizer}`, quantizer, format: quantizer === "mxfp4" ? "e2m1" : "e4m3", tile: "1x32" },
    x,
  );
  const values = x.dataSync() as Float32Array;
  const scales = storedTensors.scales.dataSync() as Uint8Array;
  const scaledValues = values.map((value, i) => value * 2 ** (127 - (scales[Math.floor(i / 32)] as number)));
  const { dtype } = storedTensors.codes;
  const codes = encode(tensor(backend(), scaledValues, SIZE), { format: dtype as "e2m1", rounding });
  return { ...storedTensors, codes };
}

describe("codes or scales of no dialect", () => {
  const ROUNDED = [
    ["mxfp8", "tiesToAway", "half away from zero"],
    ["mxfp8", "towardZero", "toward zero"],
    ["mxfp4", "tiesToAway", "half away from zero"],
    ["mxfp4", "towardZero", "toward zero"],
  ] as const;
  it.each(sampleCases<(typeof ROUNDED)[number]>(ROUNDED, 1))(
    "%s with %s is FLOOR scales and elements %s",
    (quantizer, rounding, expected) => {
      using _scope = new Scope();
      const x = drawDecidingValues(10, "f32");
      const { dialects, readings, words } = identifyDialect(x, quantizeByFloor(x, quantizer, rounding));
      expect(dialects).toEqual([]);
      expect(readings[0]).toMatchObject({ scaleRule: "e8m0Floor" });
      expect(readings[0]?.elements.map((rule) => rule.rounding)).toEqual([rounding]);
      expect(words).toContain(expected);
      expect(words).toContain(`no dialect of the table; e8m0Floor scales of ${quantizer}`);
    },
  );

  it("FLOOR scales, elements half away from zero, nibbles swapped, scales swizzled: all at once", () => {
    using _scope = new Scope();
    const x = drawDecidingValues(11, "f32");
    const { codes } = quantizeByFloor(x, "mxfp4", "tiesToAway");
    const swizzledTensors = quantizeBy(
      { dialect: "ocp-mxfp4", quantizer: "mxfp4", format: "e2m1", tile: "1x32" },
      x,
      "swizzled",
    );
    const swappedBytes = tensor(
      backend(),
      Uint8Array.from(bytes(codes), swapNibbles),
      [SIZE[0], SIZE[1] / 2],
      "u8",
    );
    const { words } = identifyDialect(x, { codes: swappedBytes, scales: swizzledTensors.scales });
    expect(words).toBe(
      "no dialect of the table; e8m0Floor scales of mxfp4 e2m1 1x32, elements x * m, half away from zero, nibbles swapped (the even column in the high one), scales swizzled; 1 other readings explain them too",
    );
  });

  it("refuses an input with NaN or of another size, but not one of another shape", () => {
    using _scope = new Scope();
    const x = ordinary(12);
    const storedTensors = quantizeBy({ dialect: "te", quantizer: "mxfp8", format: "e4m3", tile: "1x32" }, x);
    const inputWithNaN = tensor(
      backend(),
      (x.dataSync() as Float32Array).map((value, i) => (i === 700 ? Number.NaN : value)),
      SIZE,
    );
    expect(() => identifyDialect(inputWithNaN, storedTensors)).toThrow(ArgumentError);
    expect(() => identifyDialect(inputWithNaN, storedTensors)).toThrow(/NaN at \[2, 188\]/);
    expect(() => identifyDialect(x.reshape([SIZE[0] * 2, SIZE[1] / 2]), storedTensors)).not.toThrow();
    expect(() => identifyDialect(tensor(backend(), [1, 2], [1, 2]), storedTensors)).toThrow(ShapeError);
  });
});
