/** A process that computes the runs it receives, one after another. */
import { openBackend } from "lockstep";
import { loadDigits } from "./data.mjs";
import { RECIPES } from "./recipes.mjs";
import { train, upload } from "./train.mjs";

const { backend: name, steps, digits: count } = JSON.parse(process.argv[2]);
const backend = await openBackend(name, { threads: 1 });
const { training, heldBack } = loadDigits();
const digits = { training: upload(backend, training), heldBack: upload(backend, firstOf(heldBack, count)) };
let spent = process.cpuUsage();

process.on("message", ({ recipe, seed }) => {
  const start = performance.now();
  const { make } = RECIPES.find((row) => row.name === recipe);
  const onStep = () => process.send({ steps: 1 });
  const run = train(backend, digits, { recipe: make?.(), seed, steps, onStep });
  const { user, system } = process.cpuUsage(spent);
  spent = process.cpuUsage();
  process.send({
    run: { ...run, seconds: (performance.now() - start) / 1e3, cpuSeconds: (user + system) / 1e6 },
  });
});
process.on("disconnect", () => process.exit());

function firstOf({ images, labels, count: all }, some) {
  const inputs = images.length / all;
  return { images: images.subarray(0, some * inputs), labels: labels.subarray(0, some), count: some };
}
