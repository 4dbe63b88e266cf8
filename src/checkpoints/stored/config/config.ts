/** Reads the quantization claim in the configuration of a checkpoint. */
import { join } from "node:path";
import { FileError } from "../../../errors.js";
import { codeOf } from "../../../io/files.js";
import type { JsonObject } from "../../../io/header/header.js";
import { judgeDisagreements } from "../../judge/config/disagreements.js";
import { type Finding, finding } from "../../judge/findings.js";
import { readJsonFile } from "../open.js";
import { type Claim, claimIn } from "./claim.js";

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
export async function readConfiguration(folder: string): Promise<Configuration> {
  const findings: Finding[] = [];
  const paths = [join(folder, "config.json"), join(folder, "hf_quant_config.json")] as const;
  const model = await optionalJson(paths[0], findings);
  const modelopt = await optionalJson(paths[1], findings);
  findings.push(...judgeDisagreements(paths, model, modelopt));
  const claim = claimIn(paths, model, modelopt);
  return {
    present: model !== undefined,
    findings,
    ...(claim ? { claim } : {}),
    ...(model ? { model } : {}),
  };
}

async function optionalJson(path: string, findings: Finding[]): Promise<JsonObject | undefined> {
  try {
    return await readJsonFile(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    if (codeOf(error.cause) !== "ENOENT") findings.push(finding("config-unreadable", path, error.message));
    return undefined;
  }
}
