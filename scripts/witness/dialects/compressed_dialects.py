"""Records compressed-tensors: the scales of its observers (calculate_qparams), and the tensors of its compressors."""

import warnings

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam, maybe_pad_tensor_for_block_quant

import facts
import compressed_models as models
from recorder import Book, Dialect, ORDINARY


def ends(x, strategy, group, block):
    """The smallest and the largest value of each block that has a scale, as an observer of the strategy computes them."""
    if strategy == "tensor":
        low, high = torch.aminmax(x)
        return low.reshape(1), high.reshape(1)
    if strategy == "channel":
        return torch.amin(x, -1, keepdim=True), torch.amax(x, -1, keepdim=True)
    if strategy == "block":
        x = maybe_pad_tensor_for_block_quant(x, block)
        tiles = x.reshape(x.shape[0] // block[0], block[0], x.shape[1] // block[1], block[1])
        return torch.amin(tiles, (1, 3)), torch.amax(tiles, (1, 3))
    tiles = x.unflatten(-1, (-1, group))
    return torch.amin(tiles, -1), torch.amax(tiles, -1)


def asking(format, **arguments):
    compressor = BaseCompressor.get_value_from_registry(format)

    def ask(x):
        args = QuantizationArgs(symmetric=True, **arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=format)
        strategy = getattr(args.strategy, 'value', args.strategy)
        group = args.group_size
        block = tuple(args.block_structure) if args.block_structure else None
        low, high = ends(x, strategy, group, block)
        tensor_scale = generate_gparam(*torch.aminmax(x)) if strategy == "tensor_group" else None
        scale, zero_point = calculate_qparams(low, high, args, global_scale=tensor_scale)
        state = {"weight": x, "weight_scale": scale, "weight_zero_point": zero_point}
        if tensor_scale is not None:
            state["weight_global_scale"] = tensor_scale
        written = compressor.compress(state, scheme)
        read = compressor.decompress(dict(written), scheme)
        out = {"codes": written.get("weight_packed", written.get("weight"))}
        for name in ("weight_scale", "weight_global_scale"):
            if name in written:
                out[name] = written[name].detach()
        return {**out, "values": read["weight"]}

    return ask


ROWS = [
    ("ct-fp8-tensor", "float-quantized", "e4m3", "tensor", dict(num_bits=8, type="float", strategy="tensor"), None),
    ("ct-fp8-channel", "float-quantized", "e4m3", "row", dict(num_bits=8, type="float", strategy="channel"), None),
    ("ct-fp8-block", "float-quantized", "e4m3", [128, 128], dict(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), dict(num_bits=8, type="float", strategy="block", block_structure=[1, 32])),
    ("ct-nvfp4", "nvfp4-pack-quantized", "e2m1", [1, 16], dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn), None),
    ("ct-mxfp4", "mxfp4-pack-quantized", "e2m1", [1, 32], dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8), None),
    ("ct-mxfp6", "mxfp6-pack-quantized", "e2m3", [1, 32], dict(num_bits=6, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8), None),
    ("ct-mxfp8", "mxfp8-quantized", "e4m3", [1, 32], dict(num_bits=8, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8), None),
    ("ct-int8-channel", "int-quantized", "int8", "row", dict(num_bits=8, type="int", strategy="channel"), None),
    ("ct-int4-group", "pack-quantized", "int4", [1, 128], dict(num_bits=4, type="int", strategy="group", group_size=128), dict(num_bits=4, type="int", strategy="group", group_size=32)),
]


def main():
    warnings.filterwarnings("ignore")
    book = Book("compressed-tensors", "compressed-tensors")
    for name, format, elements, block, arguments, sweep in ROWS:
        two_level = name == "ct-nvfp4"
        plain = lambda given: {k: str(v) for k, v in given.items()}
        book.add(Dialect(
            name=name, function=f"calculate_qparams(min, max, args{', generate_gparam(min, max)' if two_level else ''}); {format}: compress, decompress",
            elements=elements, block=block, ask=asking(format, **arguments), ask_sweep=asking(format, **sweep) if sweep else None,
            tensor_per_row=block == "tensor" or two_level, facts=facts.ct(name), model=models.model(name, arguments),
            options=plain(arguments), sweep_options=plain(sweep or arguments),
            sweeps=["amax", "steps", "window"] if two_level else ["amax", "steps"],
            cases=[case for case in ORDINARY if case != "ragged" or block in ("tensor", "row", [128, 128])],
        ))
    book.write()


if __name__ == "__main__":
    main()
