// Fills the tables of documents that are derived from tables and docstrings. Each table is between two comments, the first of
// which names it.
import { readFileSync } from "node:fs";
import { filesIn } from "./lists.mjs";
import { orderWidths } from "./orders.mjs";
import { importSource } from "./source.mjs";

const { OPERATORS } = await importSource("src/backends/elementwise.ts");
const { DIALECT_NAMES, DIALECTS } = await importSource("src/dialects/table.ts");
const { BLOCK_FORMAT_NAMES, blockFormat, quantizersWith, tileSize } =
  await importSource("src/formats/block.ts");
const { factsOf } = await importSource("src/formats/derive.ts");
const { ELEMENT_SCALING_NAMES } = await importSource("src/formats/element-scalings.ts");
const { QUANTIZER_CLASSES } = await importSource("src/quantizers/classes.gen.ts");

const ROWS = BLOCK_FORMAT_NAMES.map((name) => ({ name, ...blockFormat(name) }));
const unique = (list) => [...new Set(list)];

function table(header, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |\n`;
  return `${line(header)}|${header.map(() => "---|").join("")}\n${rows.map(line).join("")}`;
}

const SOURCES = { whole: ", from the tensor's amax", given: ", given", blocks: "" };
const RULES = {
  f32: "",
  f32Quotient: ", amax / max",
  e8m0Up: ", rounded up",
  e8m0Floor: ", OCP's floor",
  twoLevel: " under one f32 amax",
  ue5m3Quotient: ", amax / 6",
};

function wordsOf(rule) {
  if (rule in RULES) return RULES[rule];
  throw new Error(`a quantizer's first rule is ${rule}; say in RULES what the guide calls it`);
}

function quantizers() {
  const rows = ROWS.map(({ name, elements, scale, rules, scaleSource, tiles }) => [
    `\`${QUANTIZER_CLASSES[name].name}\``,
    elements.join(", "),
    scale + SOURCES[scaleSource] + wordsOf(rules[0]),
    tiles.map((tile) => (tile === "tensor" ? "the tensor" : tile)).join(", "),
  ]);
  return table(["class", "format", "scale", "tiles"], rows);
}

/** The functions that src/ops exports and does not mark @shared, with the beginnings of their docstrings. */
function operations() {
  const rows = filesIn("src/ops", ".ts").flatMap((file) =>
    Array.from(
      readFileSync(file, "utf8").matchAll(
        /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\nexport (?:async )?function (\w+)/g,
      ),
      ([, doc, name]) => ({
        name,
        text: doc.replaceAll(/\s*\n \* ?/g, " ").trim(),
        family: file.split("/")[2],
      }),
    ),
  );
  const open = rows.filter(({ text, family }) => !text.includes("@shared") && !family.endsWith(".ts"));
  return table(
    ["function", "what it does"],
    open.map(({ name, text }) => [`\`${name}\``, /^.*?(?=[.;]( |$))/.exec(text)?.[0] ?? text]),
  );
}

const alternatives = (names) => names.join("\\|");

function quantizeOptions() {
  const among = (option) => quantizersWith(option).join(", ");
  const elements = ROWS.filter(({ elements: each }) => each.length > 1).flatMap((row) => row.elements);
  const rules = unique(
    ROWS.filter(({ options }) => options.includes("scaleRule")).flatMap((row) => row.rules),
  );
  const withScale = ROWS.filter(({ scaleSource }) => scaleSource === "given").map(({ name }) => name);
  const tiles = ROWS.flatMap((row) => row.tiles).filter((tile) => tile !== "tensor");
  return table(
    ["option", "for"],
    [
      [
        "`--dialect NAME`",
        "what another library does ([dialects.md](dialects.md)); with it, the quantizer and its rules follow",
      ],
      [`\`--quantizer ${alternatives(BLOCK_FORMAT_NAMES)}\``, "required without `--dialect`"],
      [`\`--format ${alternatives(unique(elements))}\``, "quantizers with a choice of formats"],
      [`\`--tile ${alternatives(unique(tiles))}\``, "those of the quantizer"],
      [`\`--scale-rule ${alternatives(rules)}\``, among("scaleRule")],
      [
        `\`--element-scaling ${alternatives(ELEMENT_SCALING_NAMES)}\``,
        `${among("elementScaling")}, as far as the rule allows`,
      ],
      ["`--pow2-scales`, `--no-pow2-scales`", among("pow2Scales")],
      ["`--amax-epsilon X`", among("amaxEpsilon")],
      ["`--amax-limit X`", among("amaxLimit")],
      ["`--scale X`", withScale.join(", ")],
      ["`--rht`, `--four-over-six`, `--err-mode mae\\|mse`, `--e4m3-max 448\\|256`", among("rht")],
      ["`--row-scaled`", among("rowScaled")],
      ["`--stochastic`, `--seed S`, `--offset O`, `--random-bits`", among("stochastic")],
      ["`--usage rowwise,columnwise`", "which copies to make"],
      [
        "`--scales logical\\|padded\\|swizzled`",
        "the layout of scales; `padded` and `swizzled` are the layouts of numerics.md §3 to §5, with zero padding",
      ],
      [
        "`--tensors GLOB,…`",
        "quantize these, copy the rest; `*` stands for any text and `?` for one character",
      ],
    ],
  );
}

