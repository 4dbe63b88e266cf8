/** The whole demo: fits the model, measures each recipe, prints the table, draws the page. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ArgumentError, openBackend } from "lockstep";
import { digestOf } from "../shared/digest.mjs";
import { headLines, rowLine } from "../shared/table.mjs";
import { within } from "../shared/within.mjs";
import { loadDigits } from "./data.mjs";
import { figureOf } from "./figure.mjs";
import { countRight, measure, upload } from "./measure.mjs";
import { features, fitModel, scores } from "./model.mjs";
import { writePicture } from "./picture.mjs";
import { RECIPES } from "./recipes.mjs";
import { COLUMNS, legend } from "./table.mjs";

/** The path of the figure in README.md. */
const COMMITTED = fileURLToPath(new URL("../../docs/demo.svg", import.meta.url));

/**
 * Fits the model, prints the table row by row, and writes DIRECTORY/demo.html and DIRECTORY/demo.svg; with `write` also
 * docs/demo.svg. With `recipe`, it measures this recipe only and writes no page.
 */
export async function runDemo({ backend: name, threads, directory, recipe, write }) {
  const start = performance.now();
  const recipes = recipesNamed(recipe, write);
  const backend = await openBackend(name, { threads });
  const exact = backend.name === "wasm" ? backend : await openBackend("wasm", { threads });
  try {
    const truth = learn();
    const { heldBack, model, training } = truth;
    console.log(
      `${training.count} digits to learn from, ${heldBack.count} held back; ` +
        `784 pixels → ${model.bias1.length} random ReLU features → 10 scores`,
    );
    console.log(`on ${backend.description}; fitted in float64 in ${seconds(start)}\n`);
    const rows = within(() => measureAll(recipes, backend, exact, truth));
    const notes = legend({ count: heldBack.count, right: countRight(truth.scores, heldBack.labels) });
    console.log(`\n${notes.join("\n")}`);
    const digest = digestOf(rows.flatMap(({ scores }) => [scores.hopper, scores.exact]));
    mkdirSync(directory, { recursive: true });
    const figure = figureOf(rows, truth);
    for (const file of [join(directory, "demo.svg"), ...(write ? [COMMITTED] : [])])
      writeFileSync(file, figure);
    if (recipe) return;
    const path = writePicture(directory, { rows, truth, notes, digest, device: backend.description });
    console.log(`\nevery output bit, SHA-256: ${digest}  (the same on any machine)`);
    console.log(`picture: ${path}  (${seconds(start)} in all)`);
  } finally {
    await exact.dispose();
    if (exact !== backend) await backend.dispose();
  }
}

/** The recipe of this name, or all recipes. */
function recipesNamed(name, write) {
  if (name === undefined) return RECIPES;
  const recipes = RECIPES.filter((each) => each.name === name);
  if (recipes.length === 0)
    throw new ArgumentError(`--recipe is ${name}; give ${RECIPES.map((each) => each.name).join(", ")}`);
  if (write) throw new ArgumentError("--write is for all recipes; leave out --recipe");
  return recipes;
}

/** Measures each recipe and prints its row of the table. */
function measureAll(recipes, backend, exact, truth) {
  const operands = upload(backend, truth);
  const reference = exact === backend ? operands : upload(exact, truth);
  for (const line of headLines(COLUMNS)) console.log(line);
  return recipes.map((recipe) => {
    const row = measure(recipe, operands, reference, truth);
    console.log(rowLine(COLUMNS, row));
    return row;
  });
}

/** The digits, the fitted model and its float64 results. */
function learn() {
  const { training, heldBack } = loadDigits();
  const model = fitModel(training);
  return { training, heldBack, model, scores: scores(model, features(model, heldBack), heldBack.count) };
}

function seconds(start) {
  return `${((performance.now() - start) / 1000).toFixed(1)} s`;
}
