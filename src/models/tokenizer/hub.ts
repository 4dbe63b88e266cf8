/** The tokenizer in the files of a hub folder. */
import { FileError } from "../../errors.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { DEFAULT_TEMPLATE, idsOf, type TokenizerDefinition } from "./definition.js";

/** The contents of the files of a tokenizer. */
export interface HubFiles {
  /** tokenizer.json. */
  readonly tokenizer: JsonObject;
  /** tokenizer_config.json. */
  readonly tokenizerConfig?: JsonObject | undefined;
  /** generation_config.json. */
  readonly generationConfig?: JsonObject | undefined;
  /** config.json. */
  readonly config?: JsonObject | undefined;
  /** chat_template.jinja. */
  readonly chatTemplate?: string | undefined;
}

/** Returns the tokenizer of a folder. Throws `FileError` for a file of an invalid form. */
export function hubDefinition(path: string, files: HubFiles): TokenizerDefinition {
  const { tokenizer, tokenizerConfig = {}, generationConfig, config, chatTemplate } = files;
  const idOf = idsByToken(path, tokenizer);
  return {
    path,
    tokenizer,
    bosTokenId:
      idOf(tokenizerConfig.bos_token) ?? idsOf(generationConfig?.bos_token_id ?? config?.bos_token_id)[0],
    eosTokenIds: idsOf(
      generationConfig?.eos_token_id ?? config?.eos_token_id,
      idOf(tokenizerConfig.eos_token),
    ),
    chatTemplates: templatesOf(path, tokenizerConfig.chat_template, chatTemplate),
  };
}

/** Returns the function from a token, as tokenizer_config.json has it, to its id. */
function idsByToken(path: string, { added_tokens: added, model }: JsonObject) {
  const vocabulary = isObject(model) ? model.vocab : undefined;
  if (!isObject(model) || !isObject(vocabulary))
    throw new FileError(`${path}: tokenizer.json must have a model with a vocab; it is no tokenizer of BPE`);
  const tokens = Array.isArray(added) ? added.filter(isObject) : [];
  return (token: unknown): number | undefined => {
    const content = isObject(token) ? token.content : token;
    if (typeof content !== "string") return undefined;
    const id = tokens.find((each) => each.content === content)?.id ?? vocabulary[content];
    return idsOf(id)[0];
  };
}

function templatesOf(path: string, template: unknown, file: string | undefined): ReadonlyMap<string, string> {
  const templates = new Map<string, string>();
  if (typeof template === "string") templates.set(DEFAULT_TEMPLATE, template);
  else if (Array.isArray(template))
    for (const each of template) {
      if (!isObject(each) || typeof each.name !== "string" || typeof each.template !== "string")
        throw new FileError(
          `${path}: chat_template of tokenizer_config.json must have a name and a template`,
        );
      templates.set(each.name, each.template);
    }
  // chat_template.jinja, the newer location of the template, has precedence
  if (file !== undefined) templates.set(DEFAULT_TEMPLATE, file);
  return templates;
}
