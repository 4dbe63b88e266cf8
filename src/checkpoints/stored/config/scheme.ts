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
  /** compressed-tensors' name (tensor, channel, group, tensor_group, block), or "groups" if a global scale is possible. */
  readonly strategy?: string;
  readonly group?: number;
  readonly block?: readonly [number, number];
  /** The PyTorch type of scales. */
  readonly scaleDType?: string;
  readonly symmetric?: boolean;
  readonly activations?: Activations;
  /** The bits of quantized activations. */
  readonly activationBits?: number;
  /** Whether scales are powers of two, whatever their type. */
  readonly powersOfTwo?: true;
  /** A second declaration in the same configuration, which this method's loaders do not read. */
  readonly otherDeclaration?: Scheme;
}

/** A configuration's answer for one module. */
export type Resolved =
  | {
      readonly kind: "quantized";
      readonly scheme: Scheme;
      /** Whether the configuration lists the module by name, or only its class or all modules. */
      readonly by: "name" | "class";
    }
  /** It excludes the module, or lists quantized modules without this one. */
  | { readonly kind: "ignored" | "unlisted" }
  /** Its patterns are not supported, or do not cover such modules. */
  | { readonly kind: "unknown" };

/** The answer where a pattern is not supported or does not cover the module. */
export const UNKNOWN: Resolved = { kind: "unknown" };

/** Resolves a module, by its name, to the answer of one configuration. */
export type Resolver = (module: string) => Resolved;
