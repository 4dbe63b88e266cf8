/** The findings of `inspect` and `verify`, one row each. Their names are stable, so that programs can rely on them. */

/** The severity of a finding. An `error` means that loaders read weights wrong or not at all. */
export type Severity = "error" | "warning" | "note";

interface FindingRow {
  readonly severity: Severity;
  readonly remedy: string;
}

/** Every finding by its name, with its severity and remedy. */
export const FINDINGS = {
  "shard-missing": {
    severity: "error",
    remedy: "get the shard that the index names, or write the index anew",
  },
  "shard-damaged": { severity: "error", remedy: "get the shard again; its header or its length is wrong" },
  "index-absent-tensor": {
    severity: "error",
    remedy: "get the shard again, or write the index anew: its weight_map promises the tensor",
  },
  "index-unlisted-tensor": {
    severity: "error",
    remedy: "write the index anew: loaders take only what its weight_map lists",
  },
  "index-total-size": {
    severity: "warning",
    remedy: "write the index anew: its total_size is not that of the tensors",
  },
  "tensor-duplicated": {
    severity: "error",
    remedy: "leave the tensor in one shard, because loaders take whichever they read last",
  },
  "scale-missing": {
    severity: "error",
    remedy:
      "restore the scale from where the codes came from; if another library wrote the codes, read them with it, or name their convention by --as",
  },
  "scale-orphan": { severity: "error", remedy: "remove the scale, or restore the codes that it belongs to" },
  "scale-dtype": { severity: "error", remedy: "write the scale in a type of its convention" },
  "scale-shape": {
    severity: "error",
    remedy: "write one scale for each block, in the shape of the convention",
  },
  "scale-axis": { severity: "error", remedy: "transpose the scales: their axes are exchanged" },
  "block-divides": {
    severity: "error",
    remedy: "choose a block size that divides the last dimension, or leave the tensor unquantized",
  },
  "block-derived": {
    severity: "error",
    remedy:
      "pad the tensor to whole blocks: transformers derives the block from the shapes and reads another one",
  },
  "block-ragged": {
    severity: "warning",
    remedy: "use a loader that takes the block size from the configuration and cuts the last block",
  },
  "scale-not-finite": {
    severity: "error",
    remedy: "quantize the tensor again: its scales have NaN or infinity",
  },
  "scale-negative": { severity: "error", remedy: "quantize the tensor again: a scale is positive" },
  "scale-zero": {
    severity: "error",
    remedy: "quantize the tensor again: codes that are not zero have the scale zero",
  },
  "scale-constant": {
    severity: "error",
    remedy: "restore the scales: all blocks have one value, as if the scales had never been filled in",
  },
  "scale-one": {
    severity: "warning",
    remedy: "check that the scale was calibrated: 1 is what loaders assume without one",
  },
  "scale-inverted": { severity: "error", remedy: "write the reciprocals of the scales" },
  "scale-encoded": {
    severity: "error",
    remedy: "write 2^(scale - 127): the scales are bytes of E8M0 that were converted to numbers",
  },
  "scale-factor": {
    severity: "error",
    remedy: "multiply the scales by this factor: a scale of the whole tensor was lost, or taken twice",
  },
  "scale-flattened": {
    severity: "error",
    remedy:
      "restore the scales of rows: every row fills the range of the codes, so one scale cannot serve all",
  },
  "scale-rounded": {
    severity: "error",
    remedy:
      "quantize again with the rounded scales: every block fills its range, so codes belong to other scales",
  },
  "scales-swizzled": {
    severity: "error",
    remedy:
      "write the scales row by row: they lie in the order of tensor cores, which this convention does not have",
  },
  "codes-nan": { severity: "error", remedy: "quantize the tensor again: it has codes of NaN" },
  "codes-fnuz": {
    severity: "error",
    remedy:
      "convert the codes to e4m3fn and halve the values by their scale: readers take them as twice as large",
  },
  "codes-unrecognized": {
    severity: "error",
    remedy: "read it with the library that wrote it, or name its convention by --as",
  },
  "codes-shape": {
    severity: "error",
    remedy: "write weight_shape, num_bits and group_size as the codes are packed",
  },
  "codes-zero": { severity: "warning", remedy: "check the source: all codes of the tensor are zero" },
  "matrix-dead": {
    severity: "error",
    remedy: "restore the matrix, such as that of an expert: others of the stack have values",
  },
  "nibbles-swapped": {
    severity: "error",
    remedy: "exchange the two codes of each byte: the even column is the low one",
  },
  "values-apart": {
    severity: "error",
    remedy: "quantize the tensor again: its values are not those of the original",
  },
  "codes-not-nearest": {
    severity: "warning",
    remedy: "check how the codes were rounded: toward zero, at random, or to make up for errors of others",
  },
  "nothing-compared": {
    severity: "error",
    remedy: "give the original that was quantized: weights of the same names and shapes, quantized or not",
  },
  "original-absent": {
    severity: "note",
    remedy: "give the original that was quantized, with the same names",
  },
  "zero-point": {
    severity: "error",
    remedy: "quantize again: loaders take no zero points of floating-point codes",
  },
  "companion-shape": { severity: "error", remedy: "write the tensor as its convention has it" },
  "fused-scales-differ": {
    severity: "error",
    remedy: "quantize the projections with one global scale: loaders fuse them and take the largest",
  },
  "fused-scales-vary": {
    severity: "note",
    remedy: "use a loader that quantizes fused projections anew: they have different scales",
  },
  "config-unreadable": { severity: "error", remedy: "write the configuration as JSON" },
  "config-missing": {
    severity: "error",
    remedy: "add quantization_config: without it loaders cast the codes and drop the scales",
  },
  "config-method": { severity: "error", remedy: "name the convention of the tensors in quantization_config" },
  "config-empty": {
    severity: "error",
    remedy: "remove quantization_config, or restore the quantized tensors that it claims",
  },
  "config-unquantized": {
    severity: "error",
    remedy: "add the layer to the ignored ones, or quantize it: the configuration says that it is quantized",
  },
  "config-ignored": {
    severity: "error",
    remedy: "remove the layer from the ignored ones: its weight is quantized",
  },
  "config-scheme": {
    severity: "error",
    remedy: "write what the tensors are into the configuration, or quantize as it says",
  },
  "config-groups": {
    severity: "warning",
    remedy:
      "write what the tensors are into config_groups: loaders of ModelOpt read quant_algo, others the groups",
  },
  "config-disagree": {
    severity: "error",
    remedy: "write the same in both places: loaders read one or the other",
  },
  "scale-absent": {
    severity: "error",
    remedy: "restore the scale: others of its kind have one, or the configuration says so",
  },
  "expert-absent": {
    severity: "error",
    remedy: "restore the tensors of the expert: others of its layer have them",
  },
  "layer-absent": {
    severity: "error",
    remedy: "restore the tensors of the layer: those around it are there",
  },
  "convention-forced": {
    severity: "note",
    remedy: "leave out --as to read the weight as its tensors say",
  },
  "config-block": { severity: "error", remedy: "write the block size by which the scales were made" },
  "config-kv-cache": {
    severity: "error",
    remedy: "add the scales of the cache, or remove the claim: loaders assume 1 for absent ones",
  },
} as const satisfies Record<string, FindingRow>;

/** The name of a finding. */
export type FindingName = keyof typeof FINDINGS;

/** A problem or a note about a tensor or a file. */
export interface Finding {
  /** The name of the row of `FINDINGS`. Names are stable. */
  readonly name: FindingName;
  /** The severity. */
  readonly severity: Severity;
  /** The name of the tensor or the file. */
  readonly subject: string;
  /** A description of the problem, with the numbers. */
  readonly what: string;
  /** How to resolve the problem. */
  readonly remedy: string;
}

/** Creates a finding with the severity and the remedy of its row. */
export function finding(name: FindingName, subject: string, description: string): Finding {
  return {
    name,
    severity: FINDINGS[name].severity,
    subject,
    what: description,
    remedy: FINDINGS[name].remedy,
  };
}
