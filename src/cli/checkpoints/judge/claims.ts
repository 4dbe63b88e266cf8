/** Compares what the configuration claims with what the tensors are. */
import { join } from "node:path";
import { isCacheScale } from "../recognize/leftovers.js";
import { announces, type Recognized } from "../recognize/recognize.js";
import type { Claim } from "../stored/claim.js";
import type { Configuration } from "../stored/config.js";
import { CONVENTION_NAMES, conventionOf } from "../stored/conventions.js";
import { isIgnored } from "../stored/ignored.js";
import type { Checkpoint } from "../stored/open.js";
import { type Finding, finding } from "./findings.js";

/** Projections that every quantized model has quantized, unless its configuration leaves them out. */
const PROJECTIONS =
  /\.(q_proj|k_proj|v_proj|o_proj|qkv_proj|gate_proj|up_proj|down_proj|gate_up_proj|w1|w2|w3)\.weight$/;

const KNOWN_METHODS = new Set(CONVENTION_NAMES.flatMap((name) => conventionOf(name).methods));

const moduleOf = (weight: string): string => weight.replace(/\.weight$/, "");

/** Findings about a configuration and the tensors beside it. */
export function judgeClaims(
  checkpoint: Checkpoint,
  { present, claim }: Configuration,
  recognized: Recognized,
): Finding[] {
  const quantized = [...recognized.weights, ...recognized.unfit];
  const path = join(checkpoint.folder, "config.json");
  if (!claim) {
    if (!present || quantized.length === 0) return [];
    return [
      finding(
        "config-missing",
        path,
        `has no quantization_config, and ${quantized.length} weights are quantized`,
      ),
    ];
  }
  return [
    ...methods(claim, recognized),
    ...emptiness(claim, recognized),
    ...layers(claim, recognized),
    ...cache(claim, checkpoint),
  ];
}

function methods(claim: Claim, { weights, unfit }: Recognized): Finding[] {
  const told = [claim.method || "no quant_method", ...claim.formats].join(", ");
  const wrong = new Map<string, string>();
  for (const { name, convention } of [...weights, ...unfit]) {
    if (!announces(convention, claim) && !wrong.has(convention)) wrong.set(convention, name);
  }
  return [...wrong].map(([convention, name]) =>
    finding("config-method", claim.path, `says ${told}; ${name} and others are ${convention}`),
  );
}

function emptiness(claim: Claim, { weights, findings }: Recognized): Finding[] {
  if (weights.length > 0 || findings.length > 0 || !KNOWN_METHODS.has(claim.method)) return [];
  return [finding("config-empty", claim.path, `says ${claim.method}, and no tensor is quantized`)];
}

function layers(claim: Claim, { weights, plain }: Recognized): Finding[] {
  const quantized = weights.flatMap(({ name }) =>
    isIgnored(claim.ignored, moduleOf(name)) === true
      ? [finding("config-ignored", name, `is quantized, and ${claim.path} leaves it out`)]
      : [],
  );
  if (!claim.allLinear || weights.length === 0 || claim.method === "torchao") return quantized;
  const bare = plain.flatMap(({ entry: { name, dtype, shape } }) =>
    shape.length === 2 && PROJECTIONS.test(name) && isIgnored(claim.ignored, moduleOf(name)) === false
      ? [finding("config-unquantized", name, `is ${dtype}, and ${claim.path} says that it is quantized`)]
      : [],
  );
  return [...quantized, ...bare];
}

function cache({ cache: claimed, path }: Claim, { tensors }: Checkpoint): Finding[] {
  if (!claimed || [...tensors.keys()].some(isCacheScale)) return [];
  return [
    finding("config-kv-cache", path, "says that the cache is quantized; no tensor is a k_scale or v_scale"),
  ];
}
