/** The tables of docs/models.md and README.md, from the measurements. */

/** The names of the rows, in the order of the table. */
export const ORDER = [
  ...["bf16", "modelopt-fp8", "deepseek-fp8-block", "ct-nvfp4", "ct-mxfp4", "gguf-mxfp4"],
  ...["block", "mxfp8", "nvfp4"],
];

const digits = (value, count) => Number(value.toPrecision(count)).toString();

/** The table of forms and recipes. */
function formsTable(original, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const errorOf = (errors) => {
    const largest = Math.max(...errors);
    return largest === 0
      ? ""
      : `${(100 * Math.min(...errors)).toFixed(1)} to ${(100 * largest).toFixed(1)} %`;
  };
  return [
    line([
      "weights",
      "recipe",
      "bits a weight",
      "perplexity",
      "mean KL",
      "same top-1",
      "error of a layer's weights",
    ]),
    line(["---", "---", "---:", "---:", "---:", "---:", "---:"]),
    line([
      "as stored (Q4_1)",
      "",
      original.bitsPerWeight.toFixed(2),
      original.perplexity.toFixed(2),
      "",
      "",
      "",
    ]),
    ...rows.map(({ form, recipe, bitsPerWeight, perplexity, meanKl, top1Agreement, layerErrors }) =>
      line([
        ...[form === "as-stored" ? "as stored" : `\`${form}\``, recipe === "none" ? "" : `\`${recipe}\``],
        ...[bitsPerWeight.toFixed(2), perplexity.toFixed(2), digits(meanKl, 2)],
        ...[`${(100 * top1Agreement).toFixed(1)} %`, errorOf(layerErrors)],
      ]),
    ),
  ].join("\n");
}

/** The effect of the damaged scale. */
function damageTable({ finding, sound, damaged }) {
  const quoted = (text) => `\`\` ${JSON.stringify(text).replaceAll("|", "\\|")} \`\``;
  return [
    `\`lockstep verify\` of the damaged folder: ${finding.severity} \`${finding.name}\`: ${finding.subject}: ${finding.what}.`,
    "",
    "| folder | perplexity | the next 20 tokens |",
    "| --- | ---: | --- |",
    `| sound | ${sound.perplexity.toFixed(2)} | ${quoted(sound.text)} |`,
    `| damaged | ${digits(damaged.perplexity, 3)} | ${quoted(damaged.text)} |`,
  ].join("\n");
}

/** The section between the marks of docs/models.md. */
export function section({ host, scoredTokens, original, damage, ...rows }) {
  return [
    `${scoredTokens} tokens; ${host}; \`node examples/forms/main.mjs --write\`:`,
    "",
    formsTable(
      original,
      ORDER.map((name) => rows[name]),
    ),
    "",
    damageTable(damage),
    "",
  ].join("\n");
}

/** The rows of README's table. */
const SUMMARY = ["modelopt-fp8", "deepseek-fp8-block", "ct-nvfp4", "ct-mxfp4", "mxfp8", "nvfp4"];

/** The section between the marks of README.md: the cost of some forms and recipes. */
export function summary({ original, ...rows }) {
  const costs = ({ bitsPerWeight, perplexity, top1Agreement }) =>
    `${bitsPerWeight.toFixed(2)} | ${perplexity.toFixed(2)} | ${(100 * top1Agreement).toFixed(1)} %`;
  return [
    "| weights, recipe | bits a weight | perplexity | same likeliest token |",
    "| --- | ---: | ---: | ---: |",
    `| as stored (Q4_1) | ${costs({ ...original, top1Agreement: 1 })} |`,
    ...SUMMARY.map((name) => {
      const { form, recipe } = rows[name];
      return `| ${form === "as-stored" ? `as stored, \`${recipe}\`` : `\`${form}\``} | ${costs(rows[name])} |`;
    }),
    "",
  ].join("\n");
}
