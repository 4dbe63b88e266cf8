/** Reads torchao's metadata in safetensors files. */

import type { Metadata } from "../../../io/header/header.js";
import { isObject } from "../../../io/header/header.js";
import { JsonError, parseJson } from "../../../io/json/json-read.js";

/** The metadata of a weight that is a torchao tensor subclass. */
export interface Subclass {
  /** Whether the scales of the weight are swizzled for tensor cores. */
  readonly swizzled: boolean;
  /** The name of the class; absent if the metadata have none. */
  readonly type?: string;
  /** The tensors of the weight, as suffixes of names. */
  readonly parts: readonly string[];
}

/** The torchao metadata of a weight; an empty subclass if there are none. */
export function subclassOf(metadata: Metadata, name: string): Subclass {
  const plainSubclass: Subclass = { swizzled: false, parts: [] };
  const text = Object.hasOwn(metadata, name) ? metadata[name] : undefined;
  if (text === undefined) return plainSubclass;
  try {
    const json = parseJson(text);
    if (!isObject(json)) return plainSubclass;
    const names = json._tensor_data_names;
    return {
      ...(typeof json._type === "string" ? { type: json._type } : {}),
      swizzled: isObject(json._data) && json._data.is_swizzled_scales === true,
      parts: Array.isArray(names) ? names.filter((each) => typeof each === "string") : [],
    };
  } catch (error) {
    if (error instanceof JsonError) return plainSubclass;
    throw error;
  }
}
