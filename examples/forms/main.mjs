/**
 * The effect of forms of weights and of recipes on SmolLM2-135M-Instruct, on a short text, and the effect of one wrong scale.
 *
 *     node examples/forms/main.mjs [--threads N] [--only ROW,…] [--write]
 *
 * It needs the model of scripts/fetch-model. `--only` measures some rows: forms, recipes, and `damage`. `--write` records the
 * results in measured.json, which keeps its other rows, and writes the tables into docs/models.md and README.md. Temporary files
 * take about 500 MB.
 */
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { convertCheckpoint, verifyCheckpoint } from "../../dist/src/checkpoints/index.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  openBackend,
} from "../../dist/src/index.js";
import { SafetensorsFile, saveTensors } from "../../dist/src/io/index.js";
import { loadCausalLM, loadTokenizer, perplexity } from "../../dist/src/models/index.js";
import { writeSection } from "../../scripts/section.mjs";
import { section, summary } from "./table.mjs";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const MODEL = join(process.env.LOCKSTEP_MODELS ?? join(ROOT, ".models"), "SmolLM2-135M-Instruct");
const TEXT = join(ROOT, "examples/forms/rivers.txt");
const MEASURED = join(ROOT, "examples/forms/measured.json");
const FORMS = ["bf16", "modelopt-fp8", "deepseek-fp8-block", "ct-nvfp4", "ct-mxfp4", "gguf-mxfp4"];
const RECIPES = {
  block: new Float8BlockScaling(),
  mxfp8: new MXFP8BlockScaling(),
  nvfp4: new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true }),
};
/** The form of the folder with a wrong scale, and the weight whose scale is wrong. */
const DAMAGED = { form: "ct-nvfp4", scale: "model.layers.1.mlp.down_proj.weight_global_scale" };
/** The number of tokens of the text. */
const TOKENS = 256;
const PROMPT = "A river begins as";
const NEW_TOKENS = 20;

const ROWS = [
  ...FORMS.map((form) => ({ form, recipe: "none", variant: { weights: form } })),
  ...Object.entries(RECIPES).map(([name, recipe]) => ({
    form: "as-stored",
    recipe: name,
    variant: { recipe },
  })),
];
const nameOf = ({ form, recipe }) => (recipe === "none" ? form : recipe);

const { values: flags } = parseArgs({
  options: { threads: { type: "string" }, only: { type: "string" }, write: { type: "boolean" } },
});
const names = [...ROWS.map(nameOf), "damage"];
const chosen = flags.only?.split(",") ?? names;
const wrong = chosen.find((name) => !names.includes(name));
if (wrong !== undefined) throw new Error(`--only: "${wrong}" is not one of ${names.join(", ")}`);

const backend = await openBackend("wasm", flags.threads ? { threads: Number(flags.threads) } : {});
const tokenizer = await loadTokenizer(MODEL);
const tokens = [...tokenizer.encode(await readFile(TEXT, "utf8"))].slice(0, TOKENS);
const say = (text) => process.stderr.write(`${text}\n`);
const results = {};
try {
  const rows = ROWS.filter((row) => chosen.includes(nameOf(row)));
  if (rows.length > 0) {
    const variants = rows.map(({ variant }) => variant);
    const onProgress = ({ tokens: done, totalTokens }) => say(`${done} of ${totalTokens} tokens`);
    const report = await perplexity(backend, MODEL, tokens, { variants, onProgress });
    for (const [i, { form, recipe }] of rows.entries())
      results[nameOf(rows[i])] = { form, recipe, ...report.variants[i] };
    results.original = report.original;
    results.scoredTokens = report.scoredTokens;
  }
  if (chosen.includes("damage")) results.damage = await measureDamage();
} finally {
  await backend.dispose();
}
if (flags.write) {
  const recorded = await readFile(MEASURED, "utf8").then(JSON.parse, () => ({}));
  const host = `${cpus()[0]?.model.trim()}, Node ${process.version}`;
  const measured = { ...recorded, host, ...results };
  await writeFile(MEASURED, `${JSON.stringify(measured, null, 2)}\n`);
  if (names.every((name) => measured[name])) {
    writeSection("docs/models.md", "forms", section(measured));
    writeSection("README.md", "forms", summary(measured));
  }
} else process.stdout.write(`${JSON.stringify(results, null, 2)}\n`);

/** Writes the model as a hub has it, converts it, inverts one scale, and measures both folders. */
async function measureDamage() {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-forms-"));
  try {
    return await damageIn(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function damageIn(folder) {
  const [wide, sound] = [join(folder, "wide"), join(folder, "converted")];
  await mkdir(wide);
  const model = await loadCausalLM(backend, MODEL, { dtype: "bf16" });
  try {
    const { config } = model;
    const [{ attention, feedForward }] = config.layers;
    await writeFile(
      join(wide, "config.json"),
      JSON.stringify({
        ...{ model_type: config.modelType, vocab_size: config.vocabSize, hidden_size: config.hiddenSize },
        ...{ intermediate_size: feedForward.intermediateSize, num_hidden_layers: config.layers.length },
        ...{ num_attention_heads: attention.heads, num_key_value_heads: attention.keyValueHeads },
        ...{
          head_dim: attention.headDim,
          rope_theta: attention.rotary.base,
          rms_norm_eps: config.rmsNormEps,
        },
        ...{ max_position_embeddings: config.maxPositionEmbeddings, torch_dtype: "bfloat16" },
        ...{ tie_word_embeddings: config.tieWordEmbeddings, eos_token_id: [...config.eosTokenIds] },
      }),
    );
    const all = Object.fromEntries(
      [...model.namedParameters()].map(([name, { tensor: value }]) => [name, value]),
    );
    await saveTensors(join(wide, "model.safetensors"), all);
  } finally {
    model.dispose();
  }
  await convertCheckpoint(wide, sound, { to: DAMAGED.form });
  say("converted");
  const before = await measured20(sound);
  await invertScale(join(sound, "model.safetensors"), DAMAGED.scale);
  const { findings } = await verifyCheckpoint(sound);
  const errors = findings.filter(({ severity }) => severity === "error");
  for (const each of findings) say(JSON.stringify(each));
  const after = await measured20(sound);
  const { name, severity, subject, what } = errors[0] ?? findings[0];
  return { ...DAMAGED, finding: { name, severity, subject, what }, sound: before, damaged: after };
}

/** The perplexity of a folder, and the greedy text after the prompt. */
async function measured20(path) {
  const { original } = await perplexity(backend, path, tokens);
  const model = await loadCausalLM(backend, path);
  const prompt = [...tokenizer.encode(PROMPT)];
  const ids = [];
  for await (const [id] of model.generate([prompt], { maxNewTokens: NEW_TOKENS, eosTokenIds: [] }))
    ids.push(id);
  model.dispose();
  return { perplexity: original.perplexity, text: tokenizer.decode(ids) };
}

/** Replaces a scale of one f32 number by its reciprocal. */
async function invertScale(path, name) {
  const file = await SafetensorsFile.open(path);
  const entry = file.entry(name);
  const [value] = new Float32Array((await file.read(entry)).slice().buffer);
  await file.close();
  const handle = await open(path, "r+");
  const length = Buffer.alloc(8);
  await handle.read(length, 0, 8, 0);
  await handle.write(
    Buffer.from(Float32Array.of(1 / value).buffer),
    0,
    4,
    8 + Number(length.readBigUInt64LE()) + entry.begin,
  );
  await handle.close();
}