/** The logical shapes of one tile: "rowwise data, scales" and "columnwise data, scales". */
function shapesOf({ elements, multiple, replicates, columnwise }, tile) {
  const blocks = (size, length) =>
    length === 1 ? size : multiple > 1 ? `${size}/${length}` : `ceil(${size}/${length})`;
  const per = (size, length) => (length === Number.POSITIVE_INFINITY ? 1 : blocks(size, length));
  const packed = factsOf(elements[0]).bits === 4 ? "/2" : "";
  const [lines, length] = tileSize(tile);
  const scales = (first, second) =>
    length === 0 ? "[1]" : `[${per(first, replicates ? 1 : lines)}, ${per(second, length)}]`;
  const isTransposed = columnwise.data === "transposed";
  const rows = multiple > 1 ? "M'" : "M";
  const acrossScales = columnwise.scale === "transposed" ? scales("K", rows) : `[${per(rows, length)}, K]`;
  return [
    `[M,K${packed}], ${scales("M", "K")}`,
    `${isTransposed ? `[K,${rows}${packed}]` : `[${rows},K] (not transposed)`}, ${acrossScales}`,
  ];
}

function shapes() {
  const byShapes = new Map();
  for (const row of ROWS) {
    const all = row.tiles.map((tile) => shapesOf(row, tile).join(" | "));
    const isOne = unique(all).length === 1;
    for (const [i, cells] of (isOne ? all.slice(0, 1) : all).entries())
      byShapes.set(cells, [...(byShapes.get(cells) ?? []), isOne ? row.name : `${row.name} ${row.tiles[i]}`]);
  }
  return table(
    ["quantizer", "rowwise data, scale_inv", "columnwise data, scale_inv"],
    Array.from(byShapes, ([cells, names]) => [names.join(", "), cells]),
  );
}

function dialects() {
  const rows = DIALECT_NAMES.map((name) => {
    const { forms, summary, source } = DIALECTS[name];
    const how = unique(
      forms.map(({ fixed: { scaleRule, elementScaling, ...bounds } }) =>
        [
          scaleRule,
          elementScaling,
          ...Object.entries(bounds).map(([name, bound]) => `${name} ${Number(bound.toPrecision(3))}`),
        ]
          .filter((each) => each)
          .join(", "),
      ),
    );
    const quantizers = forms.map(({ quantizer }) => quantizer).join(", ");
    return [`\`${name}\``, summary, quantizers, forms.length > 1 ? "defaults" : how.join("; "), source];
  });
  return table(["dialect", "what it is", "quantizer", "settings", "source"], rows);
}

function dialectTensors() {
  const rows = DIALECT_NAMES.flatMap((name) =>
    DIALECTS[name].tensors.map((each) => [
      `\`${name}\``,
      `\`${each.name}\``,
      each.dtype,
      each.shape,
      each.role,
    ]),
  );
  return table(["dialect", "tensor", "dtype", "shape", "role"], rows);
}

function operators() {
  const rows = Object.entries(OPERATORS).map(([name, { inputs, numbers, formula, definition }]) => [
    `\`${name}(${Object.keys({ ...inputs, ...numbers }).join(", ")})\``,
    formula,
    definition,
  ]);
  return table(["operator", "computes", "result"], rows);
}

const orders = () => table(...orderWidths());

const TABLES = {
  "docs/test-my-kernel.md": { "intervals of any order": orders },
  "docs/numerics.md": { "elementwise operators": operators },
  "docs/dialects.md": { dialects, "tensors of dialects": dialectTensors },
  "docs/guide.md": { quantizers, operations },
  "docs/cli.md": { "options of quantize": quantizeOptions, "shapes of quantized tensors": shapes },
};

/** Returns the documents with their tables as { path: text }. Throws if a document has no comments for its table. */
export function docFiles(command) {
  const filled = Object.entries(TABLES).map(([path, tables]) => {
    let text = readFileSync(path, "utf8");
    for (const [name, make] of Object.entries(tables)) {
      const [begin, end] = [
        `<!-- ${command} writes this table: ${name} -->\n`,
        "<!-- end of the table -->\n",
      ];
      const [before, rest] = text.split(begin);
      if (rest === undefined) throw new Error(`${path} has no place for the table: ${name}`);
      text = `${before}${begin}\n${make()}\n${rest.slice(rest.indexOf(end))}`;
    }
    return [path, text];
  });
  return Object.fromEntries(filled);
}
