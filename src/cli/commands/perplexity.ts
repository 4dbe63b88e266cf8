/** `lockstep perplexity`: measures the cost of weight forms and recipes for a language model. */

import { WIDE_TARGETS } from "../../checkpoints/convert/dequantize/round.js";
import { CONVERSION_TARGETS, type ConversionTarget } from "../../checkpoints/convert/targets/named.js";
import { perplexity as measure, type PerplexityComparison } from "../../models/perplexity/perplexity.js";
import { loadTokenizer } from "../../models/tokenizer/load.js";
import { readPath } from "../checkpoint-report.js";
import { defineCommand } from "../command.js";
import { MODEL_RECIPES } from "../model-recipes.js";
import { integer, optional, required, someOf, value, withMeanings } from "../options.js";
import { layerErrorPicture } from "../pictures/layer-errors.js";

const AS_STORED = "as-stored";
const NONE = "none";
const FORMS = [AS_STORED, ...CONVERSION_TARGETS] as const;
const RECIPES = [NONE, ...MODEL_RECIPES.map(({ name }) => name)];
const MEANINGS = {
  [NONE]: "no recipe",
  ...Object.fromEntries(MODEL_RECIPES.map(({ name, meaning }) => [name, meaning])),
};
/** The maximum size of a text file. */
const MAX_TEXT_BYTES = 2 ** 26;
const DEFAULT_TOKENS = 1024;
/** The number of cells of the longest bar. */
const CELLS = 30;

interface Line {
  readonly form: typeof AS_STORED | ConversionTarget;
  readonly recipe: string;
}

const digits = (value: number, count = 4): string => Number(value.toPrecision(count)).toString();

/** The lines of a table. Each column has the width of its widest cell; the first two columns are text. */
function table(rows: readonly (readonly string[])[]): readonly string[] {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => (row[i] ?? "").length)));
  return rows.map((row) =>
    row
      .map((cell, i) => (i < 2 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}

/** The errors of the layers of a form as bars. The longest bar has the largest error. */
function bars(form: string, { layerErrors }: PerplexityComparison): readonly string[] {
  const largest = Math.max(...layerErrors);
  if (largest === 0) return [];
  return [
    `relative RMS error of the weights as ${form}, by layer:`,
    ...layerErrors.map((error, layer) => {
      const bar = "█".repeat(Math.round((error / largest) * CELLS));
      return `${layer.toString().padStart(4)} ${bar.padEnd(CELLS)} ${digits(error, 3)}`;
    }),
  ];
}

export const perplexity = defineCommand({
  name: "perplexity",
  summary: "measures a language model on a text, and what forms of its weights and recipes change",
  details: [
    "MODEL is a folder with config.json, safetensors files and tokenizer.json, or a GGUF file or its folder. Its first tokens of the text are split into windows. The original is the model with its weights as stored and without a recipe; every form is compared with it under every recipe.",
    "For each it prints the perplexity, the mean KL divergence of its distributions from the original's in nats, the share of tokens for which both have the same likeliest next token, and the bits a weight of the matrices of decoder layers, scales included. For each form it shows the error of the weights of each layer.",
    "A form has the weights that lockstep convert --to FORM writes. A recipe quantizes the weights and the activations of the linear layers in decoder layers.",
  ],
  example: "language-model --text text.txt --forms ct-nvfp4,modelopt-fp8 --recipes none,mxfp8",
  inputs: ["MODEL"],
  options: {
    text: required({ placeholder: "FILE", help: "the text, in UTF-8", file: "read" }),
    forms: value<readonly Line["form"][]>({
      placeholder: "FORM,…",
      help: `forms of the weights: ${AS_STORED}, ${WIDE_TARGETS.join(", ")}, or what lockstep convert --to takes`,
      parse: someOf(FORMS),
      fallback: [AS_STORED],
      shown: AS_STORED,
    }),
    recipes: value<readonly Line["recipe"][]>({
      placeholder: "RECIPE,…",
      help: withMeanings("recipes of the linear layers", MEANINGS),
      parse: someOf(RECIPES),
      fallback: [NONE],
      shown: NONE,
    }),
    context: optional({
      placeholder: "N",
      help: "number of tokens that the model sees at a time (default: 512, or fewer if the model has fewer positions)",
      parse: integer(2),
    }),
    stride: optional({
      placeholder: "N",
      help: "number of tokens from one window to the next (default: the context)",
      parse: integer(1),
    }),
    tokens: value({
      placeholder: "N",
      help: "number of tokens of the text to use",
      parse: integer(2, 2 ** 20),
      fallback: DEFAULT_TOKENS,
      shown: `${DEFAULT_TOKENS}`,
    }),
    picture: optional({
      placeholder: "SVG",
      help: "picture to write: the error of the weights of each layer in every form",
      parse: (text) => text,
      file: "written",
    }),
  },
  errorFields: readPath,
  async run({ session, values, inputs: [path = ""] }) {
    const { text, forms, recipes, context, stride, tokens: maxTokens, picture } = values;
    const content = await session.files.text(text, "a text", MAX_TEXT_BYTES);
    const ids = [...(await loadTokenizer(path)).encode(content)].slice(0, maxTokens);
    const lines = forms
      .flatMap((form) => recipes.map((recipe): Line => ({ form, recipe })))
      .filter(({ form, recipe }) => form !== AS_STORED || recipe !== NONE);
    const variants = lines.map(({ form, recipe }) => ({
      weights: form === AS_STORED ? ("as stored" as const) : form,
      recipe: MODEL_RECIPES.find(({ name }) => name === recipe)?.create(),
    }));
    let bar: ReturnType<typeof session.progress> | undefined;
    try {
      const report = await measure(await session.backend(), path, ids, {
        ...(variants.length > 0 ? { variants } : {}),
        ...{ context, stride },
        onProgress: ({ tokens, totalTokens }) => {
          bar ??= session.progress(totalTokens, "tokens");
          bar.set(tokens);
        },
      });
      const { original, variants: results, ...measured } = report;
      const labelledResults = results.map((result, i) => ({ ...(lines[i] as Line), ...result }));
      // a recipe does not change the error of the weights
      const eachForm = labelledResults.filter(
        ({ form, recipe }) => form !== AS_STORED && recipe === recipes[0],
      );
      if (picture !== undefined)
        await session.files.writeText(
          picture,
          layerErrorPicture(
            "Relative RMS error of the weights by layer",
            eachForm.map(({ form, layerErrors }) => ({ name: form, errors: layerErrors })),
          ),
        );
      session.result({ path, text, tokens: ids.length, ...measured, original, variants: labelledResults }, [
        `${path}: ${measured.scoredTokens} tokens scored in windows of ${measured.context}`,
        ...table([
          ["weights", "recipe", "perplexity", "mean KL", "top-1", "bits"],
          [AS_STORED, NONE, digits(original.perplexity), "", "", original.bitsPerWeight.toFixed(2)],
          ...labelledResults.map((row) => [
            ...[row.form, row.recipe, digits(row.perplexity), digits(row.meanKl, 3)],
            ...[`${(100 * row.top1Agreement).toFixed(1)} %`, row.bitsPerWeight.toFixed(2)],
          ]),
        ]),
        ...eachForm.flatMap((row) => bars(row.form, row)),
        ...(picture === undefined ? [] : [`${picture}: the errors of ${eachForm.length} forms`]),
      ]);
    } finally {
      bar?.finish();
    }
    return 0;
  },
});
