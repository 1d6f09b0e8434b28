"""Models of 4 and 8 bits, packed here as the libraries that write such files do, are all the same model to stemma.LLM."""

import json
import pathlib
import shutil
import struct

import numpy
import pytest

from stemma import LLM, SamplingParams

MODEL = pathlib.Path(__file__).parents[2] / "models/scribe-3m"
GROUP = 64
PROMPT = "The page and the index of it are read before the text, and what is found there is kept."


def read_tensors():
    data = (MODEL / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    begin = 8 + length
    return {name: (entry["shape"], data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


class Codes:
    """A matrix [outputs, inputs] of bf16 as codes, scales and zero points."""

    def __init__(self, shape, stored):
        wide = numpy.frombuffer(stored, "<u2").astype(numpy.uint32) << 16
        values = wide.view(numpy.float32).reshape(shape[0], shape[1] // GROUP, GROUP)
        least, most = numpy.minimum(values.min(2), 0), numpy.maximum(values.max(2), 0)
        self.scales = ((most - least) / 15).astype(numpy.float16)
        exact = self.scales.astype(numpy.float32)
        self.zeros = numpy.clip(numpy.rint(-least / exact), 0, 15).astype(int)
        steps = numpy.rint(values / exact[:, :, None]).astype(int)
        codes = numpy.clip(steps + self.zeros[:, :, None], 0, 15)
        self.values = ((codes - self.zeros[:, :, None]) * exact[:, :, None]).astype(numpy.float16).reshape(shape)
        self.codes = codes.reshape(shape)


def words(codes, order=range(8)):
    """As many of a row as there are places in 32 bits, the one at order[j] at the j-th place."""
    each = codes.reshape(codes.shape[0], -1, len(order)).astype(numpy.uint32)
    bits = 32 // len(order)
    return sum(each[:, :, place] << numpy.uint32(bits * j) for j, place in enumerate(order)).astype("<u4")


def as_gptq(module, matrix):
    return {
        f"{module}.qweight": words(matrix.codes).T,
        f"{module}.qzeros": words(matrix.zeros.T) - numpy.uint32(0x11111111),
        f"{module}.scales": matrix.scales.T,
        f"{module}.g_idx": (numpy.arange(matrix.codes.shape[1]) // GROUP).astype("<i4"),
    }


def as_awq(module, matrix):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {
        f"{module}.qweight": words(matrix.codes.T, order),
        f"{module}.qzeros": words(matrix.zeros.T, order),
        f"{module}.scales": matrix.scales.T,
    }


def as_compressed_tensors(module, matrix):
    return {
        f"{module}.weight_packed": words(matrix.codes),
        f"{module}.weight_zero_point": words(matrix.zeros.T).T,
        f"{module}.weight_scale": matrix.scales,
        f"{module}.weight_shape": numpy.array(matrix.codes.shape, "<i8"),
    }


def as_numbers(module, matrix):
    return {f"{module}.weight": matrix.values}


class Bytes:
    """The same of whole numbers of 8 bits, with a scale for each output."""

    def __init__(self, shape, stored):
        wide = numpy.frombuffer(stored, "<u2").astype(numpy.uint32) << 16
        values = wide.view(numpy.float32).reshape(shape)
        self.scales = (numpy.abs(values).max(1, keepdims=True) / 127.5).astype(numpy.float16)
        exact = self.scales.astype(numpy.float32)
        self.codes = numpy.clip(numpy.rint(values / exact), -128, 127).astype(numpy.int8)
        self.values = (self.codes * exact).astype(numpy.float16)


def as_bytes(module, matrix):
    return {f"{module}.weight": matrix.codes, f"{module}.weight_scale": matrix.scales}


def as_gptq_bytes(module, matrix):
    return {
        f"{module}.qweight": words(matrix.codes.astype(int) + 128, range(4)).T,
        f"{module}.qzeros": numpy.full((1, matrix.codes.shape[0] // 4), 0x7F7F7F7F, "<u4"),
        f"{module}.scales": matrix.scales.T,
    }


def as_packed_bytes(module, matrix):
    return {
        f"{module}.weight_packed": words(matrix.codes.astype(int) + 128, range(4)),
        f"{module}.weight_scale": matrix.scales,
        f"{module}.weight_shape": numpy.array(matrix.codes.shape, "<i8"),
    }


LAYOUTS = {
    "gptq": (as_gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}),
    "awq": (as_awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "compressed-tensors": (as_compressed_tensors, {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": GROUP}}}}),
    "numbers": (as_numbers, None),
    "bytes": (as_bytes, {
        "quant_method": "compressed-tensors", "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}}}),
    "gptq bytes": (as_gptq_bytes, {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False, "sym": True}),
    "packed bytes": (as_packed_bytes, {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}}}),
    "numbers of bytes": (as_numbers, None),
}
DTYPES = {"<i8": "I64", "<u4": "I32", "<i4": "I32", "<f2": "F16", "|V2": "BF16", "|i1": "I8"}


def write_model(directory, layout):
    pack, section = LAYOUTS[layout]
    shutil.copytree(MODEL, directory, ignore=shutil.ignore_patterns("*.safetensors", "double_sparsity.json"))
    tensors = {}
    for name, (shape, stored) in read_tensors().items():
        if name.endswith("_proj.weight"):
            matrix = Bytes(shape, stored) if "bytes" in layout else Codes(shape, stored)
            tensors.update(pack(name.removesuffix(".weight"), matrix))
        else:
            tensors[name] = numpy.frombuffer(stored, "V2").reshape(shape)
    entries, parts, end = {}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda one: -one[1].itemsize):
        parts.append(numpy.ascontiguousarray(tensor).tobytes())
        entries[name] = {"dtype": DTYPES[tensor.dtype.str], "shape": tensor.shape, "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"".join(parts))
    config = json.loads((MODEL / "config.json").read_text())
    if section is not None:
        config["quantization_config"] = section
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def logprobs(directory, weights):
    with LLM(directory, kv_bytes=8 << 20, threads=1, weights=weights) as llm:
        output = llm.generate(PROMPT, SamplingParams(max_tokens=8, prompt_logprobs=1))[0]
    return output.prompt_logprobs, output.outputs[0].token_ids


def nearly_equal(got, expected):
    return all(abs(one[token].logprob - other[token].logprob) < 0.1
               for one, other in zip(got[1:], expected[1:]) for token in one.keys() & other.keys())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("int4")
    return {layout: write_model(root / layout, layout) for layout in LAYOUTS}


def test_widened_codes_are_the_numbers_that_they_stand_for(models):
    expected = logprobs(models["numbers"], "auto")
    for layout in ("gptq", "awq", "compressed-tensors"):
        assert logprobs(models[layout], "wide") == expected, layout


def test_kept_codes_are_those_of_any_layout(models):
    gptq, awq, packed = (logprobs(models[layout], "auto") for layout in ("gptq", "awq", "compressed-tensors"))
    assert gptq == awq == packed
    numbers = logprobs(models["numbers"], "auto")[0]
    assert gptq[0] != numbers, "scales are rounded to bf16"
    assert nearly_equal(gptq[0], numbers)


def test_bytes_are_kept_or_the_numbers_that_they_stand_for(models):
    numbers = logprobs(models["numbers of bytes"], "auto")
    kept = logprobs(models["bytes"], "auto")
    for layout in ("bytes", "gptq bytes", "packed bytes"):
        assert logprobs(models[layout], "wide") == numbers, layout
        assert logprobs(models[layout], "auto") == kept, layout
    assert kept[0] != numbers[0], "codes were not rounded to f16"
    assert nearly_equal(kept[0], numbers[0])
