import { describe, expect, it } from "vitest";
import { DATAPATH_FAMILIES, datapathFor, familyFor } from "../../../src/formats/datapath.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";

describe.each(DATAPATH_FAMILIES)("%s", (family) => {
  it.each(WIDE_DTYPES)("has a family that multiplies %s without rounding the operands", (format) => {
    const chosenDatapath = familyFor(format, family);
    expect(datapathFor(chosenDatapath, { format }, { format }, false)).toMatchObject({ ok: true });
  });

  it("is replaced only if its tensor cores do not multiply the operands", () => {
    for (const format of WIDE_DTYPES) {
      const isMultiplied = datapathFor(family, { format }, { format }, false).ok;
      expect(familyFor(format, family), format).toBe(isMultiplied ? family : "fp32");
    }
  });
});
