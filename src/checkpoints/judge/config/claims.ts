/** Compares the configuration's claims with the tensors that are quantized. */
import { isLinear } from "../../recognize/layer-roles.js";
import { declares, moduleOf, type Recognized } from "../../recognize/recognize.js";
import type { Claim } from "../../stored/config/claim.js";
import type { Configuration } from "../../stored/config/config.js";
import type { CheckpointFiles } from "../../stored/files.js";
import type { StoredTensor } from "../../stored/tensors.js";
import { type Finding, finding } from "../findings.js";
import { judgeSiblings } from "../weights/siblings.js";
import { judgeKvCache } from "./kv-cache.js";
import { judgeSchemes } from "./schemes.js";

/** Projections that every quantized model quantizes, unless its configuration excludes them. */
const PROJECTIONS =
  /\.(q_proj|k_proj|v_proj|o_proj|qkv_proj|gate_proj|up_proj|down_proj|gate_up_proj|w1|w2|w3)\.weight$/;
/** Methods whose exporters list every unquantized linear layer. */
const LISTING = new Set(["compressed-tensors", "modelopt", "quark"]);
/** The index of a layer in a weight's name. */
const IN_LAYER = /\.\d+\./;
/** Matrices that are not weights of linear layers, or that route tokens. */
const NO_LINEAR = /(norm|conv\w*|embed\w*|rotary\w*|router|gate|lora\w*|position\w*)\.weight$/i;

/** Findings about a configuration and the tensors of its checkpoint. */
export function judgeClaims(
  checkpoint: CheckpointFiles,
  { present, claim, model }: Configuration,
  recognized: Recognized,
): Finding[] {
  const quantized = [...recognized.weights, ...recognized.unfit];
  const path = checkpoint.folder.pathOf("config.json");
  const commonFindings = [
    ...judgeSiblings(checkpoint, recognized.weights, claim, model),
    ...judgeKvCache(claim, checkpoint),
  ];
  if (!claim) {
    if (!present || quantized.length === 0) return commonFindings;
    const problem = `has no quantization_config, and ${quantized.length} weights are quantized`;
    return [finding("config-missing", path, problem), ...commonFindings];
  }
  return [
    ...methods(claim, recognized),
    ...judgeEmptyClaim(claim, recognized),
    ...layers(claim, recognized),
    ...judgeSchemes(claim, recognized.weights, checkpoint),
    ...commonFindings,
  ];
}

function methods(claim: Claim, { weights, unfit }: Recognized): Finding[] {
  const findingsByConvention = new Map<string, Finding>();
  for (const { name, convention } of [...weights, ...unfit]) {
    const resolved = claim.resolve(moduleOf(name));
    const scheme = resolved.kind === "quantized" ? resolved.scheme : undefined;
    if (declares(convention, claim, scheme) || findingsByConvention.has(convention)) continue;
    const formats = scheme?.formats ?? claim.formats;
    const declared = [claim.method || "no quant_method", ...formats].join(", ");
    const problem = `says ${declared}; ${name} and others are ${convention}`;
    findingsByConvention.set(convention, finding("config-method", claim.path, problem));
  }
  return [...findingsByConvention.values()];
}

function judgeEmptyClaim(claim: Claim, { weights, lockstepWeights, findings }: Recognized): Finding[] {
  if (weights.length > 0 || lockstepWeights.length > 0 || findings.length > 0 || claim.method === "")
    return [];
  return [finding("config-empty", claim.path, `says ${claim.method}, and no tensor is quantized`)];
}

function layers(claim: Claim, { weights, plain }: Recognized): Finding[] {
  const quantized = weights.flatMap(({ name }) =>
    claim.resolve(moduleOf(name)).kind === "ignored"
      ? [finding("config-ignored", name, `is quantized, and ${claim.path} leaves it out`)]
      : [],
  );
  if (weights.length === 0 || claim.method === "torchao") return quantized;
  const bare = plain.flatMap((tensor) => {
    const { name, dtype } = tensor.entry;
    return isLinear(tensor) && isClaimed(claim, tensor)
      ? [finding("config-unquantized", name, `is ${dtype}, and ${claim.path} says that it is quantized`)]
      : [];
  });
  return [...quantized, ...bare];
}

/** Whether a configuration claims that a plain tensor is quantized: by name, or as a linear layer that is not excluded. */
function isClaimed(claim: Claim, { entry: { name } }: StoredTensor): boolean {
  const resolved = claim.resolve(moduleOf(name));
  if (resolved.kind !== "quantized") return false;
  if (resolved.by === "name") return true;
  if (!claim.allLinear) return false;
  if (PROJECTIONS.test(name)) return true;
  return LISTING.has(claim.method) && IN_LAYER.test(name) && !NO_LINEAR.test(name);
}
