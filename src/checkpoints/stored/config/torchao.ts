/** What torchao writes into the metadata of a file. */

import type { Metadata } from "../../../io/header/header.js";
import { isObject } from "../../../io/header/header.js";
import { JsonError, parseJson } from "../../../io/json/json-read.js";

/** What a file says of a weight that is a subclass of torchao's. */
export interface Subclass {
  /** Whether its scales lie in the order of tensor cores. */
  readonly swizzled: boolean;
  /** The name of its class; absent if the file does not say. */
  readonly type?: string;
  /** The tensors that it consists of, as the ends of their names. */
  readonly parts: readonly string[];
}

/** What the metadata say of a weight; nothing if they are not those of torchao. */
export function subclassOf(metadata: Metadata, name: string): Subclass {
  const none: Subclass = { swizzled: false, parts: [] };
  const text = Object.hasOwn(metadata, name) ? metadata[name] : undefined;
  if (text === undefined) return none;
  try {
    const json = parseJson(text);
    if (!isObject(json)) return none;
    const names = json._tensor_data_names;
    return {
      ...(typeof json._type === "string" ? { type: json._type } : {}),
      swizzled: isObject(json._data) && json._data.is_swizzled_scales === true,
      parts: Array.isArray(names) ? names.filter((each) => typeof each === "string") : [],
    };
  } catch (error) {
    if (error instanceof JsonError) return none;
    throw error;
  }
}
