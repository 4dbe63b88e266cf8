"""Records the results of torch on the CPU: casts from float32 to its small types, and codes decoded."""

from importlib.metadata import version

import numpy as np
import torch

import record

TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
ORIGIN = {
    "project": "torch (CPU)",
    "version": version("torch"),
    "how": "scripts/witness/torch_vectors.py: Tensor.to from float32",
}


def cast(type, inputs):
    codes = torch.from_numpy(inputs.view(np.float32).copy()).to(type)
    if codes.element_size() == 1:
        return codes.view(torch.uint8).numpy()
    return codes.view(torch.int16).numpy().view(np.uint16)


def decode(type, codes):
    words = codes.astype(np.uint8) if type.itemsize == 1 else codes.astype(np.uint16).view(np.int16)
    return torch.from_numpy(words).view(type).to(torch.float32).numpy().view(np.uint32)


def saturates(type):
    """Whether infinity becomes a finite number.

    In float8_e4m3fn that depends on the version of torch: NaN before, saturation now.
    """
    return bool(torch.isfinite(torch.tensor([torch.inf]).to(type).to(torch.float32)).all())


def ordinary(name, layout, type):
    inputs = record.edge_inputs(layout, codes=128, random=128)
    overflow = "saturate" if saturates(type) else "nonfinite"
    encode = [record.encoding(layout, f"Tensor.to({type})", "tiesToEven", overflow, cast(type, inputs))]
    codes = record.decode_codes(layout)
    decoded = record.decoding(layout, f"Tensor.view({type}).to(float32)", codes, decode(type, codes))
    differences = record.nan_difference(layout, lambda bits: cast(type, bits), "tiesToEven", overflow)
    return record.table(layout, inputs, encode, decoded, differences, name=name)


def e8m0(layout):
    """Records e8m0.

    torch rounds ties away from zero, and all values between 2^-127 and 2^-126 up; zero and negative inputs are as
    in Lockstep.
    """
    type = torch.float8_e8m0fnu
    rows = [
        (0x00400001, "tiesToAway", 0x00, "between 2^-127 and 2^-126: always up there, to the nearest here"),
        (0x40400000, "tiesToEven", 0x80, "a tie goes away from zero there, so its casts are recorded as tiesToAway"),
    ]
    differences = [
        record.difference(layout, bits, rounding, "nonfinite", cast(type, np.array([bits], np.uint32))[0], ours, why)
        for bits, rounding, ours, why in rows
    ]
    inputs = record.edge_inputs(layout, codes=128, random=128)
    size = record.magnitude(inputs)
    inputs = inputs[(size <= 0x00400000) | (size >= 0x00800000)]
    encode = [record.encoding(layout, f"Tensor.to({type})", "tiesToAway", "nonfinite", cast(type, inputs))]
    codes = record.decode_codes(layout)
    decoded = record.decoding(layout, f"Tensor.view({type}).to(float32)", codes, decode(type, codes))
    omitted = "magnitudes between 2^-127 and 2^-126"
    return record.table(layout, inputs, encode, decoded, differences, omitted, "e8m0")


def main():
    formats = record.scalar_formats()
    tables = {name: ordinary(name, formats[name], type) for name, type in TYPES.items()}
    eight = [tables[name] for name in ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")]
    record.write("torch-fp8.json", ORIGIN, [*eight, e8m0(formats["e8m0"])])
    record.write("torch-half.json", ORIGIN, [tables["bf16"], tables["f16"]])


if __name__ == "__main__":
    main()
