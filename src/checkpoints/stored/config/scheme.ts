/** The quantization scheme that a configuration declares for a module. */

/** The quantization of activations: with recorded scales, with only a recorded global scale, with computed scales, or none. */
export type Activations = "static" | "local" | "dynamic" | "none";

/** The quantization of the weights of one module. A field that the configuration does not declare is absent. */
export interface Scheme {
  /** The part of the configuration, for findings. */
  readonly location: string;
  /** The `format` of compressed-tensors, the algorithm of ModelOpt, the mode of MLX. */
  readonly formats: readonly string[];
  readonly bits?: number;
  readonly type?: "int" | "float";
  /** The name by compressed-tensors (tensor, channel, group, tensor_group, block), or "groups" if a global scale is possible. */
  readonly strategy?: string;
  readonly group?: number;
  readonly block?: readonly [number, number];
  /** The PyTorch type of scales. */
  readonly scaleDType?: string;
  readonly symmetric?: boolean;
  readonly activations?: Activations;
  /** The bits of quantized activations. */
  readonly activationBits?: number;
  /** Whether scales are powers of two, regardless of their type. */
  readonly powersOfTwo?: true;
  /** A second declaration in the same configuration. The loaders of this method do not read it. */
  readonly otherDeclaration?: Scheme;
}

/** A configuration's answer for one module. */
export type Resolved =
  | {
      readonly kind: "quantized";
      readonly scheme: Scheme;
      /** "name": the configuration lists the module by name. "class": it lists only the class of the module, or all modules. */
      readonly by: "name" | "class";
    }
  /** The configuration excludes the module, or lists quantized modules without this module. */
  | { readonly kind: "ignored" | "unlisted" }
  /** The patterns of the configuration are not supported, or do not cover such modules. */
  | { readonly kind: "unknown" };

/** The answer where a pattern is not supported or does not cover the module. */
export const UNKNOWN: Resolved = { kind: "unknown" };

/** Resolves a module, by its name, to the answer of one configuration. */
export type Resolver = (module: string) => Resolved;
