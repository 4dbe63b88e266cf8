/** Compares projections that loaders fuse into one matrix with one global scale. */

import type { ByteScales } from "../../stored/byte-scales.js";
import { conventionOf } from "../../stored/conventions.js";
import type { Scales } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { type Finding, finding } from "../findings.js";

/** The names of projections that are fused with each other. */
const FUSED = [
  ["q_proj", "k_proj", "v_proj"],
  ["gate_proj", "up_proj"],
  ["w1", "w3"],
  ["q_a_proj", "kv_a_proj_with_mqa"],
  ["in_proj_qkv", "in_proj_z"],
] as const;

/** A key that projections share if loaders fuse them; undefined for a weight that is not fused. */
export function fusedGroup(weight: string): string | undefined {
  const [, prefix = "", projection = ""] = /^(.*?)([^.]+)\.weight$/s.exec(weight) ?? [];
  const group = FUSED.findIndex((each) => each.some((name) => name === projection));
  return group < 0 ? undefined : `${group} ${prefix}`;
}

/** Collects per-tensor and global scales, and compares the scales of fused projections. */
export class FusedScales {
  readonly #groups = new Map<
    string,
    { readonly name: string; readonly scale: number; readonly fused: boolean }[]
  >();

  add({ name, geometry, convention }: QuantizedWeight, scales: Scales | ByteScales): void {
    const isWhole = geometry.kind === "whole" && "values" in scales;
    const scale = scales.storedGlobal ?? (isWhole ? scales.values[0] : undefined);
    const key = fusedGroup(name);
    if (scale === undefined || key === undefined) return;
    const members = this.#groups.get(key) ?? [];
    members.push({ name, scale, fused: conventionOf(convention).global?.fused === true });
    this.#groups.set(key, members);
  }

  /** A finding for each group of fused projections whose scales differ. */
  findings(): Finding[] {
    return [...this.#groups.values()].flatMap((members) => {
      const [first] = members;
      if (!first || members.every(({ scale }) => Object.is(scale, first.scale))) return [];
      const scales = members
        .map(({ name, scale }) => `${name.split(".").at(-2)} ${Number(scale.toPrecision(5))}`)
        .join(", ");
      const kind = members.some(({ fused }) => fused) ? "fused-scales-differ" : "fused-scales-vary";
      return [finding(kind, first.name, `is fused with others of other scales: ${scales}`)];
    });
  }
}
