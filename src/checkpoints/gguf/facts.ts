/** The version and the metadata of a GGUF file. */

/** A metadata value. Arrays and long strings are described in words; an integer beyond 2^53 is a decimal string. */
export type MetadataValue = string | number | boolean;

/** A complete metadata value: all elements of an array, all characters of a string. */
export type MetadataContent = MetadataValue | readonly MetadataValue[];

/** The version, the number of tensors and the metadata of a GGUF file. */
export interface GgufFacts {
  /** The version of the format. */
  readonly version: number;
  /** The number of tensors, of all files of a split model. */
  readonly tensors: number;
  /** The metadata by key. */
  readonly metadata: Readonly<Record<string, MetadataValue>>;
}
