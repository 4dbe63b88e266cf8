/** Reads the quantization claim in the configuration of a checkpoint. */
import { FileError } from "../../../errors.js";
import type { JsonObject } from "../../../io/header/header.js";
import { judgeDisagreements } from "../../judge/config/disagreements.js";
import { type Finding, finding } from "../../judge/findings.js";
import { type CheckpointFolder, readJson } from "../folder.js";
import { type Claim, claimIn } from "./claim.js";

/** The configuration of a model. */
export const CONFIG_FILE = "config.json";
/** The configuration of ModelOpt. */
export const MODELOPT_FILE = "hf_quant_config.json";

/** The paths of both configurations in a folder. */
export function configurationPaths(folder: CheckpointFolder): readonly [string, string] {
  return [folder.pathOf(CONFIG_FILE), folder.pathOf(MODELOPT_FILE)];
}

/** The configuration in the folder of a checkpoint. */
export interface Configuration {
  /** Whether there is a config.json. */
  readonly present: boolean;
  readonly claim?: Claim;
  /** The object in config.json. */
  readonly model?: JsonObject;
  readonly findings: readonly Finding[];
}

/** Reads config.json and hf_quant_config.json of a folder. Files that cannot be parsed become findings. */
export async function readConfiguration(folder: CheckpointFolder): Promise<Configuration> {
  const findings: Finding[] = [];
  const paths = configurationPaths(folder);
  const model = await optionalJson(folder, CONFIG_FILE, findings);
  const modelopt = await optionalJson(folder, MODELOPT_FILE, findings);
  findings.push(...judgeDisagreements(paths, model, modelopt));
  const claim = claimIn(paths, model, modelopt);
  return {
    present: model !== undefined,
    findings,
    ...(claim ? { claim } : {}),
    ...(model ? { model } : {}),
  };
}

async function optionalJson(
  folder: CheckpointFolder,
  name: string,
  findings: Finding[],
): Promise<JsonObject | undefined> {
  try {
    return await readJson(folder, name);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    findings.push(finding("config-unreadable", folder.pathOf(name), error.message));
    return undefined;
  }
}
